"""The location-aware score, and the decoders that give it their previous weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU, LOCATION_AWARE, TRANSFORMER
from translators import TARGET, translator

from attention.scores import (
    SCORES,
    STEPWISE_SCORES,
    additive_scores,
    location_aware_scores,
)
from base.errors import FieldError
from models.bahdanau import Bahdanau
from models.transformer import Transformer

B, H, Q, K, D, E, A, R, C = 2, 3, 5, 7, 11, 13, 17, 4, 19


@pytest.fixture
def inputs(draw):
    sizes = {"D": D, "E": E, "A": A, "R": R, "C": C}
    axes = location_aware_scores.parameters.items()
    parameters = {name: draw(*map(sizes.__getitem__, x)) for name, x in axes}
    previous = jax.nn.softmax(draw(B, H, Q, K))
    return draw(B, H, Q, D), draw(B, H, K, E), parameters | {"previous": previous}


def test_without_previous_weights_it_is_the_additive_score(x64, inputs):
    query, key, p = inputs
    additive = [p[name] for name in additive_scores.parameters]
    scores = location_aware_scores(query, key, **p | {"previous": jnp.zeros((Q, K))})
    expected = additive_scores(query, key, *additive)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_shifted_keys_and_weights_shift_the_scores(x64, inputs):
    query, key, p = inputs
    key = jnp.pad(key, ((0, 0),) * 2 + ((R, R), (0, 0)))
    previous = jnp.pad(p["previous"], ((0, 0),) * 3 + ((R, R),))
    scores = location_aware_scores(query, key, **p | {"previous": previous})
    moved = location_aware_scores(
        query,
        jnp.roll(key, 2, axis=-2),
        **p | {"previous": jnp.roll(previous, 2, axis=-1)},
    )
    np.testing.assert_allclose(moved, jnp.roll(scores, 2, axis=-1), atol=1e-12)


def test_previous_weights_over_other_keys_are_refused(inputs):
    query, key, p = inputs
    with pytest.raises(ValueError, match=r"previous \(2, 3, 5, 6\) must have 7 keys"):
        location_aware_scores(query, key, **p | {"previous": p["previous"][..., 1:]})


def test_previous_weights_change_the_next_ones_and_follow_their_hypothesis():
    model, variables, batch = translator(Bahdanau, BAHDANAU, LOCATION_AWARE)
    memory = model.apply(variables, batch["source"], method="encode")
    carry = model.apply(variables, memory, 2, TARGET, method="start")
    peak = jax.nn.one_hot(jnp.array([0, 2]), memory.mask.shape[1])
    carry = carry._replace(attention=jnp.broadcast_to(peak, carry.attention.shape))
    token = jnp.ones((3, 2), jnp.int32)
    _, logits, _ = model.apply(variables, carry, token, memory, method="step")
    assert np.abs(logits[:, 0] - logits[:, 1]).max() > 1e-3
    swapped = carry.take(jnp.broadcast_to(jnp.array([1, 0]), (3, 2)))
    np.testing.assert_array_equal(swapped.attention, carry.attention[:, ::-1])


def test_attention_without_previous_weights_refuses_it():
    model = Transformer(**TRANSFORMER | {"cross_score": "location_aware"})
    batch = {"source": jnp.ones((1, 2), int), "target": jnp.ones((1, 2), int)}
    with pytest.raises(FieldError, match="cross_score is 'location_aware': must be"):
        model.init(jax.random.key(0), batch, train=False)
    assert STEPWISE_SCORES.keys() - SCORES == {"location_aware"}
