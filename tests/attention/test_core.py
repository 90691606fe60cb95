import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attention.core import attend, masked_softmax

B, H, Q, K, V = 2, 3, 5, 7, 11


def loop_softmax(scores, mask):
    """Softmax over the unmasked keys, one row at a time."""
    mask = np.broadcast_to(mask, scores.shape)
    weights = np.zeros(scores.shape)
    for row in np.ndindex(*scores.shape[:-1]):
        total = sum(
            math.exp(s) for s, m in zip(scores[row], mask[row], strict=True) if m
        )
        for k in range(scores.shape[-1]):
            if mask[row][k]:
                weights[row][k] = math.exp(scores[row][k]) / total
    return weights


@pytest.fixture
def mask(draw):
    """A random mask; every key of the rows [0, :, 2] is masked."""
    return (draw(B, 1, Q, K) > -0.5).at[0, :, 2].set(False)


@pytest.mark.parametrize("shape", [(B, H, Q, K), (B, 1, 1, K), (K,), (Q, 1)])
def test_softmax_equals_a_loop(x64, draw, shape):
    scores, mask = draw(B, H, Q, K), draw(*shape) > 0
    expected = loop_softmax(np.asarray(scores), np.asarray(mask))
    np.testing.assert_allclose(masked_softmax(scores, mask), expected, atol=1e-12)


def test_without_a_mask_it_is_the_softmax(draw):
    scores = draw(B, H, Q, K)
    expected = jax.nn.softmax(scores)
    np.testing.assert_allclose(masked_softmax(scores), expected, atol=1e-6)
    everything = jnp.ones((K,), bool)
    np.testing.assert_allclose(masked_softmax(scores, everything), expected, atol=1e-6)


def test_a_fully_masked_row_is_zero_with_zero_gradients(draw, mask):
    scores, value = draw(B, H, Q, K), draw(B, H, K, V)

    def loss(scores, value):
        context, weights = attend(scores, value, mask=mask)
        return jnp.sum(context**2) + jnp.sum(weights**3), (context, weights)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    gradients, outputs = gradient(scores, value)
    for array in (*outputs, gradients[0]):
        np.testing.assert_array_equal(array[0, :, 2], 0)
    for array in (*outputs, *gradients):
        assert np.isfinite(array).all()


def test_adding_a_constant_to_a_row_changes_nothing(x64, draw, mask):
    scores, shift = draw(B, H, Q, K), 1000 * draw(B, H, Q, 1)
    np.testing.assert_allclose(
        masked_softmax(scores + shift, mask), masked_softmax(scores, mask), atol=1e-12
    )


def test_jit_and_vmap_change_nothing(draw, mask):
    scores, value = draw(B, H, Q, K), draw(B, H, K, V)
    expected = attend(scores, value, mask=mask)
    jitted = jax.jit(lambda s, v, m: attend(s, v, mask=m))(scores, value, mask)
    heads = jax.vmap(lambda s, v, m: attend(s, v, mask=m), in_axes=(0, 0, None))
    mapped = jax.vmap(lambda s, v, m: heads(s, v, m[0]))(scores, value, mask)
    for actual in (jitted, mapped):
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_gradients_are_those_of_finite_differences(x64, draw, mask):
    scores, value = draw(B, H, Q, K), draw(B, H, K, V)
    check_grads(jax.jit(lambda s: masked_softmax(s, mask)), (scores,), order=1)
    check_grads(jax.jit(lambda s, v: attend(s, v, mask=mask)), (scores, value), order=1)


def test_attend_equals_a_loop(x64, draw, mask):
    scores, value = draw(B, H, Q, K), draw(B, H, K, V)
    context, weights = attend(scores, value, mask=mask)
    expected_weights = loop_softmax(np.asarray(scores), np.asarray(mask))
    np.testing.assert_allclose(weights, expected_weights, atol=1e-12)
    for b, h, q in np.ndindex(B, H, Q):
        expected_context = sum(
            expected_weights[b, h, q, k] * np.asarray(value[b, h, k]) for k in range(K)
        )
        np.testing.assert_allclose(context[b, h, q], expected_context, atol=1e-12)


def test_one_key_reads_its_value_and_equal_scores_the_mean(draw):
    value = draw(B, H, K, V)
    single = attend(draw(B, H, Q, 1), value[:, :, :1]).context
    np.testing.assert_array_equal(
        single, jnp.broadcast_to(value[:, :, :1], single.shape)
    )
    mean = attend(jnp.ones((B, H, Q, K)), value).context
    expected = jnp.broadcast_to(value.mean(-2, keepdims=True), mean.shape)
    np.testing.assert_allclose(mean, expected, atol=1e-6)


def test_a_wrong_mask_is_refused(draw):
    scores = draw(B, H, Q, K)
    for shape in [(B, K), (K, Q), (B, 1, Q, 1, K + 1)]:
        with pytest.raises(ValueError, match=rf"mask \({shape[0]}, .* does not broad"):
            masked_softmax(scores, jnp.ones(shape, bool))
    with pytest.raises(ValueError, match="does not broadcast to scores"):
        masked_softmax(scores[..., :1], jnp.ones((K,), bool))


def test_different_numbers_of_keys_are_refused(draw):
    with pytest.raises(ValueError, match="have 7 keys, value .* has 5"):
        attend(draw(B, H, Q, K), draw(B, H, Q, V))
    with pytest.raises(
        ValueError, match=r"\(5, 7\) have 7 keys, value \(5, 11\) has 5"
    ):
        attend(draw(Q, K), draw(Q, V))


def test_without_keys_the_context_is_zero(draw):
    context, weights = attend(draw(B, Q, 0), draw(B, 0, V))
    assert weights.shape == (B, Q, 0)
    np.testing.assert_array_equal(context, np.zeros((B, Q, V)))
