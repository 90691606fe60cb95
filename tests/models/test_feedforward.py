"""Feed-forward attention and the network around it."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from details import weights_of
from jax.test_util import check_grads

from attention.core import Attention
from attention.fast.pooled_attention import chunked_attention
from attention.feedforward import feedforward_attention
from base.records import DETAILS, AttentionRecord, records_of
from models.feedforward import FeedForwardAttention

B, T, D, F = 3, 7, 5, 2

attention = jax.jit(feedforward_attention)  # compiles once for many tests


@pytest.fixture
def inputs(draw):
    """Value, w and b."""
    return draw(B, T, D), draw(D), draw()


@pytest.fixture
def mask(draw):
    """A random mask; every step of sequence 1 is masked."""
    return (draw(B, T) > -0.3).at[1].set(False)


@pytest.mark.parametrize("masked", [False, True])
def test_context_equals_a_loop(x64, inputs, mask, masked):
    context, weights = attention(*inputs, mask=mask if masked else None)
    assert (context.shape, weights.shape) == ((B, D), (B, T))
    value, w, b = map(np.asarray, inputs)
    for i in range(B):
        exps = []
        for t in range(T):
            score = math.tanh(sum(value[i, t, d] * w[d] for d in range(D)) + b)
            exps.append(0.0 if masked and not mask[i, t] else math.exp(score))
        expected_weights = np.divide(exps, sum(exps) or 1.0)
        np.testing.assert_allclose(weights[i], expected_weights, atol=1e-12)
        expected_context = sum(
            a * h for a, h in zip(expected_weights, value[i], strict=True)
        )
        np.testing.assert_allclose(context[i], expected_context, atol=1e-12)


def chunked(value, w, b, mask=None):
    return chunked_attention(jnp.asarray, value, w, b, mask=mask, chunk=3)


FORMS = pytest.mark.parametrize(
    "attend", [attention, chunked], ids=["plain", "chunked"]
)


@FORMS
def test_a_fully_masked_sequence_is_zero_with_zero_gradients(attend, inputs, mask):
    def loss(value, w, b):
        attended = attend(value, w, b, mask=mask)
        return sum(jnp.sum(jnp.square(x - 2)) for x in attended), attended

    gradient = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    gradients, attended = gradient(*inputs)
    assert all(np.isfinite(x).all() for x in (*gradients, *attended))
    for array in (gradients[0], *attended):
        np.testing.assert_array_equal(array[1], 0)
        assert array[0].any()


def test_gradients_are_those_of_finite_differences(x64, inputs, mask):
    def read(value, w, b):
        return attention(value, w, b, mask=mask)

    check_grads(jax.jit(read), inputs, order=1)


def test_batched_equals_vmapped(x64, inputs, mask):
    value, w, b = inputs
    expected = attention(value, w, b, mask=mask)

    def single(value, mask):
        return attention(value, w, b, mask=mask)

    for x, y in zip(jax.vmap(single)(value, mask), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


def test_with_a_zero_kernel_it_is_the_mean_for_any_bias(inputs):
    value, w, _ = inputs
    for b in (-3.0, 0.0, 0.7):
        attended = attention(value, 0 * w, jnp.asarray(b))
        np.testing.assert_allclose(attended.weights, 1 / T, atol=1e-6)
        np.testing.assert_allclose(attended.context, value.mean(1), atol=1e-6)


def test_no_weight_is_above_e_squared_times_another_and_the_bound_is_reached(draw):
    w = jnp.ones(D)
    for value in (100 * draw(B, T, D), -jnp.ones((B, T, D)).at[:, 4].set(-1) * 100):
        weights = attention(value, w, jnp.zeros(())).weights
        ratio = weights.max(-1) / weights.min(-1)
        assert (ratio <= math.e**2 * (1 + 1e-5)).all()
    single = attention((-100 * jnp.ones((T, D))).at[4].set(100), w, 0.0)
    bound = math.e**2 / (math.e**2 + T - 1)
    np.testing.assert_allclose(single.weights[4], bound, rtol=1e-5)
    assert (weights <= bound * (1 + 1e-5)).all()


def test_permuting_or_repeating_the_steps_has_no_effect(x64, inputs):
    value, w, b = inputs
    context, weights = attention(value, w, b)
    order = np.random.default_rng(0).permutation(T)
    permuted = attention(value[:, order], w, b)
    np.testing.assert_allclose(permuted.context, context, atol=1e-12)
    np.testing.assert_allclose(permuted.weights, weights[:, order], atol=1e-12)
    repeated = attention(jnp.concatenate([value, value], 1), w, b)
    np.testing.assert_allclose(repeated.context, context, atol=1e-12)
    np.testing.assert_allclose(repeated.weights[:, :T], weights / 2, atol=1e-12)


def test_dtype_is_that_of_the_inputs(inputs):
    outputs = attention(*(x.astype(jnp.bfloat16) for x in inputs))
    assert isinstance(outputs, Attention)
    assert {x.dtype for x in outputs} == {jnp.dtype(jnp.bfloat16)}


@FORMS
def test_arguments_that_do_not_fit_are_refused(attend, inputs):
    value, w, b = inputs
    with pytest.raises(ValueError, match=r"^\w+: w \(4,\) must have the width of val"):
        attend(value, w[1:], b)
    with pytest.raises(TypeError, match="mask must be bool"):
        attend(value, w, b, mask=jnp.ones((B, T)))
    with pytest.raises(ValueError, match="mask .* does not broadcast"):
        attend(value, w, b, mask=jnp.ones((B, T - 1), bool))


def params_of(model):
    """Random parameters and biases; the output bias makes estimates positive."""
    init = functools.partial(model.init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), jnp.zeros((1, 1, F)))["params"]
    rng = np.random.default_rng(0)
    params = {
        name: jnp.asarray(rng.standard_normal(shapes[name].shape), jnp.float32)
        for name in sorted(shapes)
    }
    return params | {"output_bias": 9 + params["output_bias"]}


@pytest.fixture(params=["attention", "mean"])
def network(request):
    """A model with parameters."""
    model = FeedForwardAttention(pooling=request.param, hidden=D)
    return model, params_of(model)


def apply(network, *arguments, **options):
    model, params = network
    call = functools.partial(model.apply, train=False, **options)
    return jax.jit(call)({"params": params}, *arguments)


def read(network, *arguments):
    """Estimates and the record of the attention, with details."""
    estimates, sown = apply(network, *arguments, mutable=["attention", DETAILS])
    (record,) = records_of(sown, AttentionRecord)
    return estimates, record


def leaky(x):
    return x if x >= 0 else 0.01 * x


def test_the_network_equals_a_loop(draw, network):
    model, params = network
    x = np.asarray(draw(B, T, F), np.float64)
    p = {name: np.asarray(array, np.float64) for name, array in params.items()}

    def layer(name, vector):
        sums = vector @ p[f"{name}_kernel"] + p[f"{name}_bias"]
        return np.array([leaky(s) for s in sums])

    expected = []
    for sequence in x:
        h = [layer("input", step) for step in sequence]
        exps = [1.0] * T
        if model.pooling == "attention":
            w, b = p["attention_kernel"], p["attention_bias"]
            exps = [math.exp(math.tanh(v @ w + b)) for v in h]
        context = sum(e * v for e, v in zip(exps, h, strict=True)) / sum(exps)
        (y,) = layer("output", layer("hidden", context))
        expected.append(y)
    np.testing.assert_allclose(apply(network, x), expected, atol=1e-6)
    estimates, record = read(network, x)
    np.testing.assert_allclose(estimates, expected, atol=1e-6)
    np.testing.assert_allclose(record.weights.sum(-1), 1, atol=1e-6)


def test_padding_has_an_effect_unless_it_is_masked(draw, network):
    x, padding = draw(B, T, F), draw(B, 4, F)
    padded = jnp.concatenate([x, padding], 1)
    mask = jnp.arange(T + 4) < jnp.full((B, 1), T)
    expected = apply(network, x)
    np.testing.assert_allclose(apply(network, padded, mask), expected, atol=1e-6)
    # In the paper there is no mask: steps of padding are encoded as f(b_xh).
    zeros = jnp.concatenate([x, 0 * padding], 1)
    assert not np.isclose(apply(network, zeros), expected, rtol=1e-3).any()
    estimates, record = read(network, padded, mask)
    np.testing.assert_allclose(estimates, expected, atol=1e-6)
    np.testing.assert_array_equal(record.weights[..., T:], 0)
    np.testing.assert_allclose(weights_of(record.details), record.weights, atol=1e-6)


def test_chunked_training_has_the_same_gradients(draw, network, monkeypatch):
    model, params = network
    x = draw(B, T, F)

    def plain(encode, inputs, w, b, *, mask):
        return feedforward_attention(encode(inputs), w, b, mask=mask)

    def loss(params):
        return jnp.sum(jnp.sin(model.apply({"params": params}, x, train=True)))

    gradients = jax.grad(loss)(params)
    monkeypatch.setattr("models.feedforward.pooled_attention", plain)
    for name, gradient in jax.grad(loss)(params).items():
        assert gradient.any(), name
        np.testing.assert_allclose(gradients[name], gradient, atol=1e-6, err_msg=name)


def test_matrices_have_the_standard_deviation_of_he_initialisation():
    width = 401
    model = FeedForwardAttention("attention", width)
    init = jax.jit(functools.partial(model.init, train=False))
    params = init(jax.random.key(0), jnp.zeros((1, 1, F)))["params"]
    spread = {name: float(jnp.std(array)) for name, array in params.items()}
    np.testing.assert_allclose(spread["input_kernel"], math.sqrt(2 / F), rtol=0.1)
    np.testing.assert_allclose(spread["hidden_kernel"], math.sqrt(2 / width), rtol=0.02)
    np.testing.assert_allclose(spread["output_kernel"], math.sqrt(2 / width), rtol=0.2)
    np.testing.assert_allclose(
        spread["attention_kernel"], math.sqrt(1 / width), rtol=0.2
    )
    assert not any(params[name].any() for name in params if name.endswith("bias"))


def test_another_pooling_is_refused():
    message = "pooling is 'max': must be one of attention, mean"
    with pytest.raises(ValueError, match=message):
        params_of(FeedForwardAttention("max", D))


def test_the_default_fields_are_those_of_the_paper():
    model = FeedForwardAttention()
    assert (model.pooling, model.hidden) == ("attention", 100)
    assert params_of(model)["hidden_kernel"].shape == (100, 100)
