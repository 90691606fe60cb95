"""The tape of an LSTMN as pure functions, and the scan over it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import quick_jit

from attention.fast.tape import tape_scan
from attention.tape import Tape, append, empty_tape, read_tape, token_weights

B, K, T, D, E, V = 2, 5, 7, 13, 3, 11


def filled(draw, tokens, slots=K):
    tape = empty_tape(B, slots=slots, key=E, value=V)
    entries = draw(tokens, B, E), draw(tokens, B, V)
    for key, value in zip(*entries, strict=True):
        tape = append(tape, key, value)
    return tape, entries


def test_a_tape_holds_the_last_tokens_in_order(draw):
    tape, (keys, values) = filled(draw, T)
    np.testing.assert_array_equal(tape.key, jnp.swapaxes(keys[-K:], 0, 1))
    np.testing.assert_array_equal(tape.value, jnp.swapaxes(values[-K:], 0, 1))
    assert tape.valid.all()
    tape, _ = filled(draw, 2)
    np.testing.assert_array_equal(tape.valid, [[False] * 3 + [True] * 2] * B)


def test_padding_is_not_stored(draw):
    tape = append(empty_tape(B, slots=K, key=E, value=V), draw(B, E), draw(B, V))
    valid = jnp.array([True, False])
    tape = append(tape, draw(B, E), draw(B, V), valid)
    np.testing.assert_array_equal(tape.valid[:, -2:], [[True, True], [True, False]])


def test_reading_equals_a_python_loop(draw):
    tape, _ = filled(draw, 3)
    scores = draw(B, K)
    context, weights = read_tape(scores, tape)
    for b in range(B):
        exps = [float(jnp.exp(scores[b, k])) for k in range(K) if tape.valid[b, k]]
        expected = [0] * (K - len(exps)) + [e / sum(exps) for e in exps]
        np.testing.assert_allclose(weights[b], expected, rtol=1e-5)
        total = sum(w * tape.value[b, k] for k, w in enumerate(expected))
        np.testing.assert_allclose(context[b], total, rtol=1e-5, atol=1e-6)


def test_an_empty_tape_reads_zeros_with_finite_gradients(draw):
    tape = empty_tape(B, slots=K, key=E, value=V)

    def loss(scores, value):
        return read_tape(scores, tape._replace(value=value)).context.sum()

    scores, value = draw(B, K), draw(B, K, V)
    assert loss(scores, value) == 0
    for gradient in jax.grad(loss, (0, 1))(scores, value):
        np.testing.assert_array_equal(gradient, 0)


def test_a_slot_without_a_token_has_no_effect(draw):
    tape, _ = filled(draw, 3)
    scores = draw(B, K)
    empty = ~tape.valid[..., None]
    junk = tape._replace(value=jnp.where(empty, 1e9, tape.value))
    for x, y in zip(read_tape(scores, tape), read_tape(scores, junk), strict=True):
        np.testing.assert_array_equal(x, y)


def test_batched_equals_vmapped_and_jitted(draw):
    tape, _ = filled(draw, 3)
    scores, key, value = draw(B, K), draw(B, E), draw(B, V)

    def step(scores, tape, key, value):
        return read_tape(scores, tape), append(tape, key, value)

    batched = step(scores, tape, key, value)
    for other in (jax.vmap(step), jax.jit(step)):
        result = other(scores, tape, key, value)
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, 1e-6), batched, result
        )


@pytest.mark.parametrize("slots", [2, T, T + 3])
def test_weights_of_slots_are_weights_of_tokens(draw, slots):
    weights = draw(B, T, slots)
    tokens = token_weights(weights)
    expected = np.zeros((B, T, T))
    for t in range(T):
        for k in range(slots):
            if t - slots + k >= 0:
                expected[:, t, t - slots + k] = weights[:, t, k]
    np.testing.assert_array_equal(tokens, expected.astype(np.float32))


def scan_of_append(step, weights, shared, tape, valid, carry, inputs):
    """The same as `tape_scan`, by `jax.lax.scan` and `append`."""
    slots = tape[0].shape[1]

    def body(state, inputs):
        tape, carry = state
        x, present = inputs
        carry, entry, y, s = step(weights, shared, tape[:2], tape.valid, carry, x)
        return (append(tape, *entry, present), carry), (entry, y, s)

    start = Tape(*tape, valid[:, :slots]), carry
    (_, carry), (entries, y, s) = jax.lax.scan(
        body, start, (inputs, valid[:, slots:].T)
    )
    return entries, carry, y, s


def small_step(weights, shared, tape, valid, carry, x):
    key, value = tape
    scores = jnp.tanh(key + (carry @ weights["w"])[:, None] + x[:, None]) @ shared
    context, s = read_tape(scores, Tape(key, value, valid))
    new = jnp.tanh(context @ weights["u"] + x @ weights["x"])
    entry = new @ weights["w"], context * 0.5 + new.sum()
    return new, entry, context + (carry @ weights["w"]).sum(), s


@pytest.mark.parametrize(("steps", "slots"), [(T, 1), (T, 2), (T, T), (T, 10), (1, 3)])
@pytest.mark.parametrize("empty", [False, True])
def test_the_scan_equals_a_scan_of_append_in_value_and_gradient(
    draw, x64, steps, slots, empty
):
    weights = {"w": draw(D, E), "u": draw(V, D), "x": draw(E, D), "unused": draw(D, V)}
    tape = draw(B, slots, E), draw(B, slots, V)
    first = jnp.array([[slots if empty else 1], [slots if empty else 0]])
    valid = jnp.arange(slots + steps) >= first
    valid = valid.at[1, slots + steps // 2].set(False)
    args = weights, draw(E), tape, draw(B, D), draw(steps, B, E)

    def loss(run, *args):
        result = run(small_step, *args[:3], valid, *args[3:])
        leaves = enumerate(jax.tree.leaves(result))
        return sum((jnp.sin(x + n) * x).sum() for n, x in leaves), result

    gradients = quick_jit(jax.grad(loss, range(1, 6), has_aux=True), static_argnums=0)
    gradient, actual = gradients(functools.partial(tape_scan, empty=empty), *args)
    plain, expected = gradients(scan_of_append, *args)
    close = np.testing.assert_allclose
    jax.tree.map(functools.partial(close, atol=1e-12), actual, expected)
    jax.tree.map(functools.partial(close, atol=1e-11), gradient, plain)


def test_the_backward_pass_repeats_no_product_and_saves_no_tape(draw):
    weights = {"w": draw(D, E), "u": draw(V, D), "x": draw(E, D)}
    tape = draw(B, K, E), draw(B, K, V)
    valid = jnp.ones((B, K + T), bool)

    def loss(weights, inputs):
        result = tape_scan(
            small_step, weights, draw(E), tape, valid, draw(B, D), inputs
        )
        return sum(x.sum() for x in jax.tree.leaves(result))

    jaxpr = jax.make_jaxpr(jax.grad(loss))(weights, draw(T, B, E)).jaxpr
    forward, backward = (e for e in jaxpr.eqns if e.primitive.name == "scan")
    assert matrix_products(forward.params["jaxpr"]) == 5
    assert matrix_products(backward.params["jaxpr"]) == 5  # of the gradients
    for variable in forward.outvars:
        assert variable.aval.shape[:3] != (T, B, K) or variable.aval.ndim == 3


def matrix_products(jaxpr):
    """Number of products with a matrix in a jaxpr."""
    count = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            count += equation.invars[1].aval.ndim == 2
        for inner in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(inner, "jaxpr", inner)
            count += matrix_products(inner) if hasattr(inner, "eqns") else 0
    return count
