import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import plain_scan, quick_jit

from attention.fast.scan import scan

BATCH, SOURCE, STATE, STEPS, ROWS = 3, 7, 11, 13, 2
MASK = jnp.arange(SOURCE) < jnp.asarray([7, 4, 1])[:, None]


def toy_step(weights, shared, carry, x):
    """A step that reads weights, a bias, a mask, None and inputs."""
    bias, mask, _ = shared
    inputs, _ = x
    state, count = carry
    attention = jax.nn.softmax(state @ weights["score"] + inputs)  # [B, R, S]
    context = jnp.where(mask, attention, 0) @ weights["values"]  # [B, R, STATE]
    state = jnp.tanh(state @ weights["square"] + context + bias)
    return (state, count + 1), (state[..., 0] * bias[0], attention)


def twice_step(weights, shared, carry, x):
    """A step with two products with one matrix and none with another."""
    (state, count), outputs = carry, toy_step(weights, shared, carry, x)
    (new, _), y = outputs
    return (new + jnp.sin(state) @ weights["square"], count + 1), y


def toy_problem(draw):
    weights = {
        "score": draw(STATE, SOURCE),
        "values": draw(BATCH, SOURCE, STATE),
        "square": draw(STATE, STATE) / STATE,
        "unused": draw(STATE, STEPS),
    }
    shared = draw(STATE), MASK[:, None], None
    carry = draw(BATCH, ROWS, STATE), jnp.zeros((), jnp.int32)
    return weights, shared, carry, (draw(STEPS, BATCH, ROWS, SOURCE), None)


@pytest.mark.parametrize("vmapped", [False, True])
@pytest.mark.parametrize("step", [toy_step, twice_step])
def test_scan_has_the_values_and_the_gradients_of_a_plain_scan(
    x64, draw, step, vmapped
):
    problem = toy_problem(draw)
    if vmapped:
        problem = jax.tree.map(lambda *x: jnp.stack(x), problem, toy_problem(draw))

    def run(function):
        def loss(floats, others):
            weights, bias, state, inputs = floats
            mask, count = others
            shared, carry = (bias, mask, None), (state, count)
            (state, count), (y, attention) = outputs = function(
                step, weights, shared, carry, (inputs, None)
            )
            # Nonlinear, so that the gradient of no output is constant.
            return sum(jnp.sin(x).sum() for x in (state, y, attention**2)), outputs

        weights, (bias, mask, _), (state, count), (inputs, _) = problem
        gradients = jax.grad(loss, has_aux=True)
        gradients = quick_jit(jax.vmap(gradients) if vmapped else gradients)
        return gradients((weights, bias, state, inputs), (mask, count))

    ours, plain = run(scan), run(plain_scan)
    assert (
        not np.any(ours[0][0].pop("unused")) and plain[0][0].pop("unused") is not None
    )
    assert all(jnp.abs(x).max() > 1e-3 for x in jax.tree.leaves(plain[0]))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-12), ours, plain)


def test_a_handle_supports_only_products_from_the_left(draw):
    def step(weights, shared, carry, x):
        return carry + weights["w"], None

    with pytest.raises(TypeError, match="unsupported operand"):
        scan(
            step,
            {"w": draw(STATE, STATE)},
            None,
            draw(BATCH, 1, STATE),
            jnp.ones(STEPS),
        )
