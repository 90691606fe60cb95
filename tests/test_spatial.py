import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

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
    """A form of the block, its parameters set."""
    parameters = {"w": jnp.abs(draw(2 * D))} if request.param == "concatenation" else {}
    return lambda *maps: NON_LOCAL[request.param](*maps, **parameters)


def weight(name, query, key, w):
    """f(x_i, x_j) of Wang et al. (2018), section 3.2, for one pair of places."""
    if name == "concatenation":
        return max(w @ np.concatenate([query, key]), 0)
    return query @ key if name == "dot" else np.exp(query @ key)


@pytest.mark.parametrize("name", NON_LOCAL)
def test_each_form_equals_a_loop_over_pairs_of_places(x64, inputs, draw, name):
    w = draw(2 * D)
    parameters = {"w": w} if name == "concatenation" else {}
    found = jax.jit(NON_LOCAL[name])(*inputs, **parameters)
    query, key, value = map(np.asarray, inputs)
    for b, i, j in np.ndindex(B, I, J):
        weights = np.zeros((K, L))
        for place in np.ndindex(K, L):
            pair = query[b, i, j], key[b][place]
            weights[place] = weight(name, *pair, np.asarray(w))
        weights /= weights.sum() if "gaussian" in name else K * L
        context = sum(weights[p] * value[b][p] for p in np.ndindex(K, L))
        np.testing.assert_allclose(found.weights[b, i, j], weights, atol=1e-12)
        np.testing.assert_allclose(found.context[b, i, j], context, atol=1e-12)


def test_softmax_weights_are_those_of_the_transformer_without_its_scale(x64, inputs):
    query, key, value = inputs
    found = embedded_gaussian(*inputs)
    np.testing.assert_allclose(found.weights.sum((-2, -1)), 1, atol=1e-12)
    flat = [x.reshape(B, -1, x.shape[-1]) for x in (np.sqrt(D) * query, key, value)]
    expected = attend(scaled_dot_scores(*flat[:2]), flat[2])
    context = expected.context.reshape(B, I, J, V)
    np.testing.assert_allclose(found.context, context, atol=1e-12)


def test_without_a_softmax_weights_may_be_negative_or_all_nothing(inputs, draw):
    query, key, value = inputs
    assert dot_product(*inputs).weights.min() < 0
    positive = jnp.abs(query), jnp.abs(key), value
    none = concatenation(*positive, w=-jnp.ones(2 * D))
    assert (none.weights == 0).all() and (none.context == 0).all()


def test_places_that_move_move_what_is_read(form, inputs):
    query, key, value = inputs
    rng = np.random.default_rng(0)
    places, others = rng.permutation(I * J), rng.permutation(K * L)

    def move(x, order):
        return x.reshape(B, -1, x.shape[-1])[:, order].reshape(x.shape)

    expected = move(form(query, key, value).context, places)
    found = form(move(query, places), move(key, others), move(value, others)).context
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_every_place_reads_of_every_other_one(form, draw):
    x = jnp.abs(draw(I, J, D))  # so that no pair is silenced by the relu

    def read(x):
        return form(x, x, x).context[0, 0].sum()

    reached = jnp.abs(jax.grad(read)(x)).sum(-1)
    assert (reached > 0).all()


def test_a_batch_is_its_elements(form, inputs):
    found, expected = form(*inputs), jax.vmap(form)(*inputs)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
        *(found, expected),
    )


def test_gradients_are_those_of_finite_differences(x64, form, draw):
    maps = draw(2, 3, D), draw(3, 2, D), draw(3, 2, V)
    check_grads(lambda *maps: form(*maps).context, maps, order=1, modes=["rev"])


def test_pooling_keeps_the_highest_of_a_block(draw):
    x = draw(B, 6, 4, D)
    pooled = max_pool(x)
    assert pooled.shape == (B, 3, 2, D)
    for i, j in np.ndindex(3, 2):
        block = x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        assert (pooled[:, i, j] == block.max((1, 2))).all()
    assert (max_pool(x, 1) == x).all()


def test_what_does_not_fit_is_refused(inputs, draw):
    query, key, value = inputs
    with pytest.raises(ValueError, match="differ in width"):
        embedded_gaussian(query[..., 1:], key, value)
    with pytest.raises(ValueError, match="differ in places"):
        dot_product(query, key, value[:, 1:])
    with pytest.raises(ValueError, match=r"w \(3,\) must be \[22\]"):
        concatenation(*inputs, w=draw(3))
    with pytest.raises(ValueError, match="size 2 does not divide the map"):
        max_pool(query)
