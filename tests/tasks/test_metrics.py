"""Metrics of estimates, corners, generated images and transcripts."""

import functools
import math

import numpy as np
import pytest

from tasks.adding.data import TOLERANCE, accuracy
from tasks.images.metrics import consistency, frechet_distance, inception_score
from tasks.speech import metrics as speech

rng = np.random.default_rng


def test_an_error_below_the_tolerance_is_correct_and_one_equal_to_it_is_not():
    errors = np.array([0.0, 0.039, -0.039, TOLERANCE, -TOLERANCE, 0.5, np.nan])
    assert accuracy(errors) == pytest.approx(300 / 7)


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


def test_the_frechet_distance_equals_the_formula():
    real = rng(0).standard_normal((200, 5)) @ rng(1).standard_normal((5, 5))
    generated = rng(2).standard_normal((300, 5)) @ rng(3).standard_normal((5, 5)) + 1
    covariances = [np.cov(x, rowvar=False) for x in (real, generated)]
    roots = np.linalg.eigvals(covariances[0] @ covariances[1])
    expected = np.square(real.mean(0) - generated.mean(0)).sum()
    expected += sum(map(np.trace, covariances)) - 2 * np.sqrt(roots.real).sum()
    np.testing.assert_allclose(frechet_distance(real, generated), expected, rtol=1e-9)
    np.testing.assert_allclose(frechet_distance(real, real), 0, atol=1e-9)
    np.testing.assert_allclose(frechet_distance(real, real + 2), 4 * 5, rtol=1e-9)


def test_the_inception_score_of_certain_classes_is_their_number():
    certain = np.eye(7)[rng(0).permutation(70) % 7]
    np.testing.assert_allclose(inception_score(certain), 7, rtol=1e-6)
    np.testing.assert_allclose(inception_score(np.full((9, 7), 1 / 7)), 1, rtol=1e-6)


def recursive_distance(a, b):
    @functools.cache
    def distance(i, j):
        if not i or not j:
            return i + j
        changed = distance(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(changed, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(a), len(b))


def test_edit_distance_equals_the_recursion_and_is_symmetric():
    rng = np.random.default_rng(0)
    for _ in range(30):
        a, b = (rng.integers(0, 3, rng.integers(0, 7)).tolist() for _ in "ab")
        assert speech.edit_distance(a, b) == recursive_distance(a, b)
        assert speech.edit_distance(b, a) == speech.edit_distance(a, b)


def test_error_rates_are_per_word_and_character_of_the_references():
    scores = speech.error_rates(["one too", "six"], ["one two", "six ten"])
    assert scores["wer"] == pytest.approx(100 * 2 / 4)
    assert scores["cer"] == pytest.approx(100 * (1 + 4) / 14)
    assert scores["correct"] == 0
    same = speech.error_rates(["one"], ["one"])
    assert same == {"wer": 0, "cer": 0, "correct": 100}
    assert speech.error_rates(["a b c"], ["d"])["wer"] == 300


def test_monotony_counts_steps_back_of_the_maximum_weight():
    rows = np.eye(5)
    assert speech.monotony([rows, rows[[0, 0, 3]]]) == 100
    assert speech.monotony([rows[[2, 1, 4]], rows[[3, 0]]]) == pytest.approx(100 / 3)
    assert speech.monotony([rows[:1]]) == 100
