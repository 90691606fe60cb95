import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU, HIDDEN
from fields import LUONG as PAPER
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    VOCAB,
    affine,
    encode,
    forward,
    forward_with_records,
    lstm,
    quick_jit,
    start,
    step,
    translator,
)

from models.bahdanau import Bahdanau
from models.luong import Luong

DEEP = PAPER | dict(cell="rnn", layers=2, decoder_layers=3, residual="dense")
SINGLE_LAYER = {"layers": 1}
LENGTHS = np.asarray([7, 4, 7])  # of the sources


def build(*changes):
    return translator(Luong, *changes)


def test_the_model_equals_a_loop_of_section_3():
    model, variables, batch = build(PAPER)
    params = jax.tree.map(np.asarray, variables["params"])
    table, stack, w = params["embedding_table"], params["stack"], params["feed"]
    encoder = [params["encoder"][f"forward_{layer}"] for layer in range(2)]
    score = params["cross_attention"]["scores"]["w"]
    expected = np.zeros((BATCH, TARGET, VOCAB))
    for b in range(BATCH):
        source = [table[token] for token in batch["source"][b] if token]
        states, annotations = [np.zeros(2 * HIDDEN)] * 2, []
        for x in source[-2::-1] + source[-1:]:  # reversed, except for EOS
            for layer, cell in enumerate(encoder):
                states[layer] = lstm(
                    affine(x, cell["input"]), states[layer], cell["state"]
                )
                x = states[layer][:HIDDEN]
            annotations.append(x)
        attentional = np.zeros(HIDDEN)
        for t, token in enumerate([1, *np.asarray(batch["target"])[b, :-1]]):
            gates = affine(table[token], params["gates"]) + attentional @ w
            states[0] = lstm(gates, states[0], stack["states_0"])
            gates = affine(states[0][:HIDDEN], stack["gates_0"])
            states[1] = lstm(gates, states[1], stack["states_1"])
            query = states[1][:HIDDEN]
            e = [query @ score @ annotation for annotation in annotations]
            a = np.exp(e) / np.exp(e).sum()
            c = sum(x * h for x, h in zip(a, annotations, strict=True))
            attentional = c @ params["attend_context"] + query @ params["attend_state"]
            attentional = np.tanh(attentional)
            expected[b, t] = params["output"] @ attentional
    logits = forward(model, variables, batch)
    np.testing.assert_allclose(logits, expected, atol=1e-4)  # float32, values up to 10


@pytest.mark.parametrize("layers, decoder_layers", [(1, 3), (3, 1), (2, 0)])
def test_layers_of_the_decoder_start_from_their_counterparts_from_the_last_down(
    layers, decoder_layers
):
    sizes = {"layers": layers, "decoder_layers": decoder_layers}
    model, variables, batch = build(DEEP, sizes)
    equal, _, _ = build(DEEP, {"layers": layers, "decoder_layers": 0})
    carries = encode(equal, variables, batch["source"]).start
    actual = encode(model, variables, batch["source"]).start
    assert len(actual) == (decoder_layers or layers)
    for i, carry in enumerate(reversed(actual)):
        expected = carries[max(layers - 1 - i, 0)]
        np.testing.assert_array_equal(carry, expected)


@pytest.mark.parametrize("family", [Luong, Bahdanau])
def test_without_its_score_gradient_the_encoder_learns_from_contexts_only(family):
    fields = PAPER | dict(layers=1) if family is Luong else BAHDANAU
    model, variables, batch = translator(family, fields)
    stopped = model.clone(score_gradient=False)

    def gradient(model):
        def loss(params):
            logits = model.apply({"params": params}, batch, train=False)
            return jnp.sum(jnp.sin(logits))

        return quick_jit(jax.value_and_grad(loss))(variables["params"])

    (value, full), (same, cut) = gradient(model), gradient(stopped)
    np.testing.assert_allclose(same, value, rtol=1e-6)
    for name in full:
        changed = any(
            np.abs(x - y).max() > 1e-3
            for x, y in zip(*map(jax.tree.leaves, (full[name], cut[name])), strict=True)
        )
        assert changed == (name in ("encoder", "embedding_table")), name


def test_input_feeding_changes_only_later_steps():
    model, variables, batch = build(PAPER)
    off, _, _ = build(PAPER, {"input_feeding": False})
    params = dict(variables["params"])
    feed = params.pop("feed")
    with_feeding = forward(model, variables, batch)
    without_feeding = forward(off, {"params": params}, batch)
    change = np.abs(with_feeding - without_feeding).max((0, 2))
    assert change[0] < 1e-5 and (change[1:] > 1e-3).all()
    zero = {"params": params | {"feed": jnp.zeros_like(feed)}}
    np.testing.assert_allclose(forward(model, zero, batch), without_feeding, atol=1e-5)
    # The attentional vector that gives a step's logits is fed to the next step.
    memory = encode(model, variables, batch["source"])
    carry = start(model, variables, memory, hypotheses=1)
    assert not np.any(carry.feed)
    token = jnp.ones((BATCH, 1), jnp.int32)
    carry, logits, _ = step(model, variables, carry=carry, token=token, memory=memory)
    np.testing.assert_allclose(carry.feed @ params["output"].T, logits, atol=1e-5)


def test_local_m_attends_to_a_window_around_the_step():
    _, records = forward_with_records(*build(PAPER, {"alignment": "local_m"}))
    weights = records["weights"][:, 0]
    for b, length in enumerate(LENGTHS):
        for t in range(TARGET):
            center = min(t, length - 1)  # the target may be longer than the source
            for s in range(SOURCE):
                inside = abs(s - center) <= PAPER["window"] and s < length
                assert (weights[b, t, s] > 0) == inside
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_local_p_attends_to_a_window_around_its_predicted_position():
    model, variables, batch = build(PAPER, {"alignment": "local_p"})
    _, records = forward_with_records(model, variables, batch)
    weights, position = records["weights"][:, 0], records["position"][:, 0]
    assert position.shape == (BATCH, TARGET)
    assert (position > 0).all() and (position < LENGTHS[:, None]).all()
    far = np.abs(np.arange(SOURCE) - position[..., None]) > PAPER["window"]
    assert far.any() and not np.any(weights[far])
    assert not np.any(weights[1, :, LENGTHS[1] :])
    # As in eq. 10, weights are not normalised again after the Gaussian.
    sums = weights.sum(-1)
    assert (sums < 1).all() and sums.max() > 0.1


def test_a_hard_alignment_without_a_stream_takes_the_most_probable_position():
    fields = PAPER | SINGLE_LAYER
    model, variables, batch = build(fields, {"alignment": "hard"})
    logits, records = forward_with_records(model, variables, batch)
    assert set(records) == {"weights"}
    weights = records["weights"][:, 0]
    np.testing.assert_array_equal(np.sort(weights)[..., -1], 1)
    np.testing.assert_array_equal(weights.sum(-1), 1)
    # The first step does not depend on earlier attention.
    _, soft = forward_with_records(*build(fields))
    highest = soft["weights"][:, 0, 0].argmax(-1)
    np.testing.assert_array_equal(weights[:, 0].argmax(-1), highest)
    gumbel, _, _ = build(fields, {"alignment": "gumbel"})
    np.testing.assert_array_equal(forward(gumbel, variables, batch), logits)


def test_a_hard_alignment_draws_with_its_stream_and_records_the_log_probability():
    fields = PAPER | SINGLE_LAYER
    model, variables, batch = build(fields, {"alignment": "hard"})
    _, soft = forward_with_records(*build(fields))
    first = np.asarray(soft["weights"][:, 0, 0])  # no draw precedes the first step
    log_first = np.log(first, where=first > 0, out=0 * first)
    first_entropy = -np.sum(first * log_first, axis=-1)
    draws = []
    for seed in range(5):
        rngs = {"alignment": jax.random.key(seed)}
        _, records = forward_with_records(model, variables, batch, rngs=rngs)
        assert set(records) == {"weights", "log_probability", "entropy"}
        weights = records["weights"][:, 0]
        np.testing.assert_array_equal(np.sort(weights)[..., -1], 1)
        np.testing.assert_array_equal(weights.sum(-1), 1)
        assert not np.any(weights[1, :, LENGTHS[1] :])
        probability = np.sum(weights[:, 0] * first, axis=-1)
        log_prob, entropy = records["log_probability"], records["entropy"]
        assert log_prob.shape == entropy.shape == (BATCH, 1, TARGET)
        np.testing.assert_allclose(log_prob[:, 0, 0], np.log(probability), atol=1e-5)
        np.testing.assert_allclose(entropy[:, 0, 0], first_entropy, atol=1e-5)
        draws.append(weights.argmax(-1))
    assert (np.stack(draws).std(0) > 0).mean() > 0.5
