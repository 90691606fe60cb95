"""Metrics of estimates: what counts as right, by length."""

import numpy as np
import pytest

from metrics.estimates import TOLERANCE, accuracy, accuracy_by_length, within_tolerance


def test_an_estimate_is_right_on_either_side_of_the_target_and_not_at_the_bound():
    errors = np.array([0.0, 0.039, -0.039, TOLERANCE, -TOLERANCE, 0.5, np.nan])
    assert within_tolerance(errors).tolist() == [True] * 3 + [False] * 4
    assert accuracy(errors) == pytest.approx(300 / 7)


def test_accuracy_by_length_is_that_of_each_part_by_itself():
    lengths, errors = np.array([3, 3, 5, 7, 11, 11]), np.array([0, 1, 0, 0, 1, 1.0])
    shares = accuracy_by_length(errors, lengths, 3)
    assert shares == {"3-3": 50, "5-7": 100, "11-11": 0}
    assert np.mean(list(shares.values())) == pytest.approx(accuracy(errors))
