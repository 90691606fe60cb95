import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from translators import (
    affine,
    check_dropout_sites,
    descend,
    lstm,
    normal_like,
    quick_jit,
    sigmoid,
)

from base.records import AttentionRecord, DrawRecord, collect
from models.captioner import ImageEncoder, ShowAndTell, ShowAttendTell
from models.layers import Dense

B, T, W, ROWS, COLUMNS, DEPTH = 3, 5, 23, 2, 3, 7
EMBEDDING, HIDDEN, SCORE, WIDTH = 13, 11, 17, 19
PLAIN = dict(
    vocab_size=W,
    cell="lstm",
    embedding=EMBEDDING,
    hidden=HIDDEN,
    dropout=0.0,
    init_scheme="standard",
    encoder="maps",
    channels=(WIDTH,),
)
PAPER = PLAIN | dict(
    score="additive",
    alignment="global",
    score_hidden=SCORE,
    max_length=29,
    window=2,
    temperature=1.0,
    selector=True,
    soft_prob=0.0,
)
BOTH = pytest.mark.parametrize(
    "family, fields", [(ShowAttendTell, PAPER), (ShowAndTell, PLAIN)]
)


def batch_of(fields):
    rng = np.random.default_rng(0)
    shape = (B, ROWS, COLUMNS, DEPTH)
    source = rng.standard_normal(shape).astype(np.float32)
    if fields["encoder"] == "cnn":
        source = rng.integers(0, 256, (B, 8, 12, 3)).astype(np.uint8)
    target = rng.integers(4, W, (B, T))
    return {"source": jnp.asarray(source), "target": jnp.asarray(target)}


@functools.cache
def built(family, fields):
    fields = dict(fields)
    model, batch = family(**fields), batch_of(fields)
    init = functools.partial(model.init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), batch)["params"]
    return model, {"params": normal_like(shapes)}, batch


def build(family, fields, **changes):
    return built(family, tuple((fields | changes).items()))


@functools.partial(quick_jit, static_argnums=0)
def forward(model, variables, batch, rng=None):
    """Logits of the full pass, and the collections that it sows."""
    rngs = None if rng is None else {"alignment": rng}
    return model.apply(
        variables, batch, train=False, rngs=rngs, mutable=["attention", "reinforce"]
    )


def weights_of(sown):
    (record,) = collect(sown, AttentionRecord)
    return record.weights[:, 0]


@BOTH
@pytest.mark.parametrize("encoder", ["maps", "cnn"])
def test_steps_equal_the_full_pass(family, fields, encoder):
    channels = (8, WIDTH) if encoder == "cnn" else (WIDTH,)
    model, variables, batch = build(family, fields, encoder=encoder, channels=channels)
    expected, _ = forward(model, variables, batch)
    memory = model.apply(variables, batch["source"], method="encode")
    carry = model.apply(variables, memory, 2, T, method="start")
    token = jnp.full((B, 2), 1)
    for t in range(T):
        carry, logits, _ = model.apply(variables, carry, token, memory, method="step")
        for hypothesis in range(2):
            np.testing.assert_allclose(logits[:, hypothesis], expected[:, t], atol=2e-5)
        token = jnp.repeat(batch["target"][:, t : t + 1], 2, axis=1)


@pytest.mark.parametrize("selector", [True, False])
def test_the_model_equals_a_loop_of_the_paper(selector):
    model, variables, batch = build(ShowAttendTell, PAPER, selector=selector)
    actual, sown = forward(model, variables, batch)
    params = jax.tree.map(np.asarray, variables["params"])
    score = params["cross_attention"]["scores"]
    for b in range(B):
        flat = np.asarray(batch["source"][b]).reshape(-1, DEPTH)
        annotations = affine(flat, params["annotate"]["project"])
        carry = np.tanh(affine(annotations.mean(0), params["bridge"]))
        word = 1
        for t in range(T):
            h = carry[:HIDDEN]
            table = params["embedding_table"]
            hidden = np.tanh(annotations @ score["w_key"] + h @ score["w_query"])
            alpha = np.exp(hidden @ score["v"])
            alpha /= alpha.sum()
            np.testing.assert_allclose(weights_of(sown)[b, t], alpha, atol=1e-5)
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
    model, variables, batch = build(ShowAndTell, PLAIN)
    params = jax.tree.map(np.asarray, variables["params"])
    actual, sown = forward(model, variables, batch)
    assert not sown
    flat = np.asarray(batch["source"]).reshape(B, -1, DEPTH)
    annotations = affine(flat, params["annotate"]["project"])
    x = affine(annotations.mean(1) @ params["picture"], params["gates"])
    for b in range(B):
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
    model, variables, batch = build(ShowAttendTell, PAPER)
    annotations = model.apply(variables, batch["source"], method="encode").annotations
    changed = batch["source"].at[:, 1, 2].add(1)
    other = model.apply(variables, changed, method="encode").annotations
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


@BOTH
def test_it_overfits_one_batch(family, fields):
    model, variables, batch = build(family, fields, dropout=0.0)

    def loss(params):
        logits = model.apply({"params": params}, batch, train=True)
        target = batch["target"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()

    losses = descend(loss, variables["params"], 0.02, 200)
    assert losses[0] > 1.5 and losses[-1] < 0.05


def test_soft_weights_replace_the_draws_of_the_whole_batch():
    batch = build(ShowAttendTell, PAPER)[-1]
    hard, variables, _ = build(ShowAttendTell, PAPER, alignment="hard", soft_prob=0.5)
    soft, _ = forward(build(ShowAttendTell, PAPER)[0], variables, batch)
    outcomes = set()
    for seed in range(12):
        logits, sown = forward(hard, variables, batch, jax.random.key(seed))
        (draw,) = collect(sown, DrawRecord)
        drawn = np.isin(weights_of(sown), (0, 1)).all(-1)
        assert drawn.all() or not drawn.any()  # the whole batch, in each step
        outcomes.add(bool(drawn.all()))
        if drawn.all():
            assert (draw.log_probability < 0).all()
        else:
            assert (draw.log_probability == 0).all()
            np.testing.assert_allclose(logits, soft, atol=1e-5)
    assert outcomes == {True, False}


def test_in_evaluation_a_hard_alignment_selects_the_most_probable_position():
    batch = build(ShowAttendTell, PAPER)[-1]
    hard, variables, _ = build(ShowAttendTell, PAPER, alignment="hard", soft_prob=0.5)
    _, sown = forward(hard, variables, batch)
    _, soft = forward(build(ShowAttendTell, PAPER)[0], variables, batch)
    weights = weights_of(sown)
    assert np.isin(weights, (0, 1)).all()
    # Only the first step: the states of later ones depend on the selected positions.
    assert (weights[:, 0].argmax(-1) == weights_of(soft)[:, 0].argmax(-1)).all()


@pytest.mark.parametrize(
    "family, changes, message",
    [
        (ShowAttendTell, {"encoder": "vgg"}, "encoder is 'vgg': must be one of cnn"),
        (
            ShowAttendTell,
            {"soft_prob": 1.5},
            "soft_prob is 1.5: must be at least 0 and at most 1",
        ),
        (
            ShowAndTell,
            {"channels": ()},
            r"channels is \(\): must be a list of one or more widths",
        ),
        (ShowAttendTell, {"alignment": "softer"}, "alignment is 'softer'"),
    ],
)
def test_a_field_out_of_range_is_refused(family, changes, message):
    fields = PAPER if family is ShowAttendTell else PLAIN
    with pytest.raises(ValueError, match=message):
        build(family, fields, **changes)


@BOTH
def test_dropout_applies_to_embeddings_annotations_states_and_outputs(family, fields):
    model, variables, batch = build(family, fields, dropout=0.25)
    sites = {
        (B, ROWS * COLUMNS, WIDTH): 1,
        (B, T, EMBEDDING): 2,  # of the previous word, and of the deep output
        (B, T, HIDDEN): 1,
    }
    check_dropout_sites(model, variables, batch, sites)


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
