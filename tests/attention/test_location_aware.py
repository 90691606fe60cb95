"""The location-aware score, and the decoders that give it their previous weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU, LUONG, TRANSFORMER
from jax.test_util import check_grads
from translators import TARGET, forward_with_records, normal_like, translator

from attention.core import attend
from attention.scores import (
    SCORES,
    STEPWISE_SCORES,
    additive_scores,
    location_aware_scores,
)
from base.errors import FieldError
from models.bahdanau import Bahdanau
from models.captioner import ShowAttendTell
from models.luong import Luong
from models.transformer import Transformer

B, H, Q, K, D, E, A, R, C = 2, 3, 5, 7, 11, 13, 17, 4, 19
LOCATION_AWARE = {"score": "location_aware"}


@pytest.fixture
def inputs(draw):
    def make(*heads):
        sizes = {"D": D, "E": E, "A": A, "R": R, "C": C}
        axes = location_aware_scores.parameters
        parameters = {
            n: draw(*heads, *map(sizes.__getitem__, x)) for n, x in axes.items()
        }
        previous = jax.nn.softmax(draw(B, H, Q, K))
        return draw(B, H, Q, D), draw(B, H, K, E), parameters | {"previous": previous}

    return make


def test_score_equals_a_loop_with_parameters_per_head(x64, inputs):
    query, key, parameters = inputs(H)
    actual = location_aware_scores(query, key, **parameters)
    assert actual.shape == (B, H, Q, K)
    p = {name: np.asarray(x) for name, x in parameters.items()}
    for b, h, i, j in np.ndindex(B, H, Q, K):
        f = np.zeros(C)
        for r in range(R):
            k = j + r - R // 2
            if 0 <= k < K:
                f += p["filters"][h, r] * p["previous"][b, h, i, k]
        hidden = np.asarray(query)[b, h, i] @ p["w_query"][h]
        hidden = hidden + np.asarray(key)[b, h, j] @ p["w_key"][h]
        expected = p["v"][h] @ np.tanh(hidden + f @ p["w_location"][h])
        np.testing.assert_allclose(actual[b, h, i, j], expected, atol=1e-12)


def test_without_previous_weights_it_is_the_additive_score(x64, inputs):
    query, key, p = inputs()
    additive = [p[name] for name in additive_scores.parameters]
    scores = location_aware_scores(query, key, **p | {"previous": jnp.zeros((Q, K))})
    expected = additive_scores(query, key, *additive)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


def test_shifted_keys_and_weights_shift_the_scores(x64, inputs):
    query, key, p = inputs()
    inner = {
        n: jnp.pad(x, ((0, 0),) * 2 + ((R, R), (0, 0))) for n, x in {"k": key}.items()
    }
    previous = jnp.pad(p["previous"], ((0, 0),) * 3 + ((R, R),))
    scores = location_aware_scores(query, inner["k"], **p | {"previous": previous})
    moved = location_aware_scores(
        query,
        jnp.roll(inner["k"], 2, axis=-2),
        **p | {"previous": jnp.roll(previous, 2, axis=-1)},
    )
    np.testing.assert_allclose(moved, jnp.roll(scores, 2, axis=-1), atol=1e-12)


def test_projected_keys_batches_and_jit_give_the_same_scores(x64, inputs):
    query, key, p = inputs(H)
    expected = location_aware_scores(query, key, **p)
    projected = location_aware_scores.project(key, **p)
    actual = location_aware_scores.compare(query, projected, **p)
    np.testing.assert_allclose(actual, expected, atol=1e-12)
    axes = {name: None for name in p} | {"previous": 0}
    heads = jax.vmap(lambda q, k, p: location_aware_scores(q, k, **p))
    mapped = jax.jit(jax.vmap(heads, in_axes=(0, 0, axes)))(query, key, p)
    np.testing.assert_allclose(mapped, expected, atol=1e-12)


def test_gradients_are_those_of_finite_differences(x64, inputs):
    query, key, parameters = inputs()

    def score(*x):
        return location_aware_scores(*x[:2], **x[2])

    check_grads(jax.jit(score), (query, key, parameters), order=1)


def test_masked_keys_weigh_nothing(inputs, draw):
    query, key, parameters = inputs()
    mask = (jnp.arange(K) < 4) & (jnp.arange(Q) != 1)[:, None]
    scores = location_aware_scores(query, key, **parameters)
    context, weights = attend(scores, draw(B, H, K, E), mask=mask)
    np.testing.assert_array_equal(weights[..., 4:], 0)
    np.testing.assert_array_equal(context[:, :, 1], 0)


def test_previous_weights_over_other_keys_are_refused(inputs):
    query, key, p = inputs()
    with pytest.raises(ValueError, match=r"previous \(2, 3, 5, 6\) must have 7 keys"):
        location_aware_scores(query, key, **p | {"previous": p["previous"][..., 1:]})


CAPTIONER = dict(
    vocab_size=23,
    cell="lstm",
    embedding=13,
    hidden=11,
    dropout=0.0,
    channels=(7,),
    score_hidden=19,
)


def built(family, fields):
    if family is not ShowAttendTell:
        return translator(family, fields, LOCATION_AWARE)
    model = family(**fields | LOCATION_AWARE)
    rng = np.random.default_rng(0)
    maps = jnp.asarray(rng.standard_normal((3, 2, 3, 5)), jnp.float32)
    batch = {"source": maps, "target": jnp.asarray(rng.integers(4, 23, (3, TARGET)))}
    shapes = jax.eval_shape(
        lambda: model.init(jax.random.key(0), batch, train=False)["params"]
    )
    return model, {"params": normal_like(shapes)}, batch


@pytest.mark.parametrize(
    ("family", "fields"),
    [(Bahdanau, BAHDANAU), (Luong, LUONG), (ShowAttendTell, CAPTIONER)],
)
def test_decoding_step_by_step_equals_the_full_pass(family, fields):
    model, variables, batch = built(family, fields)
    logits, records = forward_with_records(model, variables, batch)
    memory = model.apply(variables, batch["source"], method="encode")
    carry = model.apply(variables, memory, 1, TARGET, method="start")
    np.testing.assert_array_equal(carry.attention, 0)
    token = jnp.ones((3, 1), jnp.int32)
    for t in range(TARGET):
        carry, step, _ = model.apply(variables, carry, token, memory, method="step")
        np.testing.assert_allclose(step[:, 0], logits[:, t], atol=1e-4)
        weights = records["weights"][:, 0, t]
        np.testing.assert_allclose(carry.attention[:, 0], weights, atol=1e-5)
        token = batch["target"][:, t : t + 1]


def test_previous_weights_change_the_next_ones_and_follow_their_hypothesis():
    model, variables, batch = built(Bahdanau, BAHDANAU)
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
