"""What tasks share in which a hard alignment is learned by REINFORCE.

Xu et al. (2015), section 4.1. A model sows `log_probability` and `entropy` [B, ..., T]
of what it drew into the collection "reinforce"; the reward is the task's matter.

Axes: B rows, T target steps.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util
from ml_collections import ConfigDict

from attention.alignments import update_baseline
from training.state import TrainState
from training.task import Metrics

_ALIGNMENTS = ("alignment", "cross_alignment")


def start_baseline(state: TrainState, model: ConfigDict) -> TrainState:
    """Gives the state a baseline of 0 if `config.model` has a hard alignment."""
    if any(name in model and model[name] == "hard" for name in _ALIGNMENTS):
        return state.replace(baseline=jnp.zeros(()))
    return state


def move_baseline(state: TrainState, metrics: Metrics) -> TrainState:
    """Moves the baseline, where there is one, towards the batch's mean `reward`."""
    if state.baseline is None:
        return state
    total, count = metrics["reward"]
    mean = total / jnp.maximum(count, 1)
    return state.replace(baseline=update_baseline(state.baseline, mean))


def by_step(sown: Any) -> dict[str, jax.Array]:
    """Adds up what layers [B, ..., T] have sown, by name: [B, T] each."""
    totals: dict[str, jax.Array] = {}
    for path, (found,) in traverse_util.flatten_dict(sown).items():
        found = found.sum(tuple(range(1, found.ndim - 1)))
        totals[path[-1]] = totals.get(path[-1], 0) + found
    return totals
