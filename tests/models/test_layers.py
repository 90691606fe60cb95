import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention.declaration import Scalar, score_function
from attention.scores import SCORES, STEPWISE_SCORES
from models.attention import Score
from models.layers import LayerNorm

BATCH, STEPS, WIDTH = 3, 5, 7


def test_a_score_has_separate_parameters_per_head():
    _, params = initial_parameters("additive", 2)
    shapes = jax.tree.map(jnp.shape, params)
    assert shapes == {"w_query": (2, 7, 11), "w_key": (2, 7, 11), "v": (2, 11)}


def initial_parameters(function, heads, width=7, hidden=11):
    x = jnp.ones((heads, 2, width))
    score = Score(function, heads=(heads,), hidden=hidden)
    return score, score.init(jax.random.key(0), x, x)["params"]


def test_the_cosine_strength_is_positive_and_initially_the_root_of_the_width():
    score, params = initial_parameters("cosine", 3)
    query = key = jnp.stack([jnp.eye(7)] * 3)
    for raw, expected in ((params["strength"], 7**0.5), (jnp.full(3, -5.0), 0.0067)):
        scores = score.apply({"params": {"strength": raw}}, query, key)
        np.testing.assert_allclose(scores, query * expected, rtol=2e-2)


@pytest.mark.parametrize(
    ("scalar", "raw", "value"),
    [
        (Scalar(), math.log(math.e - 1), 1.0),
        (Scalar(start=0.3), math.log(math.exp(0.3) - 1), 0.3),
        (Scalar(start=lambda width: width / 2), math.log(math.exp(3.5) - 1), 3.5),
        (Scalar(start=2.0, transform=(jnp.exp, math.log)), math.log(2), 2.0),
        (Scalar(start=-3.0, transform=(jnp.negative, lambda x: -x)), 3.0, -3.0),
    ],
)
@pytest.mark.parametrize("heads", [(), (5,)])
def test_a_scalar_starts_at_its_declared_value(scalar, raw, value, heads, monkeypatch):
    @score_function(factor=scalar)
    def scores(query, key, factor):
        return factor * query @ jnp.swapaxes(key, -1, -2)

    monkeypatch.setitem(SCORES, "scores", scores)
    monkeypatch.setitem(STEPWISE_SCORES, "scores", scores)
    x = jnp.broadcast_to(jnp.eye(7), (*heads, 7, 7))
    score = Score("scores", heads=heads)
    product, variables = score.init_with_output(jax.random.key(0), x, x)
    assert variables["params"]["factor"].shape == heads
    np.testing.assert_allclose(variables["params"]["factor"], raw, rtol=1e-6)
    np.testing.assert_allclose(product, value * x, rtol=1e-6)


@pytest.mark.parametrize("function, name", [("additive", "v"), ("general", "w")])
def test_the_initial_range_does_not_depend_on_the_number_of_heads(function, name):
    fan = {"v": 11, "w": 7 + 7}[name]
    for heads in (2, 997):
        maximum = jnp.abs(initial_parameters(function, heads)[1][name]).max()
        assert 0.8 < maximum / np.sqrt(6 / fan) <= 1


def test_layer_norm_is_computed_in_float32(draw):
    x = jnp.asarray(3 + 2 * draw(BATCH, STEPS, WIDTH), jnp.bfloat16)
    params = {"params": {"scale": draw(WIDTH), "bias": draw(WIDTH)}}
    normed = LayerNorm().apply(params, x)
    assert normed.dtype == jnp.float32
    expected = LayerNorm().apply(params, x.astype(jnp.float32))
    np.testing.assert_array_equal(normed, expected)
