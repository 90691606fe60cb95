"""Checks of arguments, shared by the modules of this folder and their equivalents."""

import jax
import numpy as np


def check_mask(mask: jax.Array, shape: tuple[int, ...]) -> None:
    """Checks the dtype of a mask, and its shape against that of the scores.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if it does not broadcast to `shape`.
    """
    if mask.dtype != bool:
        raise TypeError(f"mask must be bool (True = may attend), got {mask.dtype}")
    if not broadcasts(mask.shape, shape):
        raise ValueError(f"mask {mask.shape} does not broadcast to scores {shape}")


def check_width(name: str, shape: tuple[int, ...], w: jax.Array) -> None:
    """Checks that `w` is as wide as the last axis of the values' shape.

    Raises:
        ValueError: if it is not; the message begins with `name`.
    """
    if w.shape != shape[-1:]:
        raise ValueError(f"{name}: w {w.shape} must have the width of value {shape}")


def check_table(table: jax.Array) -> None:
    """Checks that a table of relative positions has an odd number of rows.

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
