"""Chunked feed-forward attention equals the plain form, value and gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention.fast.pooled_attention import chunked_attention
from attention.feedforward import feedforward_attention

B, T, D, F = 3, 7, 5, 2

attention = jax.jit(feedforward_attention)  # compiles once for many tests


@pytest.fixture
def mask(draw):
    """A random mask; every step of sequence 1 is masked."""
    return (draw(B, T) > -0.3).at[1].set(False)


def test_sums_over_chunks_are_kept_in_float32(draw):
    x, w = jnp.ones((1, 4000, D), jnp.bfloat16), jnp.zeros(D, jnp.bfloat16)
    context, _ = chunked_attention(lambda x: x, x, w, jnp.zeros((), jnp.bfloat16))
    assert context.dtype == jnp.bfloat16
    np.testing.assert_array_equal(context, jnp.ones((1, D)))  # not 256 / 4000


def encoder(kernel):
    return lambda x: jax.nn.leaky_relu(x @ kernel)


@pytest.mark.parametrize(("chunk", "masked"), [(2, False), (3, True)])
def test_chunks_change_neither_the_outputs_nor_the_gradients(
    x64, draw, mask, chunk, masked
):
    x, kernel, w, b = draw(B, T, F), draw(F, D), draw(D), draw()
    directions = draw(B, D), draw(B, T)
    mask = mask if masked else None

    def plain(x, kernel, w, b):
        attended = attention(encoder(kernel)(x), w, b, mask=mask)
        return sum(map(jnp.vdot, attended, directions)), attended

    def chunked(x, kernel, w, b):
        encode = encoder(kernel)
        attended = chunked_attention(encode, x, w, b, mask=mask, chunk=chunk)
        return sum(map(jnp.vdot, attended, directions)), attended

    actual, expected = (
        jax.jit(jax.grad(function, (0, 1, 2, 3), has_aux=True))(x, kernel, w, b)
        for function in (chunked, plain)
    )
    assert (actual[1].context.shape, actual[1].weights.shape) == ((B, D), (B, T))
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_chunks_take_any_batch_axes(x64, draw):
    x, kernel, w, b = draw(2, B, T, F), draw(F, D), draw(D), draw()
    encode, mask = encoder(kernel), draw(B, T) > -1
    expected = attention(encode(x), w, b, mask=mask)
    attended = chunked_attention(encode, x, w, b, mask=mask, chunk=3)
    single = chunked_attention(encode, x[1, 2], w, b, mask=mask[2], chunk=3)
    for actual, part, array in zip(attended, single, expected, strict=True):
        np.testing.assert_allclose(actual, array, atol=1e-12)
        np.testing.assert_allclose(part, array[1, 2], atol=1e-12)


def test_chunks_never_store_the_values_of_all_steps(draw):
    steps, width = 1009, 53
    x, kernel, w, b = draw(B, steps, F), draw(F, width), draw(width), draw()

    def memory(chunk):
        def loss(kernel):
            context, _ = chunked_attention(encoder(kernel), x, w, b, chunk=chunk)
            return jnp.sum(context**2)

        compiled = jax.jit(jax.grad(loss)).lower(kernel).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    values = 4 * B * steps * width
    assert memory(100) < values / 2 < memory(steps)


@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps_of_the_minimum_score_are_averaged(draw, steps):
    """Their sum of exponentials, steps / e, is less than 1."""
    values = draw(B, steps, D)
    context, _ = chunked_attention(lambda x: x, values, jnp.zeros(D), jnp.array(-50.0))
    np.testing.assert_allclose(context, values.mean(1), rtol=1e-5)
