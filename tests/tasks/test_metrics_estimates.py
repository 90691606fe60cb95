"""Metrics of estimates: the tolerance and accuracy by length."""

import numpy as np
import pytest

from tasks.adding.metrics import (
    TOLERANCE,
    accuracy,
    accuracy_by_length,
)


def test_an_error_below_the_tolerance_is_correct_and_one_equal_to_it_is_not():
    errors = np.array([0.0, 0.039, -0.039, TOLERANCE, -TOLERANCE, 0.5, np.nan])
    assert accuracy(errors) == pytest.approx(300 / 7)


def test_accuracy_by_length_equals_the_accuracy_of_each_group():
    lengths, errors = np.array([3, 3, 5, 7, 11, 11]), np.array([0, 1, 0, 0, 1, 1.0])
    by_length = accuracy_by_length(errors, lengths, 3)
    assert by_length == {"3-3": 50, "5-7": 100, "11-11": 0}
    halves = {"3-5": 200 / 3, "7-11": 100 / 3}
    assert accuracy_by_length(errors, lengths, 2) == pytest.approx(halves)
    assert np.mean(list(by_length.values())) == pytest.approx(accuracy(errors))
