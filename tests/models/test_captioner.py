import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import HIDDEN, VINYALS, XU
from flax import linen as nn
from translators import (
    BATCH,
    TARGET,
    affine,
    encode,
    forward_with_records,
    lstm,
    quick_jit,
    sigmoid,
    translator,
)

from models.captioner import ImageEncoder, ShowAndTell, ShowAttendTell
from models.layers import Dense

DEPTH, WIDTH = 5, 7  # of the maps, and of an annotation


@pytest.mark.parametrize("selector", [True, False])
def test_the_model_equals_a_loop_of_the_paper(selector):
    model, variables, batch = translator(ShowAttendTell, XU, {"selector": selector})
    actual, records = forward_with_records(model, variables, batch)
    params = jax.tree.map(np.asarray, variables["params"])
    score = params["cross_attention"]["scores"]
    for b in range(BATCH):
        flat = np.asarray(batch["source"][b]).reshape(-1, DEPTH)
        annotations = affine(flat, params["annotate"]["project"])
        carry = np.tanh(affine(annotations.mean(0), params["bridge"]))
        word = 1
        for t in range(TARGET):
            h = carry[:HIDDEN]
            table = params["embedding_table"]
            hidden = np.tanh(annotations @ score["w_key"] + h @ score["w_query"])
            alpha = np.exp(hidden @ score["v"])
            alpha /= alpha.sum()
            np.testing.assert_allclose(records["weights"][b, 0, t], alpha, atol=1e-5)
            z = alpha @ annotations
            if selector:
                z = z * sigmoid(h @ params["beta"] + params["beta_bias"])
            x = affine(table[word], params["gates"]) + z @ params["context"]
            carry = lstm(x, carry, params["stack"]["states_0"])
            units = table[word] + affine(carry[:HIDDEN], params["from_state"])
            units = units + z @ params["from_context"]["kernel"]
            logits = params["output"] @ np.tanh(units)
            np.testing.assert_allclose(actual[b, t], logits, atol=1e-4)
            word = int(batch["target"][b, t])


def test_without_attention_the_image_is_the_word_before_the_first():
    model, variables, batch = translator(ShowAndTell, VINYALS)
    params = jax.tree.map(np.asarray, variables["params"])
    actual, records = forward_with_records(model, variables, batch)
    assert not records
    flat = np.asarray(batch["source"]).reshape(BATCH, -1, DEPTH)
    annotations = affine(flat, params["annotate"]["project"])
    x = affine(annotations.mean(1) @ params["picture"], params["gates"])
    for b in range(BATCH):
        weights = params["stack"]["states_0"]
        carry = lstm(x[b], np.zeros(2 * HIDDEN), weights)
        for word, logits in zip((1, *batch["target"][b, :-1]), actual[b], strict=True):
            embedded = params["embedding_table"][word]
            carry = lstm(affine(embedded, params["gates"]), carry, weights)
            units = embedded + affine(carry[:HIDDEN], params["from_state"])
            np.testing.assert_allclose(
                params["output"] @ np.tanh(units), logits, atol=1e-4
            )


def test_positions_are_annotated_row_by_row():
    model, variables, batch = translator(ShowAttendTell, XU)
    annotations = encode(model, variables, batch["source"]).annotations
    changed = batch["source"].at[:, 1, 2].add(1)
    other = encode(model, variables, changed).annotations
    differs = np.abs(other - annotations).max((0, 2)) > 0
    assert differs.tolist() == [False] * 5 + [True]


def test_annotations_of_the_cnn_depend_on_pixels_near_their_position():
    encoder = ImageEncoder("cnn", (8,), 0.0)
    image = jnp.zeros((1, 15, 32, 3), jnp.uint8)  # 4 x 8 positions, the last row cut
    params = encoder.init(jax.random.key(0), image, train=False)
    annotate = quick_jit(functools.partial(encoder.apply, params, train=False))
    blank, other = annotate(image), annotate(image.at[0, 14, 30].set(255))
    assert blank.shape == (1, 4 * 8, 8)
    differs = (blank != other).any(-1).reshape(4, 8)
    assert differs[3, 7] and not differs[:1].any() and not differs[:, :5].any()


HARD = {"alignment": "hard", "soft_prob": 0.5}


def test_soft_weights_replace_the_draws_of_the_whole_batch():
    hard, variables, batch = translator(ShowAttendTell, XU, HARD)
    soft = forward_with_records(translator(ShowAttendTell, XU)[0], variables, batch)[0]
    outcomes = set()
    for seed in range(12):
        rngs = {"alignment": jax.random.key(seed)}
        logits, records = forward_with_records(hard, variables, batch, rngs)
        drawn = np.isin(records["weights"], (0, 1)).all(-1)
        assert drawn.all() or not drawn.any()  # the whole batch, in each step
        outcomes.add(bool(drawn.all()))
        if drawn.all():
            assert (records["log_probability"] < 0).all()
        else:
            assert (records["log_probability"] == 0).all()
            np.testing.assert_allclose(logits, soft, atol=1e-5)
    assert outcomes == {True, False}


def test_the_first_layer_reads_pixels_between_minus_1_and_1():
    read = []

    def record(call, args, kwargs, context):
        if isinstance(context.module, Dense):
            read.append(args[0])
        return call(*args, **kwargs)

    encoder = ImageEncoder("cnn", (WIDTH,), 0.0)
    for value, expected in ((0, -1), (51, -0.6), (255, 1)):
        image = jnp.full((1, 8, 12, 3), value, jnp.uint8)
        with nn.intercept_methods(record):
            encoder.init(jax.random.key(0), image, train=False)
        np.testing.assert_allclose(read[-1], expected, atol=1e-6)
