import jax
import numpy as np
import pytest

from tasks.common.losses import smoothed_cross_entropy

BATCH, STEPS, WORDS = 3, 5, 11


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(BATCH, STEPS, WORDS)).astype(np.float32)
    targets = rng.integers(0, WORDS, (BATCH, STEPS))
    weights = (rng.random((BATCH, STEPS)) < 0.7).astype(np.float32)
    return logits, targets, weights


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_equals_the_loop_over_smoothed_targets(case, smoothing):
    logits, targets, weights = case
    total = 0.0
    for b in range(BATCH):
        for t in range(STEPS):
            row = logits[b, t].astype(np.float64)
            log_probs = row - np.log(np.exp(row).sum())
            q = np.full(WORDS, smoothing / WORDS)
            q[targets[b, t]] += 1 - smoothing
            np.testing.assert_allclose(q.sum(), 1)
            total -= weights[b, t] * (q * log_probs).sum()
    loss, count = smoothed_cross_entropy(logits, targets, smoothing, weights)
    np.testing.assert_allclose(loss, total, rtol=1e-6)
    assert count == weights.sum()


def test_a_position_of_weight_zero_has_no_effect(case):
    logits, targets, weights = case
    changed = np.where(weights[..., None] == 0, 100 * logits, logits)

    def loss(logits):
        return smoothed_cross_entropy(logits, targets, 0.1, weights)[0]

    assert loss(changed) == loss(logits)
    assert not np.any(np.asarray(jax.grad(loss)(logits))[weights == 0])
