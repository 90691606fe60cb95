"""Plane geometry: simple polygons by exact fractions, signed areas."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from tasks.pointing.geometry import is_simple, signed_area


def left_of(a, b, c):
    """Positive if c is left of the line from a to b."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def crosses(polygon):
    """True if two sides share more than a common corner, in exact fractions."""
    corner = [tuple(map(Fraction, map(float, point))) for point in polygon]
    sides = [(a, corner[(i + 1) % len(corner)]) for i, a in enumerate(corner)]

    def on(point, a, b):
        inside = all(min(u) <= p <= max(u) for p, *u in zip(point, a, b, strict=True))
        return left_of(a, b, point) == 0 and inside

    for (a, b), (c, d) in itertools.combinations(sides, 2):
        ends = [(p, c, d) for p in (a, b)] + [(p, a, b) for p in (c, d)]
        touching = {p for p, *side in ends if on(p, *side)}
        crossing = left_of(a, b, c) * left_of(a, b, d) < 0
        crossing = crossing and left_of(c, d, a) * left_of(c, d, b) < 0
        if crossing or len(touching) > len({a, b} & {c, d}):
            return True
    return False


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("corners", [3, 4, 5, 7])
def test_a_polygon_is_simple_if_no_two_sides_meet(corners, grid):
    rng = np.random.default_rng(corners)
    outcomes = set()
    for _ in range(150):
        polygon = rng.random((corners, 2), np.float32)
        if grid:  # many collinear points and touching sides
            indices = rng.choice(16, corners, replace=False)
            polygon = np.stack(np.divmod(indices, 4), 1)
        expected = not crosses(polygon)
        outcomes.add(expected)
        assert is_simple(polygon) == is_simple(polygon[::-1]) == expected
    assert not is_simple(polygon[:2])
    assert outcomes == ({True} if corners == 3 and not grid else {True, False})


def test_the_area_of_a_polygon_is_signed_by_its_direction():
    triangle = np.array([[0, 0], [3, 0], [0, 5]])
    assert signed_area(triangle) == 7.5 and signed_area(triangle[::-1]) == -7.5
