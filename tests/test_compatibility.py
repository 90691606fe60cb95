"""Tests of upgrades of older configs to the current fields, names and classes."""

import copy
import importlib
from pathlib import Path

import pytest

from training import compatibility, configuration

CONFIGS = Path(__file__).parent.parent / "configs"

SAGAN = {
    "task": "tasks.adversarial:Adversarial",
    "architecture": "models.sagan:Generator",
    "attention": {"generator": [16]},
    "generator": {"b1": 0.0},
    "discriminator": {"b1": 0.5, "name": "rmsprop"},
    "loss": "hinge",
}
TRANSLATOR = {
    "task": "tasks.translation:Translation",
    "architecture": "models.transformer:Transformer",
    "model": {"layers": 3},
    "optimizer": {"b1": 0.9},
    "data": {"rows": 7, "files": {"train": ""}},
}


@pytest.fixture
def tables(monkeypatch):
    """Returns a setter of the tables of `compatibility`; they start empty."""

    def set_tables(added=(), renamed=(), moved=()):
        monkeypatch.setattr(compatibility, "ADDED", dict(added))
        monkeypatch.setattr(compatibility, "RENAMED", dict(renamed))
        monkeypatch.setattr(compatibility, "MOVED", dict(moved))

    set_tables()
    return set_tables


@pytest.mark.parametrize("settings", [SAGAN, TRANSLATOR, {}])
def test_current_settings_are_returned_as_an_equal_copy(settings, tables):
    before = copy.deepcopy(settings)
    upgraded = compatibility.upgrade(settings)
    assert upgraded == before
    for group in upgraded.values():
        if isinstance(group, dict | list):
            group.clear()
    assert settings == before


def test_a_field_is_added_if_its_group_exists(tables):
    tables(added={"optimizer.name": "adam", "data.files.extra": [], "noise.size": 5})
    upgraded = compatibility.upgrade(TRANSLATOR)
    assert upgraded["optimizer"] == {"b1": 0.9, "name": "adam"}
    assert upgraded["data"]["files"] == {"train": "", "extra": []}
    assert "noise" not in upgraded
    assert "optimizer" not in compatibility.upgrade(SAGAN)


def test_an_existing_field_keeps_its_value(tables):
    tables(added={"optimizer.b1": 0.5, "model.layers": 11})
    assert compatibility.upgrade(TRANSLATOR) == TRANSLATOR


def test_a_top_level_field_is_added(tables):
    tables(added={"average_decay": 0.0})
    assert compatibility.upgrade(TRANSLATOR)["average_decay"] == 0.0


def test_a_value_is_not_a_group(tables):
    tables(added={"loss.smoothing": 0.1, "attention.generator.size": 3})
    assert compatibility.upgrade(SAGAN) == SAGAN


def test_a_field_of_several_groups_is_added_to_each(tables):
    tables(added={"optimizer|generator|discriminator.name": "adam"})
    assert compatibility.upgrade(TRANSLATOR)["optimizer"]["name"] == "adam"
    upgraded = compatibility.upgrade(SAGAN)
    assert upgraded["generator"] == {"b1": 0.0, "name": "adam"}
    assert upgraded["discriminator"] == SAGAN["discriminator"]
    assert upgraded["attention"] == SAGAN["attention"]  # its field is not a group


@pytest.mark.parametrize("owner", ["Transformer", "Translation"])
def test_a_field_of_one_class_is_added_to_its_configs_only(owner, tables):
    tables(added={f"{owner}: model.bias": False})
    upgraded = compatibility.upgrade(TRANSLATOR)
    assert upgraded["model"] == {"layers": 3, "bias": False}
    lstm = TRANSLATOR | {"architecture": "models.ntm:LSTM", "task": "tasks.x:Task"}
    assert compatibility.upgrade(lstm) == lstm


def test_an_added_value_is_a_copy(tables):
    tables(added={"optimizer.steps": [2, 3]})
    compatibility.upgrade(TRANSLATOR)["optimizer"]["steps"].append(5)
    assert compatibility.upgrade(TRANSLATOR)["optimizer"]["steps"] == [2, 3]


@pytest.mark.parametrize(
    ("old", "new", "settings", "expected"),
    [
        ("a.b", "a.c", {"a": {"b": 2, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ("a", "b.c.d", {"a": 2}, {"b": {"c": {"d": 2}}}),
        ("a", "a.b", {"a": 2}, {"a": {"b": 2}}),
        ("a", "a.b", {"a": {"c": 2}}, {"a": {"b": {"c": 2}}}),
        ("a.b", "b", {"a": {"b": {"c": 2}}}, {"b": {"c": 2}}),
        ("a.b", "c.b", {"a": 2}, {"a": 2}),
        ("a.b", "a.c", {"a": {"b": 2, "c": 3}}, {"a": {"b": 2, "c": 3}}),
        ("X: a", "b", {"a": 2, "task": "x:X"}, {"b": 2, "task": "x:X"}),
        ("X: a", "b", {"a": 2, "task": "x:Y"}, {"a": 2, "task": "x:Y"}),
    ],
)
def test_a_field_is_renamed_if_it_has_its_old_name(
    old, new, settings, expected, tables
):
    tables(renamed={old: new})
    assert compatibility.upgrade(settings) == expected
    assert compatibility.upgrade(expected) == expected


def test_moved_classes_are_replaced_at_any_depth(tables):
    tables(moved={"models.old:A": "models.new:B"})
    settings = {"architecture": "models.old:A", "x": {"y": ["models.old:A", 2, None]}}
    upgraded = compatibility.upgrade(settings)
    assert upgraded == {
        "architecture": "models.new:B",
        "x": {"y": ["models.new:B", 2, None]},
    }


def test_fields_are_added_under_the_current_names_and_classes(tables):
    tables(
        moved={"models.transformer:Transformer": "models.new:Attender"},
        renamed={"model": "network"},
        added={"Attender: network.bias": False},
    )
    assert compatibility.upgrade(TRANSLATOR)["network"] == {"layers": 3, "bias": False}


def nested(path, value):
    """Returns nested dicts with one value, at a path such as "data.rows"."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def has(settings, path):
    for name in path.split("."):
        if not isinstance(settings, dict) or name not in settings:
            return False
        settings = settings[name]
    return True


def current_settings():
    for file in sorted(CONFIGS.glob("[!_]*.py")):
        module = importlib.import_module(f"configs.{file.stem}")
        for variant in module.VARIANTS:
            yield configuration.encode(module.get_config(variant))


@pytest.fixture(scope="module")
def settings_of():
    """Returns a function from a class name to the current configs of that class."""
    every = list(current_settings())

    def select(owner):
        classes = "task", "architecture"
        return [
            settings
            for settings in every
            if not owner or any(settings[c].endswith(f":{owner}") for c in classes)
        ]

    return select


RENAMED = [pytest.param(*names, id=names[0]) for names in compatibility.RENAMED.items()]


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_every_renamed_field_of_an_old_config_is_upgraded(old, new):
    owner, _, path = old.rpartition(": ")
    classes = {"architecture": f"models.any:{owner}"} if owner else {}
    added = compatibility.upgrade({})  # fields outside of groups
    upgraded = compatibility.upgrade(nested(path, 7) | classes)
    assert upgraded == nested(new, 7) | classes | added
    if owner:
        other = nested(path, 7) | {"architecture": "models.any:Other"}
        assert compatibility.upgrade(other) == other | added


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_current_configs_have_the_new_name_of_a_renamed_field(old, new, settings_of):
    owner, _, path = old.rpartition(": ")
    configs = settings_of(owner)
    assert not any(has(settings, path) for settings in configs)
    assert any(has(settings, new) for settings in configs)
