"""Teacher-forced passes of an encoder-decoder: attention weights, log-likelihood.

Axes: B batch; S source positions; T target steps; H heads; Q queries; K keys; W
vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from base import spread
from base.records import DETAILS, AttentionRecord, records_of
from generation.search import Hypothesis, padded_width
from generation.types import Module


class AttentionReader:
    """Reads attention records of a model; compiles once per pair of padded widths."""

    def __init__(self, model: Module):
        """Stores the model; compiles on first use.

        Args:
            model: `apply(variables, batch, train=False)` sows
                `base.records.AttentionRecord`s; `batch` has `target` [1, T], 0 at
                padding.
        """
        self._model = model
        self._jit_records = jax.jit(self._records)

    def exists(self, params: Any) -> bool:
        """Returns True if the model, of these parameters or shapes, has attention."""
        blank = jnp.ones((1, 2), jnp.int32)
        batch = {"source": blank, "target": blank}
        return bool(jax.eval_shape(self._records, params, batch))

    def records(
        self, params: Any, source: Sequence[int], target: Sequence[int]
    ) -> list[AttentionRecord]:
        """Returns the attention of a teacher-forced pass.

        Args:
            params: the model's parameters.
            source: source token ids.
            target: target token ids.

        Returns:
            Records with numpy weights [1, H, Q, K], padded in Q and K.
        """
        batch = {"source": _padded(source), "target": _padded(target)}
        return jax.device_get(self._jit_records(params, batch))

    def with_records(
        self,
        params: Any,
        inputs: Callable[[int], dict[str, Any]],
        ranked: Sequence[Sequence[Hypothesis]],
    ) -> list[list[Hypothesis]]:
        """Returns hypotheses, the best one of each input with its `records`.

        Args:
            params: the model's parameters.
            inputs: `inputs(i)` -> input i as a batch of the model without `target`, a
                dict of [1, ...] arrays.
            ranked: hypotheses of each input, best first.
        """
        results = []
        for number, (best, *others) in enumerate(ranked):
            batch = inputs(number) | {"target": _padded(best.ids)}
            records = jax.device_get(self._jit_records(params, batch))
            results.append([best._replace(records=records), *others])
        return results

    def _records(
        self, params: Any, batch: dict[str, jax.Array]
    ) -> list[AttentionRecord]:
        _, sown = self._model.apply(
            {"params": params}, batch, train=False, mutable=["attention", DETAILS]
        )
        return records_of(sown, AttentionRecord)


def _padded(ids: Sequence[int]) -> np.ndarray:
    """Token ids as a batch [1, T]."""
    return np.pad([ids], ((0, 0), (0, padded_width(len(ids)) - len(ids))))


class Likelihood:
    """Negative log-likelihood of targets; compiled once per shape."""

    def __init__(self, model: Module):
        """Stores the model; compiles on first use.

        Args:
            model: `apply(variables, batch, train=False) -> logits [B, T, W]`.
        """
        self._model = model
        self._jit_nats = jax.jit(self._nats)

    def nats(self, params: Any, batches: Iterable[dict[str, np.ndarray]]) -> float:
        """Returns the negative log-likelihood of all targets, in nats.

        Args:
            params: the model's parameters.
            batches: inputs of the model, including `target` [B, T] int32, 0 at padding.
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
        return jnp.sum(nats * (target != 0), axis=-1)
