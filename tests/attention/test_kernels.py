import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attention.core import Attention, attend
from attention.kernels import KERNELS, kernel_regression, kernel_scores
from attention.scores import dot_scores

B, Q, K, D, V = 2, 5, 7, 3, 11
NAMES = sorted(KERNELS)
COMPACT = ("boxcar", "epanechnikov", "triangular")  # 0 beyond one width
WIDTH = 2.3  # compact kernels then reach some of the keys of `inputs`, but not all


def loop_kernel(name, r):
    """K(u) for r = |u|, as in the module docstring of `attention.kernels`."""
    return {
        "gaussian": math.exp(-(r**2) / 2),
        "boxcar": 1.0 if r <= 1 else 0.0,
        "triangular": max(0.0, 1 - r),
        "epanechnikov": max(0.0, 3 / 4 * (1 - r**2)),
        "constant": 1.0,
    }[name]


def estimate(name, query, key, value, width=WIDTH, mask=None):
    kernel = KERNELS[name]
    return kernel_regression(query, key, value, kernel=kernel, width=width, mask=mask)


@pytest.fixture
def inputs(draw):
    """Query, key and value; query [0, 1] is far from every key."""
    query = draw(B, Q, D).at[0, 1].add(50)
    return query, draw(B, K, D), draw(B, K, V)


@pytest.fixture
def mask(draw):
    """A random mask; every key of row [1, 2] is masked."""
    return (draw(B, Q, K) > -0.5).at[1, 2].set(False)


@pytest.mark.parametrize("name", NAMES)
def test_estimate_equals_a_loop(x64, inputs, mask, name):
    context, weights = estimate(name, *inputs, mask=mask)
    assert (context.shape, weights.shape) == ((B, Q, V), (B, Q, K))
    query, key, value = map(np.asarray, inputs)
    is_zero = set()
    for b, q in np.ndindex(B, Q):
        if name == "gaussian" and (b, q) == (0, 1):
            continue  # 0 / 0 in the loop; the softmax selects the nearest neighbour
        distances = [math.dist(query[b, q], key[b, k]) / WIDTH for k in range(K)]
        kernels = [
            loop_kernel(name, r) if mask[b, q, k] else 0.0
            for k, r in enumerate(distances)
        ]
        is_zero |= {x == 0 for x, m in zip(kernels, mask[b, q], strict=True) if m}
        total = sum(kernels) or 1.0
        np.testing.assert_allclose(weights[b, q], np.divide(kernels, total), atol=1e-12)
        expected = sum(x * y for x, y in zip(kernels, value[b], strict=True)) / total
        np.testing.assert_allclose(context[b, q], expected, atol=1e-12)
    assert is_zero == ({True, False} if name in COMPACT else {False})


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_neighbours_sum_to_one_and_those_of_masked_keys_are_zero(
    inputs, mask, name
):
    context, weights = estimate(name, *inputs, mask=mask)
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    kernels = jnp.exp(kernel_scores(*inputs[:2], kernel=KERNELS[name], width=WIDTH))
    has_neighbour = (mask & (kernels > 0)).any(-1)
    if name == "gaussian":
        has_neighbour = mask.any(-1)  # never 0: see the test of the narrow Gaussian
    np.testing.assert_allclose(weights.sum(-1), has_neighbour, atol=1e-6)
    query, key, value = inputs
    hidden = ~mask[0, 0]
    assert hidden.any()
    key, value = key.at[0, hidden].add(3), value.at[0, hidden].set(1e30)
    changed = estimate(name, query, key, value, mask=mask)
    np.testing.assert_array_equal(changed.context[0, 0], context[0, 0])


@pytest.mark.parametrize("name", NAMES)
def test_a_query_without_a_neighbour_is_zero_with_zero_gradients(inputs, mask, name):
    def loss(query, key, value, width):
        attention = estimate(name, query, key, value, width, mask)
        return jnp.sum(attention.context**2) + jnp.sum(attention.weights**3), attention

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True))
    gradients, attention = gradient(*inputs, jnp.asarray(WIDTH))
    assert all(np.isfinite(x).all() for x in (*gradients, *attention))
    # Row [1, 2] is fully masked; query [0, 1] is outside of every compact kernel.
    for b, q in [(1, 2), (0, 1)] if name in COMPACT else [(1, 2)]:
        for array in (*attention, gradients[0]):
            np.testing.assert_array_equal(array[b, q], 0)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_finite_at_the_peak_and_up_to_the_edge(name):
    below = np.nextafter(np.float32(1), np.float32(0))
    key = jnp.array([0, below, 1, 1 + 1e-6])[:, None]

    def loss(query, key, width):
        kernel = KERNELS[name]
        context, weights = kernel_regression(
            query, key, jnp.arange(4.0)[:, None], kernel=kernel, width=width
        )
        return jnp.sum(context + weights**2)

    for first in (0, 3):  # with a key at the peak, and only with those around the edge
        gradient = jax.grad(loss, (0, 1, 2))
        gradients = gradient(jnp.zeros((1, 1)), key.at[:first].set(-5), 1.0)
        assert all(np.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(x64, inputs, mask, name):
    def read(query, key, value, width):
        return estimate(name, query, key, value, width, mask)

    check_grads(jax.jit(read), (*inputs, jnp.asarray(WIDTH)), order=1)


@pytest.mark.parametrize("name", NAMES)
def test_batched_equals_vmapped_and_jitted(x64, inputs, mask, name):
    expected = estimate(name, *inputs, mask=mask)

    def single(query, key, value, mask):
        return estimate(name, query, key, value, mask=mask)

    for function in (jax.vmap(single), jax.jit(single)):
        for a, b in zip(function(*inputs, mask), expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_very_wide_kernel_is_average_pooling(inputs, name):
    query, key, value = inputs
    context = estimate(name, query, key, value, width=1e8).context
    mean = jnp.broadcast_to(value.mean(1, keepdims=True), (B, Q, V))
    np.testing.assert_allclose(context, mean, atol=1e-5)


def test_a_very_narrow_gaussian_reads_the_nearest_neighbour(inputs):
    query, key, value = inputs
    distance = np.linalg.norm(query[:, :, None] - key[:, None], axis=-1)
    nearest = np.take_along_axis(value, distance.argmin(-1)[..., None], axis=1)
    # All kernels underflow to 0, but their logarithms, the scores, do not.
    context = estimate("gaussian", query, key, value, width=1e-3).context
    np.testing.assert_array_equal(context, nearest)


def test_with_unit_norms_the_gaussian_is_dot_product_attention(inputs):
    query, key, value = inputs
    query, key = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (query, key))
    attention = estimate("gaussian", query, key, value, width=0.7)
    expected = attend(dot_scores(query, key) / 0.7**2, value)
    assert isinstance(attention, Attention)
    for a, b in zip(attention, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_width_for_each_coordinate_scales_it(inputs):
    query, key, value = inputs
    widths = jnp.array([0.5, 2.0, 11.0])
    context = estimate("gaussian", query, key, value, width=widths).context
    expected = estimate("gaussian", query / widths, key / widths, value, width=1.0)
    np.testing.assert_allclose(context, expected.context, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_that_of_the_inputs(inputs, name):
    arrays = (x.astype(jnp.bfloat16) for x in inputs)
    assert {x.dtype for x in estimate(name, *arrays)} == {jnp.dtype(jnp.bfloat16)}


def test_arguments_that_do_not_fit_are_refused(inputs):
    query, key, value = inputs
    with pytest.raises(ValueError, match=r"kernel_scores: query \(.* differ in width"):
        estimate("gaussian", query[..., :1], key, value)
    with pytest.raises(ValueError, match="have 7 keys, value .* has 6"):
        estimate("gaussian", query, key, value[:, 1:])
    with pytest.raises(TypeError, match="mask must be bool"):
        estimate("gaussian", query, key, value, mask=jnp.ones((Q, K)))
