"""Variants: named updates of a config."""

import copy
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict


def apply(
    config: ConfigDict, variants: Mapping[str, Mapping[str, Any]], variant: str
) -> ConfigDict:
    """Returns `config` with the changed fields of a variant.

    Raises:
        ValueError: for an unknown variant.
    """
    if variant not in variants:
        names = ", ".join(filter(None, variants))
        raise ValueError(f"{variant} is unknown: the variants are {names}")
    return update(config, variants[variant])


def update(config: ConfigDict, fields: Mapping[str, Any]) -> ConfigDict:
    """Sets fields, such as {"model.hidden": 128}; returns `config`."""
    for name, value in fields.items():
        group, _, field = name.rpartition(".")
        (config[group] if group else config)[field] = copy.deepcopy(value)
    return config


def steps(count: int) -> dict[str, int]:
    """Returns the fields for `count` training steps with ten evaluations."""
    tenth = count // 10
    return {"train_steps": count, "eval_every": tenth, "save_every": tenth}
