import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import (
    BATCH,
    LOOPS,
    affine,
    descend,
    encode,
    forward,
    instances,
    quick_jit,
    shapes_of,
    softmax,
    start,
    step,
    translator,
)

from attention.scores import SCORES
from base.errors import FieldError
from base.records import AttentionRecord, records_of
from models.cells import CELLS
from models.pointer import PointerNetwork
from tasks.common.losses import smoothed_cross_entropy

INPUTS = 7
STEPS = INPUTS + 1
EMBEDDING, HIDDEN, SCORE, MAX_INPUTS = 13, 11, 19, 17
PAPER = dict(
    encoder="recurrent",
    process_steps=0,
    output="pointer",
    glimpses=0,
    score="additive",
    cell="lstm",
    embedding=EMBEDDING,
    hidden=HIDDEN,
    score_hidden=SCORE,
    max_inputs=MAX_INPUTS,
    init_scheme="standard",
)
ORDER = PAPER | dict(encoder="process", process_steps=2, glimpses=1, cell="gru")
ATTENTION = PAPER | {"output": "attention"}
NONE = PAPER | {"output": "none"}
ALL = pytest.mark.parametrize(
    "fields",
    [PAPER, ORDER, ATTENTION, NONE],
    ids=["paper", "order", "attention", "none"],
)


def real_steps(batch):
    """[B, T] bool, True up to the end symbol."""
    return np.arange(STEPS) <= np.asarray(batch["lengths"])[:, None]


class Loop:
    """The papers' equations for one instance, without padding."""

    def __init__(self, fields, params):
        self.fields, self.params = fields, jax.tree.map(np.asarray, params)
        self.cell = LOOPS[fields["cell"]]

    def score(self, w, query, keys):
        query = query @ w["w_query"]
        return np.array([w["v"] @ np.tanh(key @ w["w_key"] + query) for key in keys])

    def read(self, w, query, values):
        return softmax(self.score(w, query, values)) @ values

    def encode(self, x):
        """The e_j and the initial state of the decoder."""
        p, embedded = self.params, x @ self.params["table"]["inputs"]
        state = np.zeros(CELLS[self.fields["cell"]].carry_width * HIDDEN)
        if self.fields["encoder"] == "recurrent":
            outputs = []
            for embedding in embedded:
                gates = affine(embedding, p["encoder_gates"])
                state = self.cell(gates, state, p["encoder_state"])
                outputs.append(state[:HIDDEN])
            return np.array(outputs), state
        m = affine(np.maximum(affine(embedded, p["read_0"]), 0), p["read_1"])
        read = np.zeros(HIDDEN)
        for _ in range(self.fields["process_steps"]):
            gates = affine(read, p["process"]["input"])
            state = self.cell(gates, state, p["process"]["state"])
            read = self.read(p["process"]["score"], state[:HIDDEN], m)
        state = np.concatenate([state[:HIDDEN], read])
        return m, np.tanh(affine(state, p["bridge"]))

    def __call__(self, x, target):
        p, (encoded, state) = self.params, self.encode(x)
        logits = []
        for token in [0, *target]:
            embedded = p["table"]["start"][0]
            if token:
                embedded = x[token - 1] @ p["table"]["inputs"]
            gates = affine(embedded, p["decoder_gates"])
            state = self.cell(gates, state, p["decoder_state"])
            query = state[:HIDDEN]
            if self.fields["output"] == "pointer":
                for glimpse in range(self.fields["glimpses"]):
                    query = query + self.read(p[f"reads_{glimpse}"], query, encoded)
                keys = np.concatenate([p["end"], encoded])
                logits.append(self.score(p["pointer"], query, keys))
                continue
            if self.fields["output"] == "attention":
                context = self.read(p["reads_0"], query, encoded)
                query = np.concatenate([query, context])
            logits.append(affine(query, p["classes"])[: len(x) + 1])
        return np.array(logits)


@ALL
def test_the_model_equals_a_loop_of_the_papers_over_unpadded_instances(fields):
    model, variables, batch = translator(PointerNetwork, fields)
    loop = Loop(fields, variables["params"])
    logits = forward(model, variables, batch)
    assert logits.shape == (BATCH, STEPS, INPUTS + 1)
    for b, n in enumerate(batch["lengths"]):
        x, target = batch["inputs"][b, :n], batch["target"][b, :n]
        expected = loop(np.asarray(x), np.asarray(target))
        np.testing.assert_allclose(logits[b, : n + 1, : n + 1], expected, atol=1e-5)
        assert (logits[b, :, n + 1 :] == -jnp.inf).all()


@ALL
def test_steps_along_beams_equal_the_full_pass(fields):
    beam_size = 3
    model, variables, batch = translator(PointerNetwork, fields)
    memory = encode(model, variables, batch)
    carry = start(model, variables, memory, hypotheses=beam_size)
    rng = np.random.default_rng(2)
    history = np.zeros((BATCH, beam_size, 0), int)
    actual = np.zeros((BATCH, beam_size, 0, INPUTS + 1))
    token = np.zeros((BATCH, beam_size), int)
    for _ in range(STEPS):
        carry, logits, weights = step(
            model, variables, carry, jnp.asarray(token), memory
        )
        if fields is NONE:
            assert weights is None
        else:
            weights = np.asarray(weights)
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
            padding = np.arange(INPUTS + 1) > np.asarray(batch["lengths"])[:, None]
            assert (
                weights[np.broadcast_to(padding[:, None], weights.shape)] == 0
            ).all()
            if fields["output"] == "pointer":
                probabilities = jax.nn.softmax(logits)
                np.testing.assert_allclose(weights, probabilities, atol=1e-6)
        actual = np.concatenate([actual, logits[:, :, None]], 2)
        parent = rng.integers(0, beam_size, (BATCH, beam_size))
        token = rng.integers(0, 5, (BATCH, beam_size))  # also 0, the start symbol
        carry = carry.take(jnp.asarray(parent))
        actual = np.take_along_axis(actual, parent[..., None, None], 1)
        history = np.take_along_axis(history, parent[..., None], 1)
        history = np.concatenate([history, token[..., None]], 2)
    for i in range(beam_size):
        target = jnp.asarray(history[:, i])
        expected = forward(model, variables, batch | {"target": target})
        np.testing.assert_allclose(actual[:, i], expected, atol=1e-5)


@ALL
def test_padding_changes_nothing(fields):
    model, variables, batch = translator(PointerNetwork, fields)
    inputs = jnp.pad(batch["inputs"], ((0, 2), (0, 3), (0, 0)))
    real = jnp.arange(INPUTS) < batch["lengths"][:, None]
    inputs = inputs.at[:BATCH, :INPUTS].add(9.0 * ~real[..., None])
    padded = {
        "inputs": inputs.at[:, INPUTS:].add(5),
        "lengths": jnp.pad(batch["lengths"], (0, 2)),
        "target": jnp.pad(batch["target"], ((0, 2), (0, 3))),
    }
    actual = forward(model, variables, padded)
    assert (actual[:BATCH, :, INPUTS + 1 :] == -jnp.inf).all()
    assert np.isfinite(actual[..., 0]).all()
    actual = actual[:BATCH, :STEPS, : INPUTS + 1]
    expected, real = forward(model, variables, batch), real_steps(batch)
    np.testing.assert_allclose(actual[real], expected[real], atol=1e-5)


@pytest.mark.parametrize("encoder", ["recurrent", "process"])
@pytest.mark.parametrize("size", [3, 29])
def test_the_same_parameters_point_at_any_number_of_inputs(encoder, size):
    model, variables, _ = translator(PointerNetwork, ORDER, {"encoder": encoder})
    logits = forward(model, variables, instances(size))
    assert logits.shape == (BATCH, size + 1, size + 1)
    np.testing.assert_array_equal(
        np.isfinite(logits).sum(-1)[:, 0], [size + 1, size - 1, size]
    )


@pytest.mark.parametrize("encoder", ["process", "recurrent"])
def test_the_process_encoder_is_invariant_to_the_order_of_its_inputs(encoder):
    model, variables, batch = translator(
        PointerNetwork, ORDER, {"encoder": encoder, "process_steps": 3}
    )
    # Permutes the inputs that are padding in no instance.
    order = np.random.default_rng(1).permutation(INPUTS - 2)
    order = np.concatenate([order, np.arange(INPUTS - 2, INPUTS)])
    position, target = np.argsort(order), np.asarray(batch["target"])
    permuted = {
        "inputs": batch["inputs"][:, order],
        "lengths": batch["lengths"],
        # Pointers to the same inputs at their new positions.
        "target": jnp.asarray(np.where(target, position[target - 1] + 1, 0)),
    }
    memory, other = (encode(model, variables, x) for x in (batch, permuted))
    change = np.abs(memory.start - other.start).max()
    assert (change < 1e-5) == (encoder == "process")
    actual = forward(model, variables, permuted)[..., [0, *(position + 1)]]
    real, expected = real_steps(batch), forward(model, variables, batch)
    same = np.allclose(actual[real], expected[real], atol=1e-5)
    assert same == (encoder == "process")


def test_each_process_step_changes_the_initial_state():
    _, variables, batch = translator(PointerNetwork, ORDER)
    states = []
    for steps in range(4):
        model = PointerNetwork(**ORDER | {"process_steps": steps})
        states.append(encode(model, variables, batch).start)
    for state, other in itertools.combinations(states, 2):
        assert np.abs(state - other).max() > 1e-3
    # Without steps the state does not depend on the inputs.
    np.testing.assert_array_equal(states[0], states[0][:1].repeat(BATCH, 0))


@pytest.mark.parametrize("score", sorted(set(SCORES) - {"additive", "concat"}))
def test_any_score_points_reads_and_processes(score):
    model, variables, batch = translator(PointerNetwork, ORDER, {"score": score})
    logits = forward(model, variables, batch)
    real = np.arange(INPUTS + 1) <= np.asarray(batch["lengths"])[:, None, None]
    np.testing.assert_array_equal(
        np.isfinite(logits), np.broadcast_to(real, logits.shape)
    )


def test_a_baseline_and_a_glimpse_do_not_read_the_end():
    model, variables, batch = translator(PointerNetwork, PAPER, {"glimpses": 1})
    memory = encode(model, variables, batch)
    token = jnp.zeros((BATCH, 1), jnp.int32)
    carry = start(model, variables, memory, hypotheses=1)
    other = memory._replace(annotations=memory.annotations.at[:, 0].add(7.0))
    jax.tree.map(
        np.testing.assert_array_equal,
        step(model, variables, carry, token, memory)[:2],
        step(model, variables, carry, token, other)[:2],
    )
    model, variables, batch = translator(PointerNetwork, ATTENTION)
    memory = encode(model, variables, batch)
    _, _, weights = step(model, variables, carry, token, memory)
    assert not weights[..., 0].any() and "end" not in variables["params"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "lstm"}, "encoder is 'lstm': must be one of recurrent, process"),
        (
            {"output": "none", "glimpses": 1},
            "glimpses is 1: must be 0 for output=none, which has no pointer",
        ),
        (
            {"output": "none", "max_inputs": 5},
            "max_inputs is 5: must be at least 7, the number of inputs",
        ),
        (
            {"score": "location", "max_inputs": 6},
            "max_inputs is 6: must be at least 7, the number of inputs",
        ),
    ],
)
def test_a_field_out_of_range_is_refused(changes, message):
    with pytest.raises(FieldError, match=message):
        shapes_of(PointerNetwork(**PAPER | changes))


def test_the_defaults_are_those_of_the_paper():
    shapes = shapes_of(PointerNetwork())
    assert shapes["decoder_state"]["gates"].shape == (256, 4 * 256)
    assert shapes["pointer"]["w_query"].shape == (256, 256)
    parts = ["decoder_gates", "decoder_state", "encoder_gates", "encoder_state"]
    assert sorted(shapes) == [*parts, "end", "pointer", "table"]


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [(PAPER, ["pointer"]), (ORDER, ["pointer"]), (ATTENTION, ["cross"]), (NONE, [])],
    ids=["paper", "order", "attention", "none"],
)
def test_the_full_pass_sows_the_attention_of_its_steps(fields, kinds):
    model, variables, batch = translator(PointerNetwork, fields)
    _, sown = jax.eval_shape(
        lambda: model.apply(variables, batch, train=False, mutable=["attention"])
    )
    records = records_of(sown, AttentionRecord)
    assert [record.kind for record in records] == kinds
    for record in records:
        assert (record.queries, record.keys) == ("steps", "inputs")
        assert record.weights.shape == (BATCH, 1, STEPS, INPUTS + 1)


@ALL
def test_every_parameter_has_a_gradient_and_it_overfits_one_batch(fields):
    model, variables, batch = translator(PointerNetwork, fields)
    weights = jnp.asarray(real_steps(batch), jnp.float32)

    def loss(params):
        logits = model.apply({"params": params}, batch, train=True)
        total, count = smoothed_cross_entropy(logits, batch["target"], 0.0, weights)
        return total / count

    gradients = quick_jit(jax.grad(loss))(variables["params"])
    assert all(np.any(gradient) for gradient in jax.tree.leaves(gradients))
    losses = descend(loss, variables["params"], 0.02, 200)
    assert losses[0] > 1.5 and losses[-1] < 0.05
