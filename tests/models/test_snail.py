"""SNAIL: causality, receptive field and channels of its blocks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention.scores import SCORES
from base.errors import FieldError
from base.records import AttentionRecord, records_of
from models.agents import SnailAgent
from models.snail import (
    FEW_SHOT,
    AttentionBlock,
    DenseBlock,
    Snail,
    TCBlock,
    dilations,
)

B, T, C, D, K, V = 2, 11, 3, 5, 7, 13
SMALL = ((K, V), D, (2, 3))


def built(module, steps=T):
    """Random input [B, T, C], and the parameters of a module for it."""
    x = jax.random.normal(jax.random.key(1), (B, steps, C))
    variables = jax.jit(module.init)(jax.random.key(0), x)
    return x, {"params": variables["params"]}


def influence(module, x, variables):
    """Bool [T, T]: which input step has a gradient at which output step."""

    def output(x):
        first, *_ = jax.tree.leaves(module.apply(variables, x))
        return first[0].sum(-1)

    jacobian = jax.jit(jax.jacrev(output))

    return np.abs(jacobian(x)[:, 0]).sum(-1) > 0  # the first sequence


@pytest.mark.parametrize(
    "module",
    [DenseBlock(3, D), TCBlock(T, D), AttentionBlock(K, V), Snail(T, SMALL)],
    ids=lambda module: type(module).__name__,
)
def test_no_output_depends_on_a_later_input(module):
    x, variables = built(module)
    reached = influence(module, x, variables)
    assert not np.triu(reached, 1).any()
    assert reached.diagonal().all()
    if not isinstance(module, DenseBlock):  # which sees two steps
        assert np.tril(reached).sum() == T * (T + 1) / 2


@pytest.mark.parametrize("score", sorted(SCORES.keys() - {"concat"}))
def test_every_score_is_causal(score):
    module = Snail(T, ((K, V),), score=score)
    reached = influence(module, *built(module))
    assert not np.triu(reached, 1).any()


@pytest.mark.parametrize("length", [2, 3, 4, 5, 8, 9])
def test_convolutions_reach_every_step_of_the_length(length):
    module, steps = TCBlock(length, D), 19
    reached = influence(module, *built(module, steps))
    field = 1 + sum(dilations(length))
    assert field == 2 ** math.ceil(math.log2(length)) >= length
    ago = np.arange(steps)[:, None] - np.arange(steps)
    np.testing.assert_array_equal(reached, (0 <= ago) & (ago < field))
    assert dilations(1) == []


def test_published_dilations_skip_every_odd_lag():
    def stack(x, params):
        for dilation, variables in zip((2, 4, 8), params, strict=True):
            x = DenseBlock(dilation, D).apply(variables, x)
        return x

    x, params = jax.random.normal(jax.random.key(1), (1, T, C)), []
    for n, dilation in enumerate((2, 4, 8)):
        wide = jnp.zeros((1, T, C + n * D))
        init = jax.jit(DenseBlock(dilation, D).init)
        params.append(init(jax.random.key(n), wide))
    jacobian = jax.jit(jax.grad(lambda x: stack(x, params)[0, -1].sum()))(x)[0]
    np.testing.assert_array_equal((jacobian != 0).any(-1), np.arange(T) % 2 == 0)


def test_a_dense_block_follows_its_equation():
    dilation = 3
    x, variables = built(DenseBlock(dilation, D))
    actual = DenseBlock(dilation, D).apply(variables, x)
    params = jax.tree.map(np.asarray, variables["params"])
    for b, t in np.ndindex(B, T):
        before = x[b, t - dilation] if t >= dilation else np.zeros(C)

        w_0, w_1 = params["kernel"]
        x_f, x_g = np.split(before @ w_0 + x[b, t] @ w_1 + params["bias"], 2)
        expected = np.concatenate([x[b, t], np.tanh(x_f) / (1 + np.exp(-x_g))])
        np.testing.assert_allclose(actual[b, t], expected, atol=1e-5)


def test_an_attention_block_follows_its_equation():
    x, variables = built(AttentionBlock(K, V))
    (actual, *_), sown = AttentionBlock(K, V).apply(variables, x, mutable=["attention"])
    (record,) = records_of(sown, AttentionRecord)
    assert record.kind == "causal" and record.weights.shape == (B, 1, T, T)
    p = jax.tree.map(np.asarray, variables["params"])
    x = np.asarray(x)
    q, k, v = (x @ p[n]["kernel"] + p[n]["bias"] for n in ("query", "key", "value"))
    for b, t in np.ndindex(B, T):
        e = np.exp([q[b, t] @ k[b, s] / math.sqrt(K) for s in range(t + 1)])
        weights = e / e.sum()
        np.testing.assert_allclose(record.weights[b, 0, t, : t + 1], weights, atol=1e-5)
        expected = np.concatenate([x[b, t], weights @ v[b, : t + 1]])
        np.testing.assert_allclose(actual[b, t], expected, atol=1e-5)


def test_weights_sum_to_one_over_the_steps_so_far():
    module = Snail(T, SMALL)
    x, variables = built(module)
    _, sown = jax.jit(lambda x: module.apply(variables, x, mutable=["attention"]))(x)
    records = records_of(sown, AttentionRecord)
    assert [record.layer for record in records] == [0, 1]
    for record in records:
        np.testing.assert_allclose(record.weights.sum(-1), 1, atol=1e-5)
        assert not np.triu(record.weights, 1).any()
        assert (np.asarray(record.weights) >= 0).all()


@pytest.mark.parametrize("steps", [1, 4, T])
def test_each_block_adds_its_channels(steps):
    module = Snail(T, SMALL)
    x, variables = built(module)
    layers = 4  # ceil(log2(11))
    expected = C + V + layers * D + 3
    shape = jax.eval_shape(module.apply, variables, x[:, :steps]).shape
    assert shape == (B, steps, expected)
    assert jax.eval_shape(
        lambda: Snail(26).init_with_output(jax.random.key(0), jnp.zeros((1, 26, 69)))
    )[0].shape == (1, 26, 69 + 32 + 5 * 128 + 128 + 5 * 128 + 256)
    assert FEW_SHOT == ((64, 32), 128, (256, 128), 128, (512, 256))


def test_a_part_of_a_sequence_has_the_outputs_of_the_whole():
    module = Snail(T, SMALL)
    x, variables = built(module)
    apply = jax.jit(module.apply)
    whole, part = apply(variables, x), apply(variables, x[:, :4])
    np.testing.assert_allclose(whole[:, :4], part, atol=1e-5)


def test_a_block_must_be_a_number_or_a_pair():
    agent = SnailAgent(2, T, blocks=((2, 3, 5),))
    with pytest.raises(
        FieldError, match=r"^blocks is \(\(2, 3, 5\),\): must be a list"
    ):
        agent.init(jax.random.key(0), jnp.zeros((B, T, C)))
