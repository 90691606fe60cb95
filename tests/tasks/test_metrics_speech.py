import functools

import numpy as np
import pytest

from tasks.speech import metrics as speech


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
