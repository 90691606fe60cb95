"""Older configs are read with the fields, names and classes of today."""

import copy

import pytest

from training import compatibility

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
    """Sets the tables of compatibility, which are empty to begin with."""

    def set_tables(added=(), renamed=(), moved=()):
        monkeypatch.setattr(compatibility, "ADDED", dict(added))
        monkeypatch.setattr(compatibility, "RENAMED", dict(renamed))
        monkeypatch.setattr(compatibility, "MOVED", dict(moved))

    set_tables()
    return set_tables


@pytest.mark.parametrize("settings", [SAGAN, TRANSLATOR, {}])
def test_settings_stay_equal_and_are_copied_where_nothing_has_changed(settings, tables):
    before = copy.deepcopy(settings)
    upgraded = compatibility.upgrade(settings)
    assert upgraded == before
    for group in upgraded.values():
        if isinstance(group, dict | list):
            group.clear()
    assert settings == before


def test_an_added_field_is_filled_in_where_its_group_exists(tables):
    tables(added={"optimizer.name": "adam", "data.files.extra": [], "noise.size": 5})
    upgraded = compatibility.upgrade(TRANSLATOR)
    assert upgraded["optimizer"] == {"b1": 0.9, "name": "adam"}
    assert upgraded["data"]["files"] == {"train": "", "extra": []}
    assert "noise" not in upgraded
    assert "optimizer" not in compatibility.upgrade(SAGAN)


def test_a_field_that_is_there_keeps_its_value(tables):
    tables(added={"optimizer.b1": 0.5, "model.layers": 11})
    assert compatibility.upgrade(TRANSLATOR) == TRANSLATOR


def test_a_field_of_the_config_itself_is_added(tables):
    tables(added={"average_decay": 0.0})
    assert compatibility.upgrade(TRANSLATOR)["average_decay"] == 0.0


def test_a_text_is_no_group(tables):
    tables(added={"loss.smoothing": 0.1, "attention.generator.size": 3})
    assert compatibility.upgrade(SAGAN) == SAGAN


def test_a_field_of_several_groups_is_added_to_each(tables):
    tables(added={"optimizer|generator|discriminator.name": "adam"})
    assert compatibility.upgrade(TRANSLATOR)["optimizer"]["name"] == "adam"
    upgraded = compatibility.upgrade(SAGAN)
    assert upgraded["generator"] == {"b1": 0.0, "name": "adam"}
    assert upgraded["discriminator"] == SAGAN["discriminator"]
    assert upgraded["attention"] == SAGAN["attention"]  # a field called generator


@pytest.mark.parametrize("owner", ["Transformer", "Translation"])
def test_a_field_of_one_class_is_added_to_its_configs_alone(owner, tables):
    tables(added={f"{owner}: model.bias": False})
    upgraded = compatibility.upgrade(TRANSLATOR)
    assert upgraded["model"] == {"layers": 3, "bias": False}
    lstm = TRANSLATOR | {"architecture": "models.ntm:LSTM", "task": "tasks.x:Task"}
    assert compatibility.upgrade(lstm) == lstm


def test_an_added_value_is_shared_by_nobody(tables):
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
def test_a_field_is_renamed_where_it_has_its_old_name(
    old, new, settings, expected, tables
):
    tables(renamed={old: new})
    assert compatibility.upgrade(settings) == expected
    assert compatibility.upgrade(expected) == expected


def test_moved_classes_are_found_at_any_depth(tables):
    tables(moved={"models.old:A": "models.new:B"})
    settings = {"architecture": "models.old:A", "x": {"y": ["models.old:A", 2, None]}}
    upgraded = compatibility.upgrade(settings)
    assert upgraded == {
        "architecture": "models.new:B",
        "x": {"y": ["models.new:B", 2, None]},
    }


def test_fields_are_added_under_the_names_and_classes_of_today(tables):
    tables(
        moved={"models.transformer:Transformer": "models.new:Attender"},
        renamed={"model": "network"},
        added={"Attender: network.bias": False},
    )
    assert compatibility.upgrade(TRANSLATOR)["network"] == {"layers": 3, "bias": False}
