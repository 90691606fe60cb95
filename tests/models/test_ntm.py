"""The Neural Turing Machine and its baseline."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from translators import descend, quick_jit, sigmoid, softmax

from base.errors import FieldError
from base.records import DETAILS, AttentionRecord, records_of
from models import ntm
from models.ntm import LSTM, NeuralTuringMachine, bounded_gradient

BATCH, STEPS, INPUTS, OUTPUTS, SLOTS, WIDTH = 3, 7, 5, 2, 11, 13
FIELDS = {
    "outputs": OUTPUTS,
    "controller": "lstm",
    "hidden": 17,
    "read_heads": 2,
    "write_heads": 3,
    "slots": SLOTS,
    "width": WIDTH,
    "shifts": 3,
    "memory_init": "constant",
}
CONTROLLERS = ("lstm", "feedforward")
FIXED_MEMORY = [("lstm", "constant"), ("feedforward", "random")]
ALL = [*FIXED_MEMORY, ("lstm", "learned")]


def machine(**fields):
    return NeuralTuringMachine(**FIELDS | fields)


def shapes(model, x):
    init = jax.eval_shape(model.init, jax.random.key(0), x, train=False)
    return init["params"]


def random_params(model, x, seed=1):
    """Random parameters, none of which is 0."""
    leaves, tree = jax.tree.flatten(shapes(model, x))
    rngs = jax.random.split(jax.random.key(seed), len(leaves))
    return tree.unflatten(
        [
            0.4 * jax.random.normal(rng, leaf.shape)
            for rng, leaf in zip(rngs, leaves, strict=True)
        ]
    )


@functools.partial(quick_jit, static_argnums=0)
def apply(model, params, x):
    """Logits, and the weights of the read and write heads, by kind."""
    logits, sown = model.apply({"params": params}, x, train=False, mutable="attention")
    records = records_of(sown, AttentionRecord)
    assert all((r.queries, r.keys) == ("steps", "memory") for r in records)
    return logits, {record.kind: record.weights for record in records}


@functools.partial(quick_jit, static_argnums=0)
def details_of(model, params, x):
    """The details of both attention records, which are the same."""
    collections = ["attention", DETAILS]
    _, sown = model.apply({"params": params}, x, train=False, mutable=collections)
    read, write = records_of(sown, AttentionRecord)
    assert read.details is write.details
    return read.details


@pytest.fixture
def x(draw):
    return draw(BATCH, STEPS, INPUTS)


def count(model, x):
    return sum(leaf.size for leaf in jax.tree.leaves(shapes(model, x)))


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_the_machine_equals_a_loop_of_the_paper(controller, x):
    model = machine(controller=controller)
    params = random_params(model, x)
    logits, weights = apply(model, params, x)
    details = details_of(model, params, x)
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def softplus(z):
        return np.log1p(np.exp(z))

    for b in range(BATCH):
        memory = np.full((SLOTS, WIDTH), 1e-6)
        np.testing.assert_allclose(details.start[b], memory)
        w = [np.eye(SLOTS)[0]] * 5  # of each head, read heads first
        reads = np.tanh(p["first_reads"])
        if controller == "lstm":
            hidden, cell = np.split(p["first_state"], 2)
        for t in range(STEPS):
            gates = np.asarray(x[b, t]) @ p["gates"]["kernel"] + p["gates"]["bias"]
            gates = gates + reads @ p["from_reads"]
            if controller == "lstm":
                gates = gates + hidden @ p["recurrent"]["gates"]
                i, f, o, g = np.split(gates, 4)
                cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                hidden = sigmoid(o) * np.tanh(cell)
            else:
                hidden = np.tanh(gates)
            emitted = hidden @ p["to_heads"] + p["to_heads_bias"]
            addressing, writing = np.split(emitted, [5 * (WIDTH + 6)])
            addressing = addressing.reshape(5, -1)
            for h, a in enumerate(addressing):
                key, beta = np.tanh(a[:WIDTH]), softplus(a[WIDTH])
                gate, gamma = sigmoid(a[WIDTH + 1]), 1 + softplus(a[-1])
                shifts = softmax(a[WIDTH + 2 : WIDTH + 5])
                norms = np.linalg.norm(memory, axis=1) * np.linalg.norm(key)
                w_c = softmax(beta * (memory @ key) / norms)
                w_g = gate * w_c + (1 - gate) * w[h]
                shifted = sum(shifts[k] * np.roll(w_g, k - 1) for k in range(3))
                w[h] = shifted**gamma / (shifted**gamma).sum()
            reads = np.concatenate([w[h] @ memory for h in range(2)])
            erase, add = np.split(writing.reshape(3, 2 * WIDTH), 2, axis=1)
            for h in range(3):
                memory = memory * (1 - np.outer(w[2 + h], sigmoid(erase[h])))
            for h in range(3):
                memory = memory + np.outer(w[2 + h], np.tanh(add[h]))
            output = np.concatenate([hidden, reads]) @ p["output"]["kernel"]
            expected = output + p["output"]["bias"]
            # Float32 against float64 over seven steps of a recurrence.
            np.testing.assert_allclose(logits[b, t], expected, atol=2e-4)
            np.testing.assert_allclose(weights["read"][b, :, t], w[:2], atol=1e-4)
            np.testing.assert_allclose(weights["write"][b, :, t], w[2:], atol=1e-4)
            np.testing.assert_allclose(details.weights[b, :, t], w, atol=1e-4)
            np.testing.assert_allclose(
                details.erase[b, :, t], sigmoid(erase), atol=1e-4
            )
            np.testing.assert_allclose(details.add[b, :, t], np.tanh(add), atol=1e-4)


@pytest.mark.parametrize(("controller", "memory_init"), FIXED_MEMORY)
def test_the_number_of_parameters_does_not_depend_on_the_slots(
    controller, memory_init, x
):
    few, many = (
        machine(controller=controller, memory_init=memory_init, slots=slots)
        for slots in (SLOTS, 31)
    )
    assert count(few, x) == count(many, x)
    assert apply(many, random_params(few, x), x)[0].shape == (BATCH, STEPS, OUTPUTS)


@pytest.mark.parametrize(
    "model",
    [*(machine(controller=c) for c in CONTROLLERS), LSTM(OUTPUTS, 17, 3)],
    ids=[*CONTROLLERS, "baseline"],
)
def test_sequences_are_independent_and_outputs_causal(model, x):
    params = random_params(model, x)
    logits, _ = apply(model, params, x)
    assert logits.shape == (BATCH, STEPS, OUTPUTS)
    other, _ = apply(model, params, x.at[0].set(-3.0))
    np.testing.assert_array_equal(other[1:], logits[1:])
    other, _ = apply(model, params, x.at[:, 4:].set(9.0))
    np.testing.assert_allclose(other[:, :4], logits[:, :4], atol=1e-5)
    assert not np.allclose(other[:, 4:], logits[:, 4:], atol=1e-2)


@pytest.mark.parametrize(("controller", "memory_init"), ALL)
def test_every_parameter_gets_a_finite_gradient(controller, memory_init, x):
    model = machine(controller=controller, memory_init=memory_init)

    def loss(params):
        return jnp.square(model.apply({"params": params}, x, train=True)).sum()

    gradients = quick_jit(jax.grad(loss))(random_params(model, x))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        name = jax.tree_util.keystr(path)
        assert np.isfinite(gradient).all(), name
        assert np.abs(gradient).max() > 0, name


def test_the_gradient_between_steps_is_bounded(monkeypatch):
    model = machine(controller="feedforward", read_heads=1, write_heads=1)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((1, 400, INPUTS)), jnp.float32)
    params = random_params(model, x, seed=5)
    bias = params["to_heads_bias"]
    for strength in (WIDTH, 2 * WIDTH + 6):  # index of each head's key strength
        # Nearly closed gates, and shifts that make ties.
        bias = bias.at[strength + 1].set(-6.0)
        bias = bias.at[strength + 2 : strength + 5].set(jnp.array([1.0, 1.0, -9.0]))
    params["to_heads_bias"] = bias

    def max_gradient():
        def loss(params):
            return jnp.square(model.apply({"params": params}, x, train=False)).sum()

        gradients = quick_jit(jax.grad(loss))(params)
        return max(jnp.abs(g).max() for g in jax.tree.leaves(gradients))

    bounded = max_gradient()
    monkeypatch.setattr(ntm, "bounded_gradient", lambda carry, limit: carry)
    assert bounded < 1e6 and max_gradient() > 1000 * bounded


def test_it_learns_to_repeat_inputs_after_two_steps():
    # Overfits one batch; a feed-forward controller needs the memory for it.
    model = machine(
        controller="feedforward", slots=5, width=7, read_heads=1, write_heads=1
    )
    x = jax.random.bernoulli(jax.random.key(2), 0.5, (3, 5, 2)).astype(jnp.float32)
    params = quick_jit(lambda x: model.init(jax.random.key(0), x, train=True))(x)
    params = params["params"]

    def loss(params):
        logits = model.apply({"params": params}, x, train=True)[:, 2:]
        return optax.sigmoid_binary_cross_entropy(logits, x[:, :-2]).mean()

    losses = descend(loss, params, 0.03, 150)
    assert losses[0] > 0.5 and losses[-1] < 0.02


def test_the_defaults_are_those_of_the_paper():
    shapes_of = functools.partial(shapes, x=jnp.zeros((1, 2, 8)))
    memory = shapes_of(NeuralTuringMachine(outputs=8))
    assert memory["from_reads"].shape == (20, 4 * 100)
    assert memory["to_heads"].shape == (100, 2 * (20 + 6) + 2 * 20)
    assert memory["output"]["kernel"].shape == (100 + 20, 8)
    baseline = shapes_of(LSTM(outputs=8))
    assert sorted(baseline) == ["layer_0", "layer_1", "layer_2", "output"]
    assert baseline["output"]["kernel"].shape == (256, 8)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("controller", "gru", "controller is 'gru': must be one of lstm, feedforward"),
        ("shifts", 4, "shifts is 4: must be odd and at most slots=11"),
        ("shifts", 13, "shifts is 13: must be odd and at most slots=11"),
    ],
)
def test_a_field_out_of_range_is_refused(field, value, message, x):
    with pytest.raises(FieldError, match=message) as error:
        shapes(machine(**{field: value}), x)
    assert (error.value.name, error.value.value) == (field, value)


def tree(draw):
    return {"a": draw(3, 5), "b": (draw(7), draw())}


def test_each_element_of_the_gradient_is_clipped(draw):
    x, slopes = tree(draw), tree(draw)

    def total(x):
        products = jax.tree.map(jnp.vdot, slopes, bounded_gradient(x, 0.5))
        return sum(jax.tree.leaves(products))

    gradients = jax.grad(total)(x)
    assert any((abs(slope) > 0.5).any() for slope in jax.tree.leaves(slopes))
    expected = jax.tree.map(lambda slope: np.clip(slope, -0.5, 0.5), slopes)
    jax.tree.map(np.testing.assert_array_equal, gradients, expected)
