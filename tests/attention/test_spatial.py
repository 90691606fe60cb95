import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attention.alignments import hard_alignment
from attention.core import attend
from attention.scores import scaled_dot_scores
from attention.spatial import (
    NON_LOCAL,
    concatenation,
    dot_product,
    embedded_gaussian,
    max_pool,
)

B, I, J, K, L, D, V = 2, 5, 3, 4, 7, 11, 13  # noqa: E741


@pytest.fixture
def inputs(draw):
    return draw(B, I, J, D), draw(B, K, L, D), draw(B, K, L, V)


@pytest.fixture(params=NON_LOCAL)
def form(request, draw):
    """A form of the non-local block, with its parameters bound."""
    parameters = {"w": jnp.abs(draw(2 * D))} if request.param == "concatenation" else {}
    return lambda *maps: NON_LOCAL[request.param](*maps, **parameters)


def weight(name, query, key, w):
    """f(x_i, x_j) of Wang et al. (2018), section 3.2, for a pair of positions."""
    if name == "concatenation":
        return max(w @ np.concatenate([query, key]), 0)
    return query @ key if name == "dot" else np.exp(query @ key)


@pytest.mark.parametrize("name", NON_LOCAL)
def test_each_form_equals_a_loop_over_pairs_of_positions(x64, inputs, draw, name):
    w = draw(2 * D)
    parameters = {"w": w} if name == "concatenation" else {}
    attention = jax.jit(NON_LOCAL[name])(*inputs, **parameters)
    query, key, value = map(np.asarray, inputs)
    for b, i, j in np.ndindex(B, I, J):
        weights = np.zeros((K, L))
        for position in np.ndindex(K, L):
            pair = query[b, i, j], key[b][position]
            weights[position] = weight(name, *pair, np.asarray(w))
        weights /= weights.sum() if "gaussian" in name else K * L
        context = sum(weights[p] * value[b][p] for p in np.ndindex(K, L))
        np.testing.assert_allclose(attention.weights[b, i, j], weights, atol=1e-12)
        np.testing.assert_allclose(attention.context[b, i, j], context, atol=1e-12)


def test_embedded_gaussian_is_scaled_dot_product_attention_without_the_scale(
    x64, inputs
):
    query, key, value = inputs
    attention = embedded_gaussian(*inputs)
    np.testing.assert_allclose(attention.weights.sum((-2, -1)), 1, atol=1e-12)
    flat = [x.reshape(B, -1, x.shape[-1]) for x in (np.sqrt(D) * query, key, value)]
    expected = attend(scaled_dot_scores(*flat[:2]), flat[2])
    context = expected.context.reshape(B, I, J, V)
    np.testing.assert_allclose(attention.context, context, atol=1e-12)


def test_without_a_softmax_weights_may_be_negative_or_all_zero(inputs, draw):
    query, key, value = inputs
    assert dot_product(*inputs).weights.min() < 0
    positive = jnp.abs(query), jnp.abs(key), value
    zero = concatenation(*positive, w=-jnp.ones(2 * D))
    assert (zero.weights == 0).all() and (zero.context == 0).all()


def test_the_embedded_gaussian_takes_another_alignment(inputs):
    attention = embedded_gaussian(*inputs, align=hard_alignment)
    expected = embedded_gaussian(*inputs).weights
    weights = attention.weights.reshape(B, I, J, K * L)
    np.testing.assert_array_equal(weights.sum(-1), 1)
    np.testing.assert_array_equal(
        weights.argmax(-1), expected.reshape(B, I, J, K * L).argmax(-1)
    )


def test_batched_equals_vmapped(form, inputs):
    batched, mapped = form(*inputs), jax.vmap(form)(*inputs)
    for x, y in zip(batched, mapped, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_finite_differences(x64, form, draw):
    maps = draw(2, 3, D), draw(3, 2, D), draw(3, 2, V)
    check_grads(lambda *maps: form(*maps).context, maps, order=1, modes=["rev"])


def test_max_pool_is_the_maximum_of_each_block(draw):
    x = draw(B, 6, 4, D)
    pooled = max_pool(x)
    assert pooled.shape == (B, 3, 2, D)
    for i, j in np.ndindex(3, 2):
        block = x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        assert (pooled[:, i, j] == block.max((1, 2))).all()
    assert (max_pool(x, 1) == x).all()


def test_arguments_that_do_not_fit_are_refused(inputs, draw):
    query, key, value = inputs
    with pytest.raises(ValueError, match="differ in width"):
        embedded_gaussian(query[..., 1:], key, value)
    with pytest.raises(ValueError, match="differ in rows or columns"):
        dot_product(query, key, value[:, 1:])
    with pytest.raises(ValueError, match=r"w \(3,\) must be \[22\]"):
        concatenation(*inputs, w=draw(3))
    with pytest.raises(
        ValueError, match="size 2 must divide the rows and columns of x"
    ):
        max_pool(query)
