"""Noisy points of a curve: Zhang et al., Dive into Deep Learning, attention pooling.

y = 2 sin(x) + x + noise, at x drawn uniformly from [0, length]. The evaluation splits
are grids without noise; the test points lie halfway between the validation points.

Axes: K training points; Q points of a grid.
"""

import math

import numpy as np

from base.errors import UserError, parse_number

_OFFSETS = {"validation": 0.0, "test": 0.5}  # of a split's grid, in grid spacings


def curve(x: np.ndarray) -> np.ndarray:
    """Returns the curve without noise, 2 sin(x) + x."""
    return 2 * np.sin(x) + x


def training_points(
    *, points: int, length: float, noise: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws noisy points of the curve: float32 x [K], sorted, and y [K].

    Args:
        points: K.
        length: upper end of x.
        noise: standard deviation of the noise.
        seed: seed of the points.
    """
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, length, points))
    y = curve(x) + rng.normal(0, noise, points)
    return x.astype(np.float32), y.astype(np.float32)


def grid(split: str, *, queries: int, length: float) -> np.ndarray:
    """Returns Q evenly spaced x of a split, from 0 to below `length`: float32 [Q]."""
    steps = np.arange(queries) + _OFFSETS[split]
    return (steps * length / queries).astype(np.float32)


def parse(text: str) -> float:
    """Parses a typed x; a UserError unless it is a finite float32."""
    try:
        number = parse_number(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise UserError(f"{text.strip()[:40]!r} must be a finite number")
    return number
