import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import affine, normal_like, quick_jit

from models.cells import CELLS, GRUMatrices, RNNMatrices, gru
from models.initializers import STANDARD, orthogonal, uniform_init
from models.recurrent import (
    Encoder,
    Gates,
    Maxout,
    Recurrence,
    Stack,
    StackMatrices,
    reverse_tokens,
)

BATCH, SOURCE, WIDTH, STATE, HYPOTHESES = 3, 7, 5, 11, 2
LENGTHS = (7, 4, 1)
MASK = jnp.arange(SOURCE) < jnp.asarray(LENGTHS)[:, None]


def normal_variables(module, *args, **kwargs):
    """Variables of a module with normal values, in the dtype of its first input."""
    shapes = jax.eval_shape(
        lambda: module.init(jax.random.key(0), *args, **kwargs)["params"]
    )
    return {"params": normal_like(shapes, args[0].dtype)}


def encoder(cell, layers=1, bidirectional=False, reverse=False):
    return Encoder(
        cell=cell,
        features=STATE,
        layers=layers,
        inits=STANDARD,
        bidirectional=bidirectional,
        reverse=reverse,
    )


def test_reversal_keeps_eos_and_padding_in_place(draw):
    x = draw(BATCH, SOURCE, WIDTH)
    reverse = reverse_tokens(x, MASK)
    for b, length in enumerate(LENGTHS):
        tokens, rest = list(x[b, : length - 1]), list(x[b, length - 1 :])
        np.testing.assert_array_equal(reverse[b], tokens[::-1] + rest)
    np.testing.assert_array_equal(reverse_tokens(reverse, MASK), x)
    ids = jnp.arange(BATCH * SOURCE).reshape(BATCH, SOURCE)
    np.testing.assert_array_equal(
        reverse_tokens(ids, MASK)[1], [9, 8, 7, 10, 11, 12, 13]
    )
    all_padding = jnp.zeros_like(MASK)
    np.testing.assert_array_equal(reverse_tokens(x, all_padding), x)


def test_the_backward_half_of_the_first_annotation_depends_on_the_last_token(draw):
    bidirectional = encoder("gru", bidirectional=True)
    x = draw(BATCH, SOURCE, WIDTH)
    mask = jnp.ones((BATCH, SOURCE), bool)
    variables = normal_variables(bidirectional, x, mask, train=False)
    annotate = quick_jit(functools.partial(bidirectional.apply, train=False))
    annotations, _ = annotate(variables, x, mask)
    changed, _ = annotate(variables, x.at[:, -1].add(1), mask)
    assert annotations.shape == (BATCH, SOURCE, 2 * STATE)
    np.testing.assert_array_equal(changed[:, 0, :STATE], annotations[:, 0, :STATE])
    assert (np.abs(changed - annotations)[:, 0, STATE:].max(-1) > 1e-4).all()


def test_a_reversed_encoder_returns_annotations_in_the_order_of_the_source(draw):
    x = draw(BATCH, SOURCE, WIDTH)
    variables = normal_variables(encoder("gru"), x, MASK, train=False)
    annotations, carries = encoder("gru", reverse=True).apply(
        variables, x, MASK, train=False
    )
    expected, expected_carries = encoder("gru").apply(
        variables, reverse_tokens(x, MASK), MASK, train=False
    )
    np.testing.assert_array_equal(reverse_tokens(annotations, MASK), expected)
    np.testing.assert_array_equal(carries[0][0], expected_carries[0][0])


@pytest.mark.parametrize(
    "residual, added", [("none", 0), ("residual", 1), ("dense", 2)]
)
def test_residual_connections_add_the_inputs_of_the_last_layers(draw, residual, added):
    x = draw(BATCH, SOURCE, WIDTH)
    module = encoder("gru", layers=3, bidirectional=True).clone(residual=residual)
    variables = normal_variables(module, x, MASK, train=False)
    annotations, _ = module.apply(variables, x, MASK, train=False)
    outputs = [x]
    for i in range(3):
        halves = [
            Recurrence("gru", STATE, STANDARD, backward=name == "backward").apply(
                {"params": variables["params"][f"{name}_{i}"]}, outputs[-1], MASK
            )[0]
            for name in ("forward", "backward")
        ]
        y = jnp.concatenate(halves, axis=-1)
        # The embedding has another width and is never added.
        outputs.append(y + sum(outputs[1:][-added:] if added else []))
    np.testing.assert_allclose(annotations, outputs[-1], atol=1e-5)


@pytest.mark.parametrize("residual", ["none", "residual", "dense"])
def test_a_decoder_has_the_residual_connections_of_an_encoder(draw, residual):
    common = dict(cell="rnn", features=STATE, layers=3, dropout=0.0, inits=STANDARD)
    common |= {"residual": residual}
    encoder = Encoder(**common)
    x, full = draw(BATCH, SOURCE, WIDTH), jnp.ones((BATCH, SOURCE), bool)
    variables = normal_variables(encoder, x, full, train=False)
    annotations, _ = encoder.apply(variables, x, full, train=False)
    layers = [variables["params"][f"forward_{i}"] for i in range(3)]
    weights = StackMatrices(
        tuple(RNNMatrices(layer["state"]["state"]) for layer in layers),
        tuple(layer["input"]["kernel"] for layer in layers[1:]),
    )
    biases = tuple(layer["input"]["bias"] for layer in layers[1:])
    carries = (jnp.zeros((BATCH, 1, STATE)),) * 3
    for t in range(SOURCE):
        gates = affine(x[:, t, None], layers[0]["input"])
        carries, output = Stack(**common).advance(
            weights, biases, carries=carries, gates=gates, noise=None
        )
        np.testing.assert_allclose(output[:, 0], annotations[:, t], atol=1e-5)


@pytest.mark.parametrize("noise_value", [1.0, 0.0])
def test_noise_multiplies_the_inputs_of_the_layers_after_the_first(draw, noise_value):
    stack = Stack(cell="gru", features=STATE, layers=2, dropout=0.5, inits=STANDARD)
    lower, upper = (
        GRUMatrices(draw(STATE, 2 * STATE), draw(STATE, STATE)) for _ in range(2)
    )
    weights = StackMatrices((lower, upper), (draw(STATE, 3 * STATE),))
    shape = (BATCH, HYPOTHESES)
    carries = draw(*shape, STATE), draw(*shape, STATE)
    gates, bias = draw(*shape, 3 * STATE), draw(3 * STATE)

    noise = jnp.full((BATCH, 1, STATE), noise_value)
    next_carries, output = stack.advance(
        weights, (bias,), carries=carries, gates=gates, noise=(noise,)
    )
    first = gru(gates, carries[0], lower)
    second = gru(noise_value * first @ weights.inputs[0] + bias, carries[1], upper)
    np.testing.assert_array_equal(next_carries[0], first)
    np.testing.assert_allclose(next_carries[1], second, atol=1e-6)
    np.testing.assert_array_equal(output, next_carries[1])


def test_a_maxout_unit_is_the_maximum_of_its_two_pieces(draw):
    x, units = draw(BATCH, WIDTH), 17
    layer = Maxout(units, STANDARD)
    variables = normal_variables(layer, x)
    outputs = layer.apply(variables, x)
    pieces = affine(x, variables["params"]["Dense_0"])
    first, second = pieces[:, :units], pieces[:, units:]
    assert (outputs >= first - 1e-6).all() and (outputs >= second - 1e-6).all()
    expected = np.where(first > second, first, second)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_recurrent_matrices_start_as_orthogonal_blocks():
    blocks = jnp.split(orthogonal(jax.random.key(0), (STATE, 3 * STATE)), 3, axis=1)
    for block in blocks:
        np.testing.assert_allclose(block.T @ block, np.eye(STATE), atol=1e-5)
    assert np.abs(blocks[0] - blocks[1]).max() > 0.1


@pytest.mark.parametrize(
    ("cell", "inits", "forget"),
    [
        ("lstm", STANDARD, 1),
        ("lstm", uniform_init(0.1), 0),
        ("gru", STANDARD, 0),
        ("rnn", STANDARD, 0),
    ],
)
def test_only_the_standard_lstm_has_a_forget_bias_of_1(cell, inits, forget):
    layer = Gates(cell, STATE, inits)
    bias = layer.init(jax.random.key(0), jnp.ones((1, WIDTH)))["params"]["bias"]
    expected = np.zeros(CELLS[cell].input_width * STATE)
    expected[STATE : 2 * STATE] = forget  # i, f, o, g
    np.testing.assert_array_equal(bias, expected)


def test_masks_between_layers_differ_by_step_sentence_and_layer():
    stack = Stack(cell="gru", features=101, layers=3, dropout=0.5, inits=STANDARD)
    rngs = {"dropout": jax.random.key(0)}
    masks = stack.apply({}, SOURCE, BATCH, method="noise", rngs=rngs)
    assert [mask.shape for mask in masks] == [(SOURCE, BATCH, 1, 101)] * 2
    rows = np.concatenate([np.asarray(mask).reshape(-1, 101) for mask in masks])
    assert len({row.tobytes() for row in rows}) == 2 * SOURCE * BATCH
    assert set(np.unique(rows)) == {0, 2}
