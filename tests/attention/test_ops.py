"""Fast equivalents equal their plain forms, value and gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention.fast.relative
import attention.relative
import attention.scores
from attention.fast.bags import weighted_bag
from attention.fast.convolution import (
    conv_general_dilated,
    depthwise,
    double,
    halve,
    widen,
)
from attention.fast.dropout import dropout
from attention.fast.linear import linear, merge_heads, split_heads
from attention.fast.vocabulary import categorical, nucleus, top

B, H, T, Q, K, D, E, A, V = 2, 3, 5, 5, 7, 11, 13, 17, 19


def assert_equal(fast, plain, *arguments):
    """Compares outputs, and gradients of a nonlinear function of the outputs."""

    def value(function):
        def scalar(arguments):
            outputs = function(*arguments)
            total = sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(outputs))
            return total, outputs

        return jax.jit(jax.grad(scalar, has_aux=True))(arguments)

    results = value(fast), value(plain)
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("count", [T, 70])  # a loop, and its terms
def test_a_weighted_bag_is_a_sum_of_embeddings(x64, draw, count):
    ids = jax.random.randint(jax.random.key(0), (B, H, count), 0, V)
    assert_equal(
        lambda *x: weighted_bag(ids, *x),
        lambda table, words, units: ((words @ units) * table[ids]).sum(-2),
        draw(V, D),
        draw(B, H, count, 2),
        draw(2, D),
    )


@pytest.mark.parametrize(("images", "parts"), [(0, 1), (7, 1), (67, 2), (130, 3)])
def test_images_in_parts_have_the_same_convolution(
    x64, draw, monkeypatch, images, parts
):
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    plain = lambda *x: jax.lax.conv_general_dilated(*x, (2, 2), "SAME", **layout)  # noqa: E731
    one_cpu = jax.devices("cpu")[:1]
    monkeypatch.setattr(jax, "devices", lambda: one_cpu)
    fast = lambda *x: conv_general_dilated(*x, (2, 2), "SAME", **layout)  # noqa: E731
    arguments = draw(images, 5, 3, 2), draw(3, 3, 2, 1)
    assert_equal(fast, plain, *arguments)
    jaxpr = str(jax.make_jaxpr(fast)(*arguments))
    assert jaxpr.count("= conv_general_dilated[") == parts


@pytest.mark.parametrize("shape", [(D, A), (A, D)])
def test_linear_is_the_product(x64, draw, shape):
    assert_equal(linear, jnp.matmul, draw(B, T, shape[0]), draw(*shape))


def test_additive_keeps_no_hidden_layer_for_the_backward_pass(draw):
    arguments = draw(B, H, Q, D), draw(B, H, K, E), draw(D, A), draw(E, A), draw(A)
    _, backward = jax.vjp(attention.scores.additive_scores, *arguments)
    max_size = max(x.size for x in jax.tree.leaves(backward) if hasattr(x, "size"))
    assert max_size < B * H * Q * K * A


def test_a_large_additive_score_forms_no_hidden_layer(draw):
    length = 811
    arguments = draw(length, D), draw(length, E), draw(D, A), draw(E, A), draw(A)
    program = jax.jit(attention.scores.additive_scores).lower(*arguments).compile()
    hidden = 4 * length * length * A
    assert program.memory_analysis().temp_size_in_bytes < hidden / 5


def test_relative_memory_grows_with_the_scores_and_not_with_the_width(draw):
    length, width = 211, 101
    arguments = draw(length, width), draw(length, length), draw(9, width)

    def loss(query, weights, table):
        scores = attention.fast.relative.relative_scores(query, table, length)
        return attention.fast.relative.relative_values(scores * weights, table).sum()

    step = jax.jit(jax.grad(loss, range(3)))
    memory = step.lower(*arguments).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.2 * 4 * length * length * width


def convolution(x, kernel, stride=1, groups=1):
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


@pytest.mark.parametrize("stride, side", [(1, 3), (2, 3), (2, 5)])
def test_depthwise_convolution_is_the_grouped_one(x64, draw, stride, side):
    def plain(x, kernel):
        return convolution(x, kernel[:, :, None], stride, groups=x.shape[-1])

    arguments = draw(B, 7, 6, 5), draw(side, side, 5)
    assert_equal(lambda x, kernel: depthwise(x, kernel, stride), plain, *arguments)


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.93, 1.0])
def test_nucleus_equals_sorting(top_p):
    logits = np.random.default_rng(0).normal(size=(3, 5, 37)).astype(np.float32) * 2
    is_kept = np.asarray(nucleus(jnp.asarray(logits), top_p)) > -np.inf
    for row, is_kept_row in zip(
        logits.reshape(-1, 37), is_kept.reshape(-1, 37), strict=True
    ):
        order = np.argsort(-row)
        probs = np.exp(row[order]) / np.exp(row).sum()
        count = np.sum(np.cumsum(probs) - probs < top_p)
        assert set(np.flatnonzero(is_kept_row)) == set(order[:count])


@pytest.mark.parametrize("size", [2, 71])
def test_categorical_has_the_frequencies_of_the_softmax(size):
    logits = np.random.default_rng(0).normal(size=size).astype(np.float32) * 2
    logits[1] = -np.inf
    count = 20011
    tiled = jnp.broadcast_to(jnp.asarray(logits), (count, size))
    drawn = np.asarray(categorical(jax.random.key(0), tiled))
    probs = np.exp(logits) / np.exp(logits).sum()
    frequencies = np.bincount(drawn, minlength=size) / count
    assert np.all(
        np.abs(frequencies - probs) <= 4.5 * np.sqrt(probs * (1 - probs) / count)
    )


def test_a_single_draw_has_the_frequencies_of_the_softmax():
    """With one PRNG key for block and token, the two samples would be correlated."""
    size, count = 96, 10007  # three blocks
    logits = np.random.default_rng(0).normal(size=size).astype(np.float32)
    rngs = jax.random.split(jax.random.key(0), count)
    drawn = jax.vmap(categorical, (0, None))(rngs, jnp.asarray(logits))
    probs = np.exp(logits) / np.exp(logits).sum()
    frequencies = np.bincount(np.asarray(drawn), minlength=size) / count
    deviations = np.sqrt(probs * (1 - probs) / count)
    assert np.all(np.abs(frequencies - probs) < 4.5 * deviations)


@pytest.mark.parametrize("size", [3, 65, 701, 704])
@pytest.mark.parametrize("k", [1, 3])
def test_top_equals_sorting(size, k):
    values = np.random.default_rng(size).normal(size=(5, 2, size))
    values[0, :, 2:] = -np.inf
    values = values.astype(np.float32)
    top_values, indices = top(jnp.asarray(values), k)
    np.testing.assert_array_equal(top_values, -np.sort(-values)[..., :k])
    np.testing.assert_array_equal(top_values, np.take_along_axis(values, indices, -1))
    assert all(len(set(row)) == k for row in indices.reshape(-1, k).tolist())


def test_halve_and_double_are_the_strided_convolutions(x64, draw):
    x, kernel = draw(B, 6, 10, 3), draw(4, 4, 3, T)
    assert_equal(halve, lambda x, kernel: convolution(x, kernel, 2), x, kernel)

    def transposed(x, kernel):
        return jax.lax.conv_transpose(x, kernel, (2, 2), "SAME")

    assert_equal(double, transposed, x, kernel)


def test_widen_is_a_convolution_before_mean_pooling_or_after_upsampling(x64, draw):
    def pooled(x, kernel):
        return convolution(x, kernel).reshape(B, 3, 2, 5, 2, T).mean((2, 4))

    def upsampled(x, kernel):
        return convolution(x.repeat(2, 1).repeat(2, 2), kernel)

    x, kernel = draw(B, 6, 10, 3), draw(3, 3, 3, T)
    assert_equal(lambda x, kernel: halve(x, widen(kernel) / 4), pooled, x, kernel)
    assert_equal(lambda x, kernel: double(x, widen(kernel)), upsampled, x, kernel)


def test_a_product_with_merged_kernels_is_that_with_each_of_them(x64, draw):
    def merged(x, *kernels):
        return split_heads(linear(x, merge_heads(kernels, H)), len(kernels), H)

    def plain(x, *kernels):
        products = [(x @ kernel).reshape(B, T, H, D) for kernel in kernels]
        return tuple(jnp.swapaxes(product, 1, 2) for product in products)

    assert_equal(merged, plain, draw(B, T, D), draw(D, H * D), draw(D, H * D))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_zeroes_its_share_and_preserves_the_mean(rate):
    x = jnp.ones((307, 1009))
    y = np.asarray(dropout(x, rate, jax.random.key(0)))
    deviation = 5 * np.sqrt(rate * (1 - rate) / x.size)  # five standard errors
    assert abs((y == 0).mean() - rate) < deviation
    assert abs(y.mean() - 1) < deviation / (1 - rate)
    assert len(np.unique(y)) == 2


def test_dropout_masks_are_independent_between_neighbours():
    y = np.asarray(dropout(jnp.ones((307, 1009)), 0.5, jax.random.key(0))) > 0
    for lag in (1, 2, 3):
        together = (y[:, lag:] & y[:, :-lag]).mean()
        assert abs(together - 0.25) < 5 * 0.5 / np.sqrt(y.size)


def test_dropout_of_rate_zero_is_the_identity_and_of_one_an_error():
    x = jnp.ones((B, D))
    np.testing.assert_array_equal(dropout(x, 0.0, jax.random.key(0)), x)
    assert np.isfinite(dropout(x, 0.9999999, jax.random.key(0))).all()
    message = r"^rate is 1\.0: must be at least 0 and below 1$"
    with pytest.raises(ValueError, match=message):
        dropout(x, 1.0, jax.random.key(0))
