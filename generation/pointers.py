"""Decoding of pointer networks, for instances of different sizes.

Id 0 is the end, the start and the padding; id k points at input k - 1.

Axes: B instances; S inputs, padded; F numbers of an input; T pointers.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from generation.constraints import Constraint
from generation.search import Generator, Hypothesis, Model, Search, array_batches
from generation.types import Carry, Step

_END = 0


class PointerSearch:
    """Search for pointer sequences, optionally constrained."""

    def __init__(
        self,
        model: Model,
        *,
        batch_size: int,
        steps: Callable[[int], int],
        constraint: Constraint,
        constrain: bool,
    ):
        """Stores the arguments; compiles on first use.

        Args:
            model: see `Model`; its `encode` takes `inputs` [B, S, F] and `lengths` [B].
            batch_size: number of instances decoded together.
            steps: (number of inputs) -> maximum number of pointers, the end included.
            constraint: as `visit_once` or `triangles` of `generation.constraints`.
            constrain: default of the argument `constrain` of `answers`.
        """
        self._unconstrained = Generator(model, bos=_END, eos=_END, pad=_END)

        def constrained(step: Step, carry: Carry, source: Any, rows: int) -> Any:
            mask = jnp.arange(source["inputs"].shape[1]) < source["lengths"][:, None]
            return constraint(step, carry, mask, rows)

        self._constrained = Generator(
            model, constrain=constrained, bos=_END, eos=_END, pad=_END
        )
        self._batch_size, self._steps = batch_size, steps
        self._constrain = constrain

    def answers(
        self,
        params: Any,
        batch: Mapping[str, np.ndarray],
        search: Search,
        *,
        constrain: bool | None = None,
        keep_weights: bool = False,
    ) -> list[list[Hypothesis]]:
        """Returns the answers of each instance, best first.

        Args:
            params: the model's parameters.
            batch: `inputs` [B, S, F] and `lengths` [B]; other keys are ignored.
            search: checked options.
            constrain: whether to constrain the answers; None for the default.
            keep_weights: whether to return attention weights [T, S + 1], which the
                constraint does not change.
        """
        inputs, lengths = batch["inputs"], batch["lengths"]
        batches = array_batches(
            len(lengths),
            self._batch_size,
            lambda i: {"inputs": inputs[i], "lengths": lengths[i]},
            length=self._steps(inputs.shape[1]),
            limit=lambda i: self._steps(lengths[i]),
        )
        if constrain is None:
            constrain = self._constrain
        generator = self._constrained if constrain else self._unconstrained
        return generator.generate(params, batches, search, keep_weights=keep_weights)

    def tokens(
        self,
        params: Any,
        batch: Mapping[str, np.ndarray],
        search: Search,
        *,
        constrain: bool | None = None,
    ) -> np.ndarray:
        """Returns the ids of the best answers [B, T]; see `answers`."""
        answers = self.answers(params, batch, search, constrain=constrain)
        ids = (best.ids for best, *_ in answers)
        return np.array([*itertools.zip_longest(*ids, fillvalue=_END)]).T

    def attends(self, params: Any, batch: Any) -> bool:
        """Returns True if the model has attention; see `Generator.attends`."""
        return self._unconstrained.attends(params, batch)
