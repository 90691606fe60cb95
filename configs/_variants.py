"""Variants: named updates of a config."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from training.configuration import defaults
from training.optimizers import adam

# Training of the variants `smoke`, of a model with a constant rate or a cosine.
SMOKE = {"train_steps": 6, "eval_every": 3, "save_every": 2, "log_every": 2}
SMOKE_COSINE = SMOKE | {"optimizer.warmup": 2, "optimizer.decay_steps": 6}


def config_maker(
    task: type, architecture: type, variants: Mapping[str, Mapping[str, Any]]
) -> Callable[..., ConfigDict]:
    """Returns the function `get_config` of a config file.

    Args:
        task: a subclass of `training.task.Task`.
        architecture: a Flax module.
        variants: fields by variant, such as {"model.hidden": 128}; those of "", the
            default, are also those of every other variant, unless it changes them.
    """

    def get_config(variant: str = "") -> ConfigDict:
        """Returns the config of a variant; "" is the default."""
        if variant not in variants:
            names = ", ".join(filter(None, variants))
            raise ValueError(f"{variant} is unknown: the variants are {names}")
        config = defaults(task, architecture)
        for name, value in (*variants[""].items(), *variants[variant].items()):
            group, _, field = name.rpartition(".")
            (config[group] if group else config)[field] = copy.deepcopy(value)
        return config

    return get_config


def steps(count: int) -> dict[str, int]:
    """Returns the fields for `count` training steps with ten evaluations."""
    tenth = count // 10
    return {"train_steps": count, "eval_every": tenth, "save_every": tenth}


def cosine_steps(count: int) -> dict[str, int]:
    """Returns the fields for `count` steps, with a cosine that reaches 0 at the end."""
    return steps(count) | {"optimizer.decay_steps": count}


def cosine(rate: float, count: int, *, warmup: int, clip: float) -> dict[str, Any]:
    """Returns the fields for Adam with a cosine, and `steps`.

    Args:
        rate: maximum learning rate.
        count: number of training steps; the rate is 0 after the last.
        warmup: steps in which the rate rises to its maximum.
        clip: maximum norm of the gradient.
    """
    schedule = {"schedule": "warmup_cosine", "warmup": warmup, "decay_steps": count}
    return {"optimizer": adam(rate, **schedule, clip=clip)} | steps(count)
