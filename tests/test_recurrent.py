import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import LOOPS, affine, normal_like, quick_jit

from models.recurrent import (
    CELLS,
    STANDARD,
    Encoder,
    Gates,
    Maxout,
    Recurrence,
    Stack,
    orthogonal,
    reverse_words,
    scan,
    uniform_init,
)

BATCH, SOURCE, WIDTH, STATE, STEPS, ROWS = 3, 7, 5, 11, 13, 2
LENGTHS = (7, 4, 1)
MASK = jnp.arange(SOURCE) < jnp.asarray(LENGTHS)[:, None]


def filled(module, *args, **kwargs):
    """Normal parameters for a module, of the dtype of its first argument."""
    shapes = jax.eval_shape(
        lambda: module.init(jax.random.key(0), *args, **kwargs)["params"]
    )
    return {"params": normal_like(shapes, args[0].dtype)}


def encoder(cell, layers=1, bidirectional=False, reverse=False):
    return Encoder(cell, STATE, layers, bidirectional, reverse, 0.0, STANDARD)


def toy_step(product, shared, carry, x):
    """Reads all that a step may read, with masks and None among it."""
    bias, mask, _ = shared
    inputs, _ = x
    state, count = carry
    weights = jax.nn.softmax(product(state, "score") + inputs)  # [B, R, S]
    read = product(jnp.where(mask, weights, 0), "values")  # [B, R, STATE]
    state = jnp.tanh(product(state, "square") + read + bias)
    return (state, count + 1), (state[..., 0] * bias[0], weights)


def toy_problem(draw):
    weights = {
        "score": draw(STATE, SOURCE),
        "values": draw(BATCH, SOURCE, STATE),
        "square": draw(STATE, STATE),
    }
    shared = draw(STATE), MASK[:, None], None
    carry = draw(BATCH, ROWS, STATE), jnp.zeros((), jnp.int32)
    return weights, shared, carry, (draw(STEPS, BATCH, ROWS, SOURCE), None)


def plain_scan(step, weights, shared, carry, inputs):
    def body(carry, x):
        return step(lambda x, name: x @ weights[name], shared, carry, x)

    return jax.lax.scan(body, carry, inputs)


@pytest.mark.parametrize("vmapped", [False, True])
def test_scan_has_the_values_and_the_gradients_of_a_plain_scan(x64, draw, vmapped):
    problem = toy_problem(draw)
    if vmapped:
        problem = jax.tree.map(lambda *x: jnp.stack(x), problem, toy_problem(draw))

    def run(function):
        def loss(floats, others):
            weights, bias, state, inputs = floats
            mask, count = others
            (state, count), (y, seen) = found = function(
                *(toy_step, weights, (bias, mask, None)),
                *((state, count), (inputs, None)),
            )
            # No constant gradient, neither of the last state nor of an output.
            return sum(jnp.sin(x).sum() for x in (state, y, seen**2)), found

        weights, (bias, mask, _), (state, count), (inputs, _) = problem
        gradients = jax.grad(loss, has_aux=True)
        gradients = quick_jit(jax.vmap(gradients) if vmapped else gradients)
        return gradients((weights, bias, state, inputs), (mask, count))

    ours, plain = run(scan), run(plain_scan)
    assert all(jnp.abs(x).max() > 1e-3 for x in jax.tree.leaves(plain[0]))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-12), ours, plain)


def test_a_step_that_multiplies_twice_by_a_weight_is_refused(draw):
    def step(product, shared, carry, x):
        return product(product(carry, "w"), "w"), None

    with pytest.raises(ValueError, match="a step multiplies twice by 'w'"):
        scan(step, {"w": draw(STATE, STATE)}, None, draw(BATCH, 1, STATE), jnp.ones(2))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_layer_equals_a_loop_of_the_printed_equations(x64, draw, cell, backward):
    x = draw(BATCH, SOURCE, WIDTH)
    layer = Recurrence(cell, STATE, STANDARD, backward)
    variables = filled(layer, x, MASK)
    outputs, carried = layer.apply(variables, x, MASK)
    params = jax.tree.map(np.asarray, variables["params"])
    for row, length in enumerate(LENGTHS):
        carry = np.zeros(CELLS[cell].states * STATE)
        for position in range(length)[:: -1 if backward else 1]:
            gates = affine(np.asarray(x[row, position]), params["input"])
            carry = LOOPS[cell](gates, carry, params["state"])
            np.testing.assert_allclose(outputs[row, position], carry[:STATE])
        np.testing.assert_allclose(carried[row], carry)


@pytest.mark.parametrize("update", [0.0, 1.0])
def test_a_gru_keeps_its_state_or_takes_the_candidate_by_its_update_gate(draw, update):
    state, candidate = draw(BATCH, STATE), draw(BATCH, STATE)
    zeros = jnp.zeros((BATCH, STATE))
    gates = jnp.concatenate([zeros, zeros + 1e9 * (2 * update - 1), candidate], -1)
    new = CELLS["gru"].step(lambda x, name: 0, "", gates, state)
    np.testing.assert_array_equal(new, jnp.tanh(candidate) if update else state)


def test_an_lstm_keeps_its_cell_where_it_neither_forgets_nor_enters(draw):
    carry, huge = draw(BATCH, 2 * STATE), jnp.full((BATCH, STATE), 1e9)
    gates = jnp.concatenate([-huge, huge, -huge, draw(BATCH, STATE)], axis=-1)
    new = CELLS["lstm"].step(lambda x, name: 0, "", gates, carry)
    np.testing.assert_array_equal(new[:, STATE:], carry[:, STATE:])
    assert not np.any(new[:, :STATE])  # it shows nothing


def test_reversal_turns_round_the_words_and_leaves_end_and_padding(draw):
    x = draw(BATCH, SOURCE, WIDTH)
    turned = reverse_words(x, MASK)
    for row, length in enumerate(LENGTHS):
        words, rest = list(x[row, : length - 1]), list(x[row, length - 1 :])
        np.testing.assert_array_equal(turned[row], words[::-1] + rest)
    np.testing.assert_array_equal(reverse_words(turned, MASK), x)
    ids = jnp.arange(BATCH * SOURCE).reshape(BATCH, SOURCE)
    np.testing.assert_array_equal(
        reverse_words(ids, MASK)[1], [9, 8, 7, 10, 11, 12, 13]
    )
    nothing = jnp.zeros_like(MASK)
    np.testing.assert_array_equal(reverse_words(x, nothing), x)


@pytest.mark.parametrize(
    "encoder",
    [encoder("gru", 2, bidirectional=True), encoder("lstm", 2, reverse=True)],
    ids=["both directions", "reversed"],
)
def test_padding_changes_neither_annotations_nor_carries(draw, encoder):
    x = draw(BATCH, SOURCE, WIDTH)
    variables = filled(encoder, x, MASK, train=False)
    annotate = quick_jit(functools.partial(encoder.apply, train=False))
    found = annotate(variables, x, MASK)
    filler = 99 * draw(BATCH + 2, SOURCE + 3, WIDTH)
    mask = jnp.pad(MASK, ((0, 2), (0, 3)))
    padded = filler.at[:BATCH, :SOURCE].set(jnp.where(MASK[..., None], x, 99))
    annotations, carries = annotate(variables, padded, mask)
    assert np.isfinite(annotations).all()
    np.testing.assert_allclose(
        annotations[:BATCH, :SOURCE][MASK], found[0][MASK], atol=1e-6
    )
    for a, b in zip(*map(jax.tree.leaves, (carries, found[1])), strict=True):
        np.testing.assert_allclose(a[:BATCH], b, atol=1e-6)
        assert not np.any(a[BATCH:])  # a row without a word


def test_the_last_source_word_is_in_the_backward_part_of_the_first_annotation(draw):
    both = encoder("gru", bidirectional=True)
    x = draw(BATCH, SOURCE, WIDTH)
    mask = jnp.ones((BATCH, SOURCE), bool)
    variables = filled(both, x, mask, train=False)
    annotate = quick_jit(functools.partial(both.apply, train=False))
    first, _ = annotate(variables, x, mask)
    other, _ = annotate(variables, x.at[:, -1].add(1), mask)
    assert first.shape == (BATCH, SOURCE, 2 * STATE)
    np.testing.assert_array_equal(other[:, 0, :STATE], first[:, 0, :STATE])
    assert (np.abs(other - first)[:, 0, STATE:].max(-1) > 1e-4).all()


def test_a_reversed_encoder_reads_reversed_words_and_returns_them_in_order(draw):
    x = draw(BATCH, SOURCE, WIDTH)
    variables = filled(encoder("gru"), x, MASK, train=False)
    turned, carried = encoder("gru", reverse=True).apply(
        variables, x, MASK, train=False
    )
    plain, expected = encoder("gru").apply(
        variables, reverse_words(x, MASK), MASK, train=False
    )
    np.testing.assert_array_equal(reverse_words(turned, MASK), plain)
    np.testing.assert_array_equal(carried[0][0], expected[0][0])


def test_an_encoder_does_not_drop_out_what_enters_its_first_layer(draw):
    # The translator did that to the embeddings. A rate without a stream would fail.
    x = draw(BATCH, SOURCE, WIDTH)
    plain = encoder("gru")
    variables = filled(plain, x, MASK, train=False)
    dropping = plain.clone(dropout=0.5)
    for a, b in zip(
        jax.tree.leaves(dropping.apply(variables, x, MASK, train=True)),
        jax.tree.leaves(plain.apply(variables, x, MASK, train=False)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kept", [1.0, 0.0])
def test_noise_multiplies_what_enters_the_layers_after_the_first(draw, kept):
    stack = Stack("gru", STATE, 2, 0.5, STANDARD)
    weights = {
        "0/gates": draw(STATE, 2 * STATE),
        "0/candidate": draw(STATE, STATE),
        "1/gates": draw(STATE, 2 * STATE),
        "1/candidate": draw(STATE, STATE),
        "1/input": draw(STATE, 3 * STATE),
    }
    states = draw(BATCH, ROWS, STATE), draw(BATCH, ROWS, STATE)
    gates, bias = draw(BATCH, ROWS, 3 * STATE), draw(3 * STATE)

    def product(x, name):
        return x @ weights[name]

    noise = jnp.full((BATCH, 1, STATE), kept)
    new, output = stack.advance(product, (bias,), states, gates, noise)
    lower = CELLS["gru"].step(product, "0", gates, states[0])
    entering = kept * lower @ weights["1/input"] + bias
    upper = CELLS["gru"].step(product, "1", entering, states[1])
    np.testing.assert_array_equal(new[0], lower)
    np.testing.assert_allclose(new[1], upper, atol=1e-6)
    np.testing.assert_array_equal(output, new[1])


def test_a_maxout_unit_is_the_larger_of_its_two_pieces(draw):
    x, units = draw(BATCH, WIDTH), 17
    layer = Maxout(units, STANDARD)
    variables = filled(layer, x)
    found = layer.apply(variables, x)
    pieces = affine(x, variables["params"]["Dense_0"])
    first, second = pieces[:, :units], pieces[:, units:]
    assert (found >= first - 1e-6).all() and (found >= second - 1e-6).all()
    larger = np.where(first > second, first, second)
    np.testing.assert_allclose(found, larger, atol=1e-6)


def test_recurrent_matrices_start_as_orthogonal_blocks():
    blocks = jnp.split(orthogonal(jax.random.key(0), (STATE, 3 * STATE)), 3, axis=1)
    for block in blocks:
        np.testing.assert_allclose(block.T @ block, np.eye(STATE), atol=1e-5)
    assert np.abs(blocks[0] - blocks[1]).max() > 0.1


@pytest.mark.parametrize("limit", [0.08, 0.1])
def test_a_uniform_init_fills_its_range_and_nothing_else(limit):
    inits = uniform_init(limit)
    for init in (inits.kernel, inits.recurrent, inits.embedding, inits.score):
        values = np.abs(init(jax.random.key(0), (101, 103)))
        assert 0.999 * limit < values.max() <= limit
        assert values.mean() == pytest.approx(limit / 2, rel=0.02)


@pytest.mark.parametrize(
    ("cell", "inits", "forget"),
    [("lstm", STANDARD, 1), ("lstm", uniform_init(0.1), 0), ("gru", STANDARD, 0)],
)
def test_the_standard_lstm_starts_with_its_forget_gate_open(cell, inits, forget):
    layer = Gates(cell, STATE, inits)
    bias = layer.init(jax.random.key(0), jnp.ones((1, WIDTH)))["params"]["bias"]
    expected = np.zeros(CELLS[cell].gates * STATE)
    expected[STATE : 2 * STATE] = forget  # i, f, o, g
    np.testing.assert_array_equal(bias, expected)
