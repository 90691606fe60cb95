"""Log-likelihood of target sequences under a model.

Axes: B batch; T steps; W vocabulary.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from base import spread


class Model(Protocol):
    """A Flax module called with a batch."""

    def apply(self, variables: Any, batch: Any, *, train: bool) -> jax.Array:
        """Returns logits [B, T, W]."""


class Likelihood:
    """Negative log-likelihood of targets; compiled once per shape."""

    def __init__(self, model: Model, *, pad: int = 0):
        """Stores the arguments; compiles on first use.

        Args:
            model: `apply(variables, batch, train=False) -> logits [B, T, W]`.
            pad: the id of padding, which has no effect.
        """
        self._model, self._pad = model, pad
        self._jit_nats = jax.jit(self._nats)

    def nats(self, params: Any, batches: Iterable[dict[str, np.ndarray]]) -> float:
        """Returns the negative log-likelihood of all targets, in nats.

        Args:
            params: the model's parameters.
            batches: inputs of the model, including `target` [B, T] int32.
        """

        def batch_nats(batch: dict[str, np.ndarray]) -> float:
            nats = self._jit_nats(params, batch)
            return float(np.asarray(nats, np.float64).sum())

        return sum(spread.each(batch_nats, batches))

    def _nats(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """Returns the sum over steps [B]; 0 for rows of padding."""
        logits = self._model.apply({"params": params}, batch, train=False)
        target = batch["target"]
        nats = optax.softmax_cross_entropy_with_integer_labels(logits, target)
        return jnp.sum(nats * (target != self._pad), axis=-1)
