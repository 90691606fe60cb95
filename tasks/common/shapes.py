"""Simple shapes in a few colours, drawn without files.

Axes: I rows and columns of a shape.
"""

import functools

import numpy as np

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring")
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (235, 200, 30),
    "purple": (150, 60, 180),
    "grey": (110, 110, 110),
}


@functools.cache
def mask(shape: str, side: int) -> np.ndarray:
    """Returns the pixels of a shape, bool [I, I]."""
    y, x = np.mgrid[:side, :side] * 2 / (side - 1) - 1  # from -1 to 1
    radius, x, height = np.hypot(x, y), abs(x), y
    y = abs(y)
    return {
        "circle": radius <= 1,
        "square": np.maximum(x, y) <= 0.85,
        "triangle": x <= (height + 1) / 2,
        "diamond": x + y <= 1,
        "cross": np.minimum(x, y) <= 0.3,
        "ring": (radius <= 1) & (radius >= 0.55),
    }[shape]
