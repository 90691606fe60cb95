"""How a config gets the fields of its variant."""

import copy
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict


def apply(
    config: ConfigDict, variants: Mapping[str, Mapping[str, Any]], variant: str
) -> ConfigDict:
    """Returns `config` with the fields that a variant changes.

    Raises:
        ValueError: for a variant that there is not.
    """
    if variant not in variants:
        raise ValueError(f"{variant} is none of {', '.join(filter(None, variants))}")
    return update(config, variants[variant])


def update(config: ConfigDict, fields: Mapping[str, Any]) -> ConfigDict:
    """Returns `config` with fields such as {"model.hidden": 128}."""
    for name, value in fields.items():
        group, _, field = name.rpartition(".")
        (config[group] if group else config)[field] = copy.deepcopy(value)
    return config


def steps(count: int) -> dict[str, int]:
    """Returns the fields of a training of this many steps, scored ten times."""
    tenth = count // 10
    return {"train_steps": count, "eval_every": tenth, "save_every": tenth}
