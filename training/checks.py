"""Checks of configs and input lines, shared by tasks."""

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn
from ml_collections import ConfigDict

from base import ranges
from base.errors import FieldError, UserError, one_line
from base.ranges import Kind, Range
from training import configuration, optimizers

Ranges = Mapping[str, Range | Kind]  # by the name of the field, such as "data.tokens"
GROUP = Kind("a group of fields", ConfigDict)
MODEL = Kind("a flax.linen.Module", type)
# Fields of a task with one model and one optimizer.
SUPERVISED: Ranges = {"architecture": MODEL, "model": GROUP, "optimizer": GROUP}


def range_tables(config: ConfigDict) -> Iterator[Ranges]:
    """Yields the ranges of the loop, the optimizers, the model and the task."""
    yield configuration.RANGES
    for group, fields in optimizers.groups(config):
        yield {
            f"{group}.{name}": x
            for name, x in optimizers.RANGES.items()
            if name in fields
        }
    fields = config.get("model")
    if isinstance(config.get("architecture"), type) and isinstance(fields, ConfigDict):
        stated = ranges.declared(config.architecture).items()
        yield {f"model.{name}": x for name, x in stated if name in fields}
    yield config.task.ranges


def check_ranges(config: ConfigDict) -> None:
    """Checks all fields against their ranges.

    Raises:
        UserError: for a field that is out of range, a missing field whose range the
            task declares, or another number in one of its groups.
    """
    leaves, stated = dict(configuration.leaves(config)), set[str]()
    fields = dict(config.items()) | leaves
    for table in range_tables(config):
        ranges.check(table, fields, "config.")
        stated |= set(table)
    for name, accepted in config.task.ranges.items():
        if name not in fields:
            raise UserError(f"config.{name} is missing: must be {accepted.accepted}")
    # `build_model` and the optimizers check their own groups, with better advice.
    groups = {name.rpartition(".")[0] for name in config.task.ranges} - {""}
    for name, value in leaves.items():
        checked = name in stated or name.rpartition(".")[0] not in groups
        if not checked and ranges.has_number(value):
            near = difflib.get_close_matches(name, stated, n=1)
            hint = f"did you mean config.{near[0]}?" if near else "remove it"
            raise UserError(
                f"config.{name} is unknown: {config.task.__name__} does not declare "
                f"it in `ranges`; {hint}"
            )
        if name not in stated and not ranges.is_finite(value):
            raise FieldError(f"config.{name}", value, "finite")


def check_architectures(config: ConfigDict, methods: Iterable[str]) -> None:
    """Checks that the architectures of a config are models of its task.

    Args:
        config: the config.
        methods: names of the methods and properties that the task calls.

    Raises:
        UserError: for a class that is no Flax module, or lacks a method.
    """
    for field in ("architecture", "discriminator_architecture"):
        if field not in config:
            continue
        model = config[field]
        if not (isinstance(model, type) and issubclass(model, nn.Module)):
            text = model.__name__ if isinstance(model, type) else one_line(model)
            raise UserError(f"config.{field} is {text}: must be a flax.linen.Module")
        if absent := [method for method in methods if not hasattr(model, method)]:
            raise UserError(
                f"config.{field} is {model.__name__}: must have {', '.join(absent)}, "
                f"which the task {config.task.__name__} calls"
            )


def build_model(
    architecture: type,
    fields: Mapping[str, Any],
    *,
    name: str = "architecture",
    **sizes: Any,
) -> Any:
    """Returns `architecture(**fields, **sizes)`.

    Args:
        architecture: a Flax module.
        fields: `config.model`.
        name: the field of the config with the architecture.
        **sizes: fields that depend on the data, such as the vocabulary size.

    Raises:
        UserError: for an architecture that lacks a size, or a field that is missing or
            that the architecture does not have.
    """
    required = {
        field.name: field.default is dataclasses.MISSING is field.default_factory
        for field in dataclasses.fields(architecture)
    }
    for size in sizes:
        if size not in required:
            raise UserError(
                f"config.{name} is {architecture.__name__}: must have the field {size}"
            )
    for field in fields:
        if field not in required:
            raise UserError(
                f"config.model.{field} is not a field of {architecture.__name__}"
            )
    given = {**fields, **sizes}
    for field, is_required in required.items():
        if is_required and field not in given:
            raise UserError(
                f"config.model.{field} is missing: {architecture.__name__} needs it"
            )
    return architecture(**given)


def check_model(
    init: Callable[[jax.Array], Any], names: Mapping[str, str] | None = None
) -> Any:
    """Checks the fields of a model by initialising it with abstract values.

    Args:
        init: a function of a PRNG key, such as `objective.init`.
        names: config field by model field, for fields outside `config.model`.

    Returns:
        The shapes and dtypes of `init(rng)`.

    Raises:
        UserError: for a field that the model rejects.
    """
    try:
        return jax.eval_shape(init, jax.random.key(0))
    except FieldError as error:
        name = (names or {}).get(error.name, f"config.model.{error.name}")
        raise FieldError(name, error.value, error.accepted) from error


def check_state(config: ConfigDict, state: Any, memory: float | None = None) -> None:
    """Checks that training state and gradients fit into memory.

    Args:
        config: the config.
        state: shapes and dtypes of a `TrainState`, from `check_model`.
        memory: bytes of a device; None for those of this machine.

    Raises:
        UserError: if they do not fit.
    """
    memory, sharded = memory or device_memory(), 1
    if "mesh" in config:
        data, sharded = config.mesh.data, config.mesh.fsdp
        sharded = jax.device_count() // max(1, data) if sharded < 1 else sharded
    total = (_bytes(state) + _bytes(state.params)) // max(1, sharded)
    if total > memory:
        leaves = jax.tree_util.tree_leaves_with_path(state.params)
        path, parameter = max(leaves, key=lambda leaf: _bytes(leaf[1]))
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise UserError(
            f"config.model needs {bytes_text(total)} of memory for parameters, "
            f"gradients and optimizer: must be at most {bytes_text(int(memory))}; the "
            f"largest parameter is {name} {parameter.shape}"
        )


def check_step(step: Any, available: int | None = None) -> None:
    """Checks that a compiled training step fits into the memory of a device.

    Args:
        step: the step, a `jax.stages.Compiled`.
        available: bytes of a device; None for those of this machine.

    Raises:
        UserError: if it does not fit.
    """
    needed, available = step_bytes(step), available or device_memory()
    if needed is not None and needed > available:
        raise UserError(
            f"a training step needs {bytes_text(needed)} of memory on each device: "
            f"must be at most {bytes_text(available)}; reduce sizes of config.data or "
            "config.model, use more devices (config.mesh), or try it with "
            "--memory_check=false"
        )


def step_bytes(step: Any) -> int | None:
    """Returns the bytes of a device that a compiled step needs, as XLA states them.

    Parameters, optimizer state, batch, results, and temporary arrays such as
    activations; None if the backend does not state them.
    """
    x = step.memory_analysis()
    if x is None:
        return None
    results = x.output_size_in_bytes - x.alias_size_in_bytes
    return x.argument_size_in_bytes + x.temp_size_in_bytes + results


def device_memory() -> int:
    """Returns the bytes of memory of a device; on a CPU, its share of the machine's."""
    limits = [
        stats["bytes_limit"]
        for device in jax.local_devices()
        if (stats := device.memory_stats()) and "bytes_limit" in stats
    ]
    return min(limits) if limits else _machine_memory() // jax.local_device_count()


def _machine_memory() -> int:
    """Physical memory, or the limit of the control group if it is lower."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
        except (OSError, ValueError):  # another system, or no limit
            continue
    return min(limits)


def _bytes(tree: Any) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def bytes_text(size: int) -> str:
    """Returns a number of bytes with its unit, such as "1.5 GiB"."""
    power = min((size.bit_length() - 1) // 10, 5) if size else 0
    return f"{size / 2 ** (10 * power):.4g} {'B KiB MiB GiB TiB PiB'.split()[power]}"


def choice(name: str, value: Any, accepted: Iterable[Any]) -> None:
    """Raises a UserError for a value of `config.<name>` that is not accepted."""
    accepted = list(accepted)
    if value not in accepted:
        names = ", ".join(map(str, accepted))
        raise UserError(f"config.{name} is {value!r}: must be one of {names}")


def unread_files(config: ConfigDict, fields: str, needed: str) -> None:
    """Raises a UserError for a file that is named but not read.

    Args:
        config: a config that does not read the files.
        fields: field or group of fields with their names, such as "data.files".
        needed: the setting that reads them, such as "data.source=files".
    """
    for name, value in configuration.leaves(config):
        if value and f"{name}.".startswith(f"{fields}."):
            raise UserError(
                f"config.{name} is {one_line(value)}: needs config.{needed}"
            )


def ordered(config: ConfigDict, minimum: str, maximum: str) -> None:
    """Raises a UserError if the field `minimum` is above the field `maximum`."""
    fields = dict(configuration.leaves(config))
    if fields[minimum] > fields[maximum]:
        accepted = f"at least config.{minimum}={fields[minimum]}"
        raise FieldError(f"config.{maximum}", fields[maximum], accepted)


def unfinished_phase(config: ConfigDict, field: str, effect: str) -> list[str]:
    """Returns a line if the phase of `config.loss.FIELD` steps lasts until the end.

    Args:
        config: the config.
        field: name of the number of steps in `config.loss`.
        effect: the end of the line.
    """
    phase, steps = config.loss[field], config.train_steps
    if phase < steps:
        return []
    return [
        f"config.loss.{field} is {phase}, which is not less than "
        f"config.train_steps={steps}: {effect}"
    ]
