import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from base.records import SampleRecord
from training.reinforce import (
    initial_baseline,
    move_baseline,
    reinforce_loss,
    sentence_loss,
)

B, H, T = 2, 3, 7
WEIGHTS = ConfigDict({"reward": 0.7, "entropy": 0.3})
BASELINE = -1.3


@pytest.fixture
def draws(draw):
    """Draws of a layer with heads and of one without."""
    return [
        SampleRecord(draw(B, H, T), draw(B, H, T)),
        SampleRecord(draw(B, T), draw(B, T)),
    ]


@pytest.fixture
def mask():
    return np.arange(T) < np.array([[7], [5]])


def summed(draws, field):
    """Sums a field over layers and heads: [B, T]."""
    heads, plain = (np.asarray(getattr(layer, field)) for layer in draws)
    return sum(heads[:, h] for h in range(H)) + plain


@pytest.mark.parametrize("width", [1, T])
def test_the_loss_equals_a_loop(x64, draw, draws, mask, width):
    reward = draw(B, width)
    loss = reinforce_loss(draws, reward, BASELINE, jnp.asarray(mask, float), WEIGHTS)
    log_p, entropy = summed(draws, "log_probability"), summed(draws, "entropy")
    expected = 0.0
    for b, t in np.argwhere(mask):
        advantage = float(reward[b, t % width]) - BASELINE
        expected -= 0.7 * advantage * log_p[b, t] + 0.3 * entropy[b, t]
    np.testing.assert_allclose(loss, expected, atol=1e-12)


def test_a_draw_is_rewarded_until_the_end_of_its_sentence(x64, draw, draws, mask):
    reward, ends = np.asarray(draw(B, T)) * mask, np.zeros((B, T), bool)
    ends[0, [2, 6]] = ends[1, [0, 4]] = True
    loss = sentence_loss(
        draws,
        jnp.asarray(reward),
        jnp.asarray(ends),
        jnp.asarray(BASELINE),
        jnp.asarray(mask, float),
        WEIGHTS,
    )
    log_p, entropy = summed(draws, "log_probability"), summed(draws, "entropy")
    expected = 0.0
    for b, t in np.argwhere(mask):
        later = range(t, t + ends[b, t:].argmax() + 1)
        advantage = sum(reward[b, u] - BASELINE for u in later)
        expected -= 0.7 * advantage * log_p[b, t] + 0.3 * entropy[b, t]
    np.testing.assert_allclose(loss, expected, atol=1e-12)


def test_the_reward_has_no_gradient(draw, draws, mask):
    def loss(reward):
        ends = jnp.arange(T) == T - 1
        weights = jnp.asarray(mask, float)
        return sentence_loss(draws, reward, ends[None], 0.0, weights, WEIGHTS)

    np.testing.assert_array_equal(jax.grad(loss)(draw(B, T)), 0)


def test_the_baseline_moves_by_a_tenth_towards_the_mean_reward():
    assert initial_baseline(False) is None
    extra = {"other": 11, "baseline": jnp.asarray(2.0)}
    moved = move_baseline(extra, {"reward": (jnp.asarray(21.0), jnp.asarray(3.0))})
    assert moved == {"other": 11, "baseline": pytest.approx(0.9 * 2 + 0.1 * 7)}
    start = initial_baseline(True)
    assert start == {"baseline": 0} and start["baseline"].shape == ()


def test_without_draws_or_examples_there_is_nothing_to_move():
    nothing = {"reward": (jnp.zeros(()), jnp.zeros(()))}
    assert move_baseline(None, nothing) is None
    moved = move_baseline({"baseline": jnp.asarray(2.0)}, nothing)
    assert moved == {"baseline": pytest.approx(1.8)}
