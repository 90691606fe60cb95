"""Checks of configs and input lines, shared by tasks."""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from errors import FieldError, UserError


def build_model(architecture: type, fields: Mapping[str, Any], **sizes: Any) -> Any:
    """Returns `architecture(**fields, **sizes)`.

    Args:
        architecture: a Flax module.
        fields: `config.model`.
        **sizes: fields that depend on the data, such as the vocabulary size.

    Raises:
        UserError: for a field that the architecture does not have.
    """
    accepted = {field.name for field in dataclasses.fields(architecture)}
    for name in fields:
        if name not in accepted:
            raise UserError(
                f"config.model.{name} is not a field of {architecture.__name__}"
            )
    return architecture(**fields, **sizes)


def check_model(
    init: Callable[[jax.Array], Any], names: Mapping[str, str] | None = None
) -> None:
    """Checks the fields of a model by initialising it with abstract values.

    Args:
        init: a function of a PRNG key, such as `objective.init`.
        names: config field by model field, for fields outside `config.model`.

    Raises:
        UserError: for a field that the model rejects.
    """
    try:
        jax.eval_shape(init, jax.random.key(0))
    except FieldError as error:
        name = (names or {}).get(error.name, f"config.model.{error.name}")
        raise UserError(
            f"{name} is {error.value!r}: must be {error.accepted}"
        ) from error


def at_least(config: ConfigDict, minimums: Mapping[str, float]) -> None:
    """Checks fields against their minimums.

    Args:
        config: the config.
        minimums: minimum by field, such as {"data.batch_size": 1}.

    Raises:
        UserError: for the first field below its minimum.
    """
    for name, minimum in minimums.items():
        group, _, field = name.rpartition(".")
        value = (config[group] if group else config)[field]
        if not value >= minimum:
            raise UserError(f"config.{name} is {value}: must be at least {minimum}")


def choice(name: str, value: Any, accepted: Iterable[Any]) -> None:
    """Raises a UserError for a value of `config.<name>` that is not accepted."""
    accepted = list(accepted)
    if value not in accepted:
        names = ", ".join(map(str, accepted))
        raise UserError(f"config.{name} is {value!r}: must be one of {names}")


def average(config: ConfigDict) -> None:
    """Raises a UserError if more checkpoints are averaged than are kept."""
    keep, averaged = config.checkpoints.keep, config.evaluation.average
    if averaged > keep:
        raise UserError(
            f"config.evaluation.average is {averaged}, but only {keep} checkpoints "
            "are kept (config.checkpoints.keep)"
        )


def rule(config: ConfigDict, name: str, holds: bool, accepted: str) -> None:
    """Raises a UserError about `config.<name>` unless its rule holds.

    Args:
        config: the config.
        name: name of the field, such as "data.length".
        holds: whether the value is accepted.
        accepted: the accepted values, such as "at least 0 and finite".
    """
    if not holds:
        group, _, field = name.rpartition(".")
        value = (config[group] if group else config)[field]
        raise UserError(str(FieldError(f"config.{name}", value, accepted)))


def warn_out_of_range(line: int, size: int, minimum: int, maximum: int, unit: str):
    """Warns on standard error about an input size outside the training range.

    Args:
        line: line number of the input.
        size: size of the input.
        minimum: minimum size in training.
        maximum: maximum size in training.
        unit: words between the size and the range, such as "inputs: the model was
            trained on".
    """
    if not minimum <= size <= maximum:
        print(
            f"warning: line {line} has {size} {unit} {minimum} to {maximum}",
            file=sys.stderr,
        )
