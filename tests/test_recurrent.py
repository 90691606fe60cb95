import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import LOOPS, affine, normal_like, quick_jit

from models.cells import CELLS, GRUWeights, gru
from models.recurrent import (
    STANDARD,
    Encoder,
    Gates,
    Maxout,
    Recurrence,
    Stack,
    StackWeights,
    orthogonal,
    reverse_words,
    uniform_init,
)

BATCH, SOURCE, WIDTH, STATE, ROWS = 3, 7, 5, 11, 2
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
    lower, upper = (
        GRUWeights(draw(STATE, 2 * STATE), draw(STATE, STATE)) for _ in range(2)
    )
    weights = StackWeights((lower, upper), (draw(STATE, 3 * STATE),))
    states = draw(BATCH, ROWS, STATE), draw(BATCH, ROWS, STATE)
    gates, bias = draw(BATCH, ROWS, 3 * STATE), draw(3 * STATE)

    noise = jnp.full((BATCH, 1, STATE), kept)
    new, output = stack.advance(weights, (bias,), states, gates, noise)
    first = gru(gates, states[0], lower)
    second = gru(kept * first @ weights.inputs[0] + bias, states[1], upper)
    np.testing.assert_array_equal(new[0], first)
    np.testing.assert_allclose(new[1], second, atol=1e-6)
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
