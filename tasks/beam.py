"""What tasks share whose answers are found by beam search."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from errors import UserError
from generation.types import Carry, Step

_WIDEST = 1000  # beyond it memory ends without a word


def check_beam(beam: int | None, default: int) -> int:
    """Returns the width of a search, or where it is None the default.

    Raises:
        UserError: for a width that is out of range.
    """
    beam = default if beam is None else beam
    if not 1 <= beam <= _WIDEST:
        raise UserError(f"beam is {beam}: must be 1 to {_WIDEST}")
    return beam


def check_n_best(n_best: int, beam: int) -> None:
    """Raises a UserError for more answers than a search of this width finds."""
    if not 1 <= n_best <= beam:
        raise UserError(
            f"n_best is {n_best}: must be from 1 to the beam, which is {beam} "
            "(--beam widens it)"
        )


def attends(
    decoder: Callable[[Any], tuple[Step, Carry]],
    init_state: Callable[[jax.Array], Any],
) -> bool:
    """Whether a decoder of parameters has weights to show, by its shapes alone."""

    def weights(params):
        step, carry = decoder(params)
        return step(carry, jnp.zeros((1, 1), jnp.int32))[2]

    params = jax.eval_shape(init_state, jax.random.key(0)).params
    return jax.eval_shape(weights, params) is not None
