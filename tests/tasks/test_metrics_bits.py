"""Metrics of predicted bits."""

import numpy as np
import pytest

from tasks.algorithmic.metrics import bits_per_sequence, wrong_bits


def test_a_fair_coin_costs_one_bit():
    assert bits_per_sequence(35 * np.log(2), 7) == pytest.approx(5)


def test_wrong_bits_equal_a_loop_over_output_steps():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3, 7, 5))
    targets = rng.integers(0, 2, (3, 7, 5)).astype(np.float32)
    mask = rng.random((3, 7)) < 0.5
    expected = sum(
        (logits[b, t, o] > 0) != targets[b, t, o]
        for b, t, o in np.ndindex(logits.shape)
        if mask[b, t]
    )
    assert wrong_bits(logits, targets, mask) == expected
    assert wrong_bits(2 * targets - 1, targets, mask) == 0
    assert wrong_bits(1 - 2 * targets, targets, mask) == 5 * mask.sum()
    assert wrong_bits(0 * targets, targets, mask) == targets[mask].sum()
