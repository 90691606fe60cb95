"""Noisy points of a curve: Zhang et al., Dive into Deep Learning, attention pooling.

y = 2 sin(x) + x + noise, at x drawn uniformly from [0, length]. The grids of the splits
have no noise; that of the test split lies halfway between the points of the validation
split.

Axes: K training points; Q points of a grid.
"""

import math

import numpy as np

from data.splits import check_split
from errors import UserError

_OFFSETS = {"validation": 0.0, "test": 0.5}  # of a split's grid, in its steps


def curve(x: np.ndarray) -> np.ndarray:
    """The curve without noise, 2 sin(x) + x."""
    return 2 * np.sin(x) + x


def training_points(
    *, points: int, length: float, noise: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy points of the curve.

    Args:
        points: K.
        length: upper end of x.
        noise: standard deviation of y about the curve.
        seed: of the points.

    Returns:
        float32 x [K], sorted, and y [K].
    """
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, length, points))
    y = curve(x) + rng.normal(0, noise, points)
    return x.astype(np.float32), y.astype(np.float32)


def grid(split: str, *, queries: int, length: float) -> np.ndarray:
    """Evenly spaced x of a split: float32 [Q].

    Args:
        split: "validation" or "test".
        queries: Q.
        length: upper end of x.

    Raises:
        UserError: for another split.
    """
    check_split(split)
    steps = np.arange(queries) + _OFFSETS[split]
    return (steps * length / queries).astype(np.float32)


class FullBatch:
    """Source whose every batch is the whole training set."""

    def __init__(self, batch: dict[str, np.ndarray]):
        self._batch = batch

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return self._batch


def parse(text: str, name: str) -> float:
    """Reads x as it is typed.

    Args:
        text: of a number.
        name: of the input, in errors, such as "line 3".

    Raises:
        UserError: for text that is no finite float32.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise UserError(f"{name} is {text.strip()[:40]!r}: must be a finite number")
    return number
