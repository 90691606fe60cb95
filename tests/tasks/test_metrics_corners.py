"""Consistency of corners: by chance, with faint colours, and of a single image."""

import math

import numpy as np
import pytest

from tasks.images.corners import consistency
from tasks.images.data import corners

rng = np.random.default_rng


def test_a_tenth_of_the_corners_match_by_chance():
    values = corners(rng(0), 2000, 16)
    values[:, -4:, -4:] = np.roll(values[:, -4:, -4:], 100, axis=0)
    scores = consistency(values)
    # A tolerance of three standard deviations.
    np.testing.assert_allclose(scores["consistent"], 10, atol=2)
    values[:, :4, :4] = values[:, :4, :4] // 8 + 100
    values[:, -4:, -4:] = values[:, -4:, -4:] // 8 + 100
    faint = consistency(values)
    assert faint["consistent"] < 12
    np.testing.assert_allclose(faint["spread"], 1 / 8, atol=0.01)


def test_consistency_equals_a_loop_over_images():
    images = rng(1).integers(0, 256, (13, 8, 8, 3)).astype(np.uint8)
    images[::2, -2:, -2:] = images[::2, :2, :2]  # 7 of 13 agree exactly
    first, last = images[:, :2, :2].mean((1, 2)), images[:, -2:, -2:].mean((1, 2))
    nearest = 0
    for i in range(13):
        same, *others = (
            math.dist(last[i], first[(i - shift) % 13]) for shift in range(10)
        )
        nearest += same < min(others)
    red = [color[0] for color in (*first, *last)]
    uniform = 256 / math.sqrt(12)  # the standard deviation in real images
    scores = consistency(images)
    expected = {"consistent": 100 * nearest / 13, "spread": np.std(red) / uniform}
    assert scores == pytest.approx(expected, rel=1e-5)
    assert nearest >= 7


def test_a_generator_of_one_image_is_not_consistent():
    scores = consistency(np.full((10, 16, 16, 3), 200, np.uint8))
    assert scores == {"consistent": 0, "spread": 0}
