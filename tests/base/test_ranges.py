"""Tests of ranges: every number of every config and option has one, and is checked."""

import dataclasses
import importlib
import math
import typing
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict
from smoke import ROOT

from base import fields, options, ranges
from base.errors import FieldError, UserError
from base.ranges import FLAG, FRACTION, POSITIVE, SIZE, Range
from training import checks, configuration, optimizers, reference
from training.task import Task

CONFIGS = sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem[0] != "_")


def variants(name):
    """Returns the variants of a config, by name."""
    module = importlib.import_module(f"configs.{name}")
    configs = {f"{name}:{x}": module.get_config(x) for x in module.VARIANTS}
    if "captioning:coco" in configs:  # needs the user's files, like the next
        for files in configs["captioning:coco"].data.files.values():
            files.captions, files.images = "captions.json", "images"
    if "sagan:imagenet128" in configs:
        configs["sagan:imagenet128"].data.folder = "images"
    return configs


def kind(config):
    """The classes and optimizers of a config, on which its ranges depend."""
    names = [f"{g.name}-{g.schedule}" for _, g in optimizers.groups(config)]
    return "-".join([config.task.__name__, config.architecture.__name__, *names])


VARIANTS = {x: config for name in CONFIGS for x, config in variants(name).items()}
KINDS = {kind(config): name for name, config in reversed(VARIANTS.items())}
TASKS = sorted({c.task for c in VARIANTS.values()}, key=lambda task: task.__name__)


def stated(declared, prefix=""):
    """The ranges that a dataclass and the groups in it declare, by field."""
    accepted, hints = dict(ranges.declared(declared)), typing.get_type_hints(declared)
    for field in dataclasses.fields(declared):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from stated(hints[field.name], f"{prefix}{field.name}.")
        elif hints[field.name] is not ConfigDict:
            yield prefix + field.name, accepted[field.name]


def all_stated(config):
    """The ranges of the fields of a config."""
    table = {n: x for n, x in stated(config.task.Config) if n in fields_of(config)}
    groups = {name: optimizers.RANGES for name, _ in optimizers.groups(config)}
    groups["model"] = ranges.declared(config.architecture)
    for group, accepted in groups.items():
        table |= {f"{group}.{n}": accepted[n] for n in config[group] if n in accepted}
    return table


def fields_of(config):
    return dict(configuration.leaves(config))


def outside(accepted):
    """Values that a range or a kind rejects."""
    if not isinstance(accepted, Range):
        values = [1, 0.0, "true", True, None, int, ("a", 3)]
        return [value for value in values if not accepted.holds(value)]
    step = 1 if accepted.whole else 1e-6 * (accepted.max - accepted.min)
    below, above = accepted.min - step, accepted.max + step
    values = [below, above, math.nan, math.inf, -math.inf, 1e30, "5"]
    values += [accepted.min] * accepted.open_min + [accepted.max] * accepted.open_max
    values += [accepted.min + 0.5, -(10**400), True] * accepted.whole
    if accepted.listed:  # the first element alone is out of range
        return [3, "5,6", *((value,) for value in values)]
    return [*values, None, (accepted.max,)]


def changed(config, field, value):
    config = config.copy_and_resolve_references()
    *groups, last = field.split(".")
    with config.ignore_type():
        group = config[".".join(groups)] if groups else config
        group[last] = value
    return config


GENERAL = {field for field, _ in stated(configuration.Config)}


def cases():
    """Configs with a field and its range: of a task, a model, and once the others."""
    tried = set()
    for name in KINDS.values():
        config = VARIANTS[name]
        groups = {group for group, _ in optimizers.groups(config)}
        for field, accepted in all_stated(config).items():
            shared = field in GENERAL or field.partition(".")[0] in groups
            case = field, accepted, shared or (config.task, config.architecture)
            if case not in tried:
                yield config, field, accepted
            tried.add(case)


def test_a_value_out_of_range_is_refused_in_one_line():
    refused = 0
    for config, field, accepted in cases():
        for value in outside(accepted):
            with pytest.raises(UserError) as error:
                configuration.check(changed(config, field, value), Task)
            line = str(error.value)
            assert line.startswith(f"config.{field} is ") and ": must be " in line
            assert "\n" not in line
            refused += 1
    assert refused > 1000


def test_a_bound_is_accepted_unless_it_is_open():
    tables = [all_stated(VARIANTS[name]) for name in KINDS.values()]
    for accepted in {x for table in tables for x in table.values()}:
        if isinstance(accepted, Range):
            single = dataclasses.replace(accepted, listed=False)
            assert single.holds(accepted.min) != accepted.open_min
            assert single.holds(accepted.max) != accepted.open_max


@pytest.mark.parametrize("value", [7, 0.5, False, (5, 7), "text"])
def test_a_field_that_nothing_declares_is_refused(value):
    config = VARIANTS["luong_nmt:"].copy_and_resolve_references()
    config.data.batchsize = value
    with pytest.raises(UserError, match="^config.data.batchsize is unknown: did you"):
        configuration.check(config, Task)


DECLARED = {x for task in TASKS for x in (task.Options, task.EvaluationOptions)}


@pytest.mark.parametrize("declared", sorted(DECLARED, key=str))
def test_every_option_has_a_meaning_and_every_number_a_range(declared):
    meanings = reference.meanings(declared)
    for field in dataclasses.fields(declared):
        assert meanings[field.name]
        accepted = ranges.declared(declared).get(field.name)
        if typing.get_type_hints(declared)[field.name] in (str, str | None, bool):
            continue
        assert isinstance(accepted, Range)
        texts = ["nan", "inf", "-inf", "1e30", "x", "", str(10**12)]
        texts += [str(accepted.min - 1), str(accepted.max + 1)]
        for text in texts:
            owner = type("Task", (), {"Options": declared})()
            with pytest.raises(UserError) as error:
                options.parse(owner, "Options", {field.name: text})
            line = str(error.value)
            assert line.startswith(f"--{field.name} is ") and ": must be " in line
        with pytest.raises(FieldError, match=f"^{field.name} is .*: must be "):
            declared(**{field.name: accepted.max + 1})


def test_a_missing_field_is_named():
    config = VARIANTS["kernel_regression:"].copy_and_resolve_references()
    del config.data.points
    with pytest.raises(UserError, match="^config.data.points is missing: must be at"):
        configuration.check(config, Task)


def test_a_subclass_keeps_the_ranges_of_its_base():
    class Base:
        width: Annotated[int, SIZE] = 3
        rate: Annotated[float, FRACTION] = 0.5
        open: bool = True

    class Other(Base):
        width: int = 5
        rate: Annotated[float, POSITIVE] = 0.5

    assert ranges.declared(Other) == {"width": SIZE, "rate": POSITIVE, "open": FLAG}


def test_a_range_names_both_bounds():
    assert SIZE.accepted == "at least 1 and at most 1,000,000"
    assert FRACTION.accepted == "at least 0 and below 1"
    listed = "a list of whole numbers, each at least 1 and at most 1,000,000"
    assert SIZE.each().accepted == listed


def test_numpy_and_jax_accept_every_seed():
    for seed in (0, 7, 2**31, 2**32 - 1):
        assert ranges.SEED.holds(seed)
        np.random.default_rng((seed, 3))
        data = jax.random.key_data(jax.random.key(seed))
        assert int(data[0]) * 2**32 + int(data[1]) == seed


# --- estimates of memory


@pytest.mark.parametrize("name", CONFIGS)
def test_every_variant_is_accepted(name):
    for config in variants(name).values():
        configuration.check(config, Task)
        assert fields.defaults(config.task.Config)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    params: dict
    moments: dict


@pytest.fixture
def check_state(monkeypatch):
    """Checks a state on a device with a number of bytes."""

    def check(state, memory):
        monkeypatch.setattr(checks, "device_memory", lambda: memory)
        checks.check_state(state)

    return check


def test_a_state_that_does_not_fit_is_refused_with_its_largest_parameter(check_state):
    params = {"in": jnp.zeros((3, 5)), "out": {"kernel": jnp.zeros((8, 44))}}
    parameters = 4 * (3 * 5 + 8 * 44)
    state = State(params, params)
    check_state(state, memory=3 * parameters)
    with pytest.raises(UserError) as error:
        check_state(state, memory=3 * parameters - 1)
    line = str(error.value)
    assert line.startswith("config.model needs ") and "must be at most" in line
    assert line.endswith("the largest parameter is out/kernel (8, 44)")


@pytest.mark.parametrize("axes", [("fsdp",), ("tensor",), (("fsdp", "tensor"),)])
def test_a_device_needs_memory_for_its_shards_of_a_state(axes, check_state):
    mesh = AbstractMesh((2, 4), ("fsdp", "tensor"))
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    kernel = jax.ShapeDtypeStruct((8, 44), jnp.float32, sharding=sharding)
    state = State({"kernel": kernel, "bias": jnp.zeros(5)}, {})
    parts = {"fsdp": 2, "tensor": 4, ("fsdp", "tensor"): 8}[axes[0]]
    needed = 2 * 4 * (8 * 44 // parts + 5)  # parameters and gradients
    check_state(state, memory=needed)
    with pytest.raises(UserError, match="config.model needs"):
        check_state(state, memory=needed - 1)


def test_the_memory_of_this_machine_is_known():
    assert 2**28 < checks.device_memory() < 2**45
