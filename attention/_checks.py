"""Argument checks shared by the mechanisms and their fast forms."""

import jax
import numpy as np


def check_mask(mask: jax.Array, shape: tuple[int, ...]) -> None:
    """Checks that a mask is bool and broadcasts to the shape of the scores.

    Args:
        mask: the mask.
        shape: shape of the scores.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `mask` does not broadcast to `shape`.
    """
    if mask.dtype != bool:
        raise TypeError(f"mask must be bool (True = may attend), got {mask.dtype}")
    if not broadcasts(mask.shape, shape):
        raise ValueError(f"mask {mask.shape} does not broadcast to scores {shape}")


def check_width(name: str, shape: tuple[int, ...], w: jax.Array) -> None:
    """Checks that the weight vector of a score has the width of the values.

    Args:
        name: name of the calling function, the first word of the message.
        shape: [..., D], shape of the values.
        w: the weight vector.

    Raises:
        ValueError: if `w` is not [D].
    """
    if w.shape != shape[-1:]:
        raise ValueError(f"{name}: w {w.shape} must have the width of value {shape}")


def check_table(table: jax.Array) -> None:
    """Checks that a table of relative positions has an odd number of rows.

    Args:
        table: [..., 2k + 1, D].

    Raises:
        ValueError: if the number of rows is even, or `table` is not a matrix.
    """
    if table.ndim < 2 or table.shape[-2] % 2 == 0:
        raise ValueError(f"table {table.shape} must have an odd number of rows, 2k + 1")


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Returns True if a shape broadcasts to another without changing its last axis."""
    try:
        return np.broadcast_shapes(shape, to)[-1:] == to[-1:]
    except ValueError:
        return False
