"""Checks of models and of the memory that a run needs."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn
from ml_collections import ConfigDict

from base import ranges
from base.errors import FieldError, UserError
from base.ranges import Kind
from training import encoding

MODEL = Kind("a flax.linen.Module", type)


def models(config: ConfigDict) -> Iterator[str]:
    """Yields the names of the fields that the task declares as models."""
    for name, accepted in ranges.declared(config.task.Config).items():
        if accepted is MODEL and isinstance(config.get(name), type):
            yield name


def check_models(config: ConfigDict) -> None:
    """Checks `config.model`, without the sizes that depend on the data.

    Besides ranges, a model may have rules in a method `check`.

    Raises:
        UserError: for a class that is no Flax module, or a field that it does not have
            or that is out of range.
    """
    given = config.get("model")
    for name in models(config) if isinstance(given, ConfigDict) else ():
        model = config[name]
        if not issubclass(model, nn.Module):
            raise FieldError(f"config.{name}", model.__name__, "a flax.linen.Module")
        accepted = dataclasses.fields(model)
        for field in given:
            if field not in [x.name for x in accepted]:
                raise UserError(
                    f"config.model.{field} is not a field of "
                    f"config.{name}={model.__name__}"
                )
        ranges.check(ranges.declared(model), given, "config.model.")
        if not hasattr(model, "check"):
            continue
        module = object.__new__(model)  # without the fields that depend on the data
        for field, value in given.items():
            object.__setattr__(module, field, value)
        with model_errors(config):
            module.check()


def build_model(config: ConfigDict, name: str = "architecture", **sizes: Any) -> Any:
    """Returns the model of a config, `architecture(**config.model, **sizes)`.

    Args:
        config: a config that `check_models` accepts.
        name: the field of the config with the architecture, a Flax module.
        **sizes: fields that depend on the data, such as the vocabulary size.

    Raises:
        UserError: for an architecture that lacks a size, or a field that is missing.
    """
    architecture = config[name]
    required = {
        field.name: field.default is dataclasses.MISSING is field.default_factory
        for field in dataclasses.fields(architecture)
    }
    for size in sizes:
        if size not in required:
            raise UserError(
                f"config.{name} is {architecture.__name__}: must have the field {size}"
            )
    given = {**config.model, **sizes}
    for field, is_required in required.items():
        if is_required and field not in given:
            raise UserError(
                f"config.model.{field} is missing: {architecture.__name__} needs it"
            )
    return architecture(**given)


@contextlib.contextmanager
def model_errors(config: ConfigDict) -> Iterator[None]:
    """Names the field of the config in an error of a model that is built or traced."""
    try:
        yield
    except FieldError as error:
        if error.name.startswith("config."):
            raise
        names = [name for name, _ in encoding.leaves(config)]
        ends = [name for name in names if name.split(".")[-1] == error.name]
        name = f"model.{error.name}"
        if name not in names and (ends or error.name in config):
            name = [*ends, error.name][0]
        raise FieldError(f"config.{name}", error.value, error.accepted) from error
    except AttributeError as error:
        for name in models(config):
            if isinstance(error.obj, config[name]):
                raise UserError(
                    f"config.{name} is {config[name].__name__}: must have "
                    f"{error.name}, which the task {config.task.__name__} calls"
                ) from error
        raise


def check_state(state: Any) -> None:
    """Checks that training state and gradients fit into the memory of a device.

    Args:
        state: shapes, dtypes and shardings of a `TrainState`.

    Raises:
        UserError: if they do not fit.
    """
    memory, total = device_memory(), _bytes(state) + _bytes(state.params)
    if total > memory:
        leaves = jax.tree_util.tree_leaves_with_path(state.params)
        path, parameter = max(leaves, key=lambda leaf: _bytes(leaf[1]))
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise UserError(
            f"config.model needs {bytes_text(total)} of memory for parameters, "
            f"gradients and optimizer: must be at most {bytes_text(memory)}; the "
            f"largest parameter is {name} {parameter.shape}"
        )


def check_step(step: Any) -> None:
    """Checks that a compiled training step fits into the memory of a device.

    Args:
        step: the step, a `jax.stages.Compiled`.

    Raises:
        UserError: if it does not fit.
    """
    needed, available = step_bytes(step), device_memory()
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
    """Bytes of arrays, of which a device has a shard if they have a sharding."""
    total = 0
    for x in jax.tree.leaves(tree):
        sharding = getattr(x, "sharding", None)
        shape = sharding.shard_shape(x.shape) if sharding else x.shape
        total += math.prod(shape) * x.dtype.itemsize
    return total


def bytes_text(size: int) -> str:
    """Returns a number of bytes with its unit, such as "1.5 GiB"."""
    power = min((size.bit_length() - 1) // 10, 5) if size else 0
    return f"{size / 2 ** (10 * power):.4g} {'B KiB MiB GiB TiB PiB'.split()[power]}"
