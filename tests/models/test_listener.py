"""Listen, Attend and Spell: the pyramid, padding, decoding, sampled characters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import CHAN, HIDDEN
from translators import (
    BATCH,
    TARGET,
    VOCAB,
    affine,
    encode,
    forward_with_records,
    lstm,
    quick_jit,
    softmax,
    start,
    step,
    translator,
)

from models.layers import BOS
from models.listener import ListenAttendSpell, mix_samples, pair_frames

B, STEPS, W = BATCH, TARGET, VOCAB
T, M = 11, 5  # frames and mel bands
LENGTHS = jnp.array([11, 8, 5])


def build(**fields):
    return translator(ListenAttendSpell, CHAN, fields)


def forward(model, variables, batch, rngs=None, train=False):
    """Logits, and weights [B, T, S]."""
    if not train:
        logits, records = forward_with_records(model, variables, batch, rngs)
        return logits, records["weights"][:, 0]
    apply = quick_jit(lambda x: model.apply(variables, x, train=True, rngs=rngs))
    return apply(batch), None


def test_halving_concatenates_pairs_of_frames_and_clears_padding():
    x = jnp.arange(1.0, B * T * M + 1).reshape(B, T, M)
    mask = jnp.arange(T) < LENGTHS[:, None]
    pairs, half = pair_frames(x, mask)
    assert pairs.shape == (B, 6, 2 * M)
    np.testing.assert_array_equal(half.sum(1), [6, 4, 3])  # ceil(length / 2)
    for b, i in np.ndindex(B, 6):
        for j in (0, 1):
            t = 2 * i + j
            expected = x[b, t] if t < LENGTHS[b] else np.zeros(M)
            np.testing.assert_array_equal(pairs[b, i, j * M : (j + 1) * M], expected)


@pytest.mark.parametrize("halvings", [0, 1, 2])
def test_each_halving_halves_the_positions(halvings):
    model, variables, batch = build(halvings=halvings)
    memory = encode(model, variables, batch["source"])
    length = LENGTHS
    for _ in range(halvings):
        length = -(-length // 2)
    np.testing.assert_array_equal(memory.mask.sum(1), length)
    assert memory.annotations.shape == (B, length.max(), 6)


@pytest.mark.parametrize("score", ["multiplicative", "location_aware"])
def test_padding_changes_nothing(score):
    model, variables, batch = build(score=score)
    logits, weights = forward(model, variables, batch)
    source = batch["source"]
    junk = jnp.full((B, 9, M), 1e3)
    frames = jnp.concatenate([source["frames"], junk], axis=1)
    mask = (jnp.arange(T + 9) < LENGTHS[:, None])[..., None]
    frames = jnp.where(mask, frames, 1e3)
    padded = {"source": {"frames": frames, "lengths": LENGTHS}}
    other, wide = forward(model, variables, padded | {"target": batch["target"]})
    np.testing.assert_allclose(other, logits, atol=1e-4)
    positions = weights.shape[-1]
    np.testing.assert_allclose(wide[..., :positions], weights, atol=1e-5)
    np.testing.assert_array_equal(wide[..., positions:], 0)


def test_the_speller_equals_its_equations_in_a_loop():
    model, variables, batch = build(score="multiplicative", layers=1)
    logits, weights = forward(model, variables, batch)
    memory = encode(model, variables, batch["source"])
    params = jax.tree.map(np.asarray, variables["params"])
    score, cell = params["cross_attention"]["scores"], params["stack"]["states_0"]
    for b in range(B):
        h = np.asarray(memory.annotations[b])[memory.mask[b]]
        carry, c = np.zeros(2 * HIDDEN), np.zeros(6)
        for i, character in enumerate([BOS, *batch["target"][b, :-1]]):
            y = params["embedding_table"][character]
            gates = affine(y, params["gates"]) + c @ params["context"]
            carry = lstm(gates, carry, cell)  # eq. 6
            s = carry[:HIDDEN]
            e = [(s @ score["w_query"]) @ (h_u @ score["w_key"]) for h_u in h]
            alpha = softmax(e)
            c = sum(a * h_u for a, h_u in zip(alpha, h, strict=True))  # eq. 7
            units = np.tanh(affine(np.concatenate([s, c]), params["character"]))
            expected = params["output"] @ units  # eq. 8
            np.testing.assert_allclose(weights[b, i, : len(h)], alpha, atol=1e-5)
            np.testing.assert_allclose(logits[b, i], expected, atol=1e-5)


def test_the_previous_context_enters_the_next_step():
    model, variables, batch = build()
    memory = encode(model, variables, batch["source"])
    carry = start(model, variables, memory, hypotheses=1)
    np.testing.assert_array_equal(carry.feed, 0)
    token = jnp.full((B, 1), BOS)
    outputs = [
        step(model, variables, carry._replace(feed=x), token, memory)[1]
        for x in (carry.feed, carry.feed + 1)
    ]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3


def test_characters_are_sampled_in_training_only_and_never_the_start():
    given, _ = forward(*build(sampling=0.0))
    model, variables, batch = build(sampling=1.0)
    rngs = {"sampling": jax.random.key(0)}
    for train, streams in ((False, rngs), (True, None)):
        actual, _ = forward(model, variables, batch, streams, train)
        np.testing.assert_allclose(actual, given, atol=1e-5)
    sampled, _ = forward(model, variables, batch, rngs, True)
    np.testing.assert_allclose(sampled[:, 0], given[:, 0], atol=1e-5)
    assert np.abs(sampled[:, 1:] - given[:, 1:]).max() > 1e-2


def test_a_certain_model_samples_its_most_probable_character():
    model, variables, batch = build(sampling=1.0)
    params = variables["params"]
    peak = jnp.zeros_like(params["output"]).at[6].set(1e4)
    bias = jnp.zeros_like(params["character"]["bias"]).at[:].set(9.0)
    kernel = jnp.zeros_like(params["character"]["kernel"])
    params = params | {"output": peak, "character": {"kernel": kernel, "bias": bias}}
    rngs = {"sampling": jax.random.key(0)}
    memory = encode(model, {"params": params}, batch["source"])
    previous = model.apply(
        {"params": params},
        batch["target"],
        memory,
        train=True,
        rngs=rngs,
        method="previous",
    )
    np.testing.assert_array_equal(previous, [[BOS] + [6] * (STEPS - 1)] * B)


def inputs(size, steps, rate, logits):
    """Given characters, all below 0, and the same with samples among them."""
    given = -1 - jnp.arange(size * steps).reshape(size, steps)
    return given, mix_samples(jax.random.key(0), given, logits, rate)


def test_the_rate_is_the_share_of_inputs_that_are_sampled():
    size, steps, rate = 41, 503, 0.1
    peaks = (jnp.arange(steps) + 3 * jnp.arange(size)[:, None]) % W
    given, mixed = inputs(size, steps, rate, 1e4 * jax.nn.one_hot(peaks, W))
    sampled = np.asarray(mixed >= 0)
    np.testing.assert_array_equal(mixed[:, 0], given[:, 0])
    np.testing.assert_array_equal(mixed[~sampled], given[~sampled])
    # A certain output is its own sample, which is the input of the next step.
    np.testing.assert_array_equal(
        mixed[:, 1:][sampled[:, 1:]], peaks[:, :-1][sampled[:, 1:]]
    )
    deviation = (rate * (1 - rate) / (size * (steps - 1))) ** 0.5
    assert abs(sampled[:, 1:].mean() - rate) < 4 * deviation
    # All steps, and all sequences, are sampled equally often.
    assert (
        abs(sampled[:, 1:].mean(0) - rate).max() < 5 * (rate * (1 - rate) / size) ** 0.5
    )
    assert (
        abs(sampled[:, 1:].mean(1) - rate).max()
        < 5 * (rate * (1 - rate) / steps) ** 0.5
    )


def test_samples_have_the_probabilities_of_the_output():
    size, steps = 41, 503
    probabilities = np.array([0.07, 0.63, 0.3])
    logits = jnp.broadcast_to(np.log(probabilities), (size, steps, 3))
    _, mixed = inputs(size, steps, 1.0, logits)
    for character, p in enumerate(probabilities):
        deviation = (p * (1 - p) / (size * (steps - 1))) ** 0.5
        assert abs(np.mean(mixed[:, 1:] == character) - p) < 4 * deviation
