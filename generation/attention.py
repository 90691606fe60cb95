"""Attention weights of a text-to-text model in a teacher-forced pass.

Axes: S source positions; T target steps; H heads; Q queries; K keys.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from base.records import AttentionRecord, collect
from generation.search import padded_width


class Model(Protocol):
    """A Flax module called with a batch."""

    def apply(
        self, variables: Any, batch: Any, *, train: bool, mutable: Sequence[str]
    ) -> tuple[Any, Any]:
        """Returns an output and the sown collections."""


class AttentionReader:
    """Reads attention records of a model; compiles once per pair of padded widths."""

    def __init__(self, model: Model):
        """Stores the arguments; compiles on first use.

        Args:
            model: `apply(variables, {"source": [1, S], "target": [1, T]},
                train=False)` sows `base.records.AttentionRecord`s.
        """
        self._model = model
        self._jit_records = jax.jit(self._records)

    def exists(self, params: Any) -> bool:
        """Returns True if the model has attention.

        Args:
            params: the model's parameters, or their shapes.
        """
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
        batch = {
            name: np.pad([ids], ((0, 0), (0, padded_width(len(ids)) - len(ids))))
            for name, ids in (("source", source), ("target", target))
        }
        return jax.device_get(self._jit_records(params, batch))

    def _records(
        self, params: Any, batch: dict[str, jax.Array]
    ) -> list[AttentionRecord]:
        _, sown = self._model.apply(
            {"params": params}, batch, train=False, mutable=["attention"]
        )
        return collect(sown, AttentionRecord)
