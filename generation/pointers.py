"""Decoding of pointer networks, for instances of different sizes.

Id 0 is the end, the start and the padding; id k points at input k - 1.

Axes: B instances; S inputs, padded; F numbers of an input; T pointers.
"""

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
    ):
        """Stores the arguments; compiles on first use.

        Args:
            model: see `Model`; its `encode` takes `inputs` [B, S, F] and `lengths` [B].
            batch_size: number of instances decoded together.
            steps: (number of inputs) -> maximum number of pointers, the end included.
            constraint: as `visit_once` or `triangles` of `generation.constraints`.
        """
        self._unconstrained = Generator(model, bos=_END, eos=_END, pad=_END)

        def constrained(step: Step, carry: Carry, source: Any, rows: int) -> Any:
            mask = jnp.arange(source["inputs"].shape[1]) < source["lengths"][:, None]
            return constraint(step, carry, mask, rows)

        self._constrained = Generator(
            model, constrain=constrained, bos=_END, eos=_END, pad=_END
        )
        self._batch_size, self._steps = batch_size, steps

    def answers(
        self,
        params: Any,
        batch: Mapping[str, np.ndarray],
        search: Search,
        *,
        constrain: bool,
    ) -> list[list[Hypothesis]]:
        """Returns the answers of each instance, best first.

        Args:
            params: the model's parameters.
            batch: `inputs` [B, S, F] and `lengths` [B]; other keys are ignored.
            search: checked options.
            constrain: whether to constrain the answers.
        """
        inputs, lengths = batch["inputs"], batch["lengths"]
        batches = array_batches(
            len(lengths),
            self._batch_size,
            lambda i: {"inputs": inputs[i], "lengths": lengths[i]},
            length=self._steps(inputs.shape[1]),
            limit=lambda i: self._steps(lengths[i]),
        )
        generator = self._constrained if constrain else self._unconstrained
        return generator.generate(params, batches, search)
