"""Scan over steps that attend to a tape of the previous steps.

Differentiating `jax.lax.scan` with a tape in its carry saves the whole tape at every
step. But each slot is written only once, so the final tape contains all earlier ones.
Here the backward pass reads the window of each step from the final tape, and recomputes
the step.

Axes: B batch; K slots of the window; T steps.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

Step = Callable[[Any, Any, jax.Array, Any, Any], tuple[Any, Any, Any]]


def tape_scan(
    step: Step, weights: Any, tape: Any, valid: jax.Array, carry: Any, inputs: Any
) -> tuple[Any, Any, Any]:
    """Scan of a step that reads the K previous entries of a tape and writes one.

    Equal to `jax.lax.scan` of a step followed by `attention.tape.append`. Only
    reverse-mode gradients are defined.

    Args:
        step: step(weights, window, valid, carry, x) -> (carry, entry, y), a pure
            function; `window` is a pytree of [B, K, ...] entries, the oldest first,
            `valid` is [B, K], and `entry` is a pytree of [B, ...].
        weights: pytree of arrays that every step reads.
        tape: pytree of [B, K, ...] floating arrays, the entries before the first step.
        valid: [B, K + T] bool, whether an entry, of the tape or of a step, is valid.
        carry: pytree of floating arrays passed from step to step.
        inputs: pytree of [T, ...] floating arrays, one slice per step.

    Returns:
        The K + T entries, the final carry, and the y of all steps as [T, ...].
    """
    slots = jax.tree.leaves(tape)[0].shape[1]
    steps = len(jax.tree.leaves(inputs)[0])
    window = partial(jax.lax.dynamic_slice_in_dim, slice_size=slots, axis=1)

    def loop(weights, tape, valid, carry, inputs):
        room = [(0, 0), (0, steps)]
        tape = jax.tree.map(lambda x: jnp.pad(x, room + [(0, 0)] * (x.ndim - 2)), tape)

        def body(state, x):
            tape, carry = state
            time, x = x
            slices = jax.tree.map(lambda leaf: window(leaf, time), tape)
            new, entry, y = step(weights, slices, window(valid, time), carry, x)
            tape = jax.tree.map(
                lambda leaf, e: jax.lax.dynamic_update_index_in_dim(
                    leaf, e, slots + time, 1
                ),
                tape,
                entry,
            )
            return (tape, new), (y, carry)

        (tape, carry), (y, carries) = jax.lax.scan(
            body, (tape, carry), (jnp.arange(steps), inputs)
        )
        return (tape, carry, y), carries

    @jax.custom_vjp
    def run(*args):
        return loop(*args)[0]

    def forward(weights, tape, valid, carry, inputs):
        result, carries = loop(weights, tape, valid, carry, inputs)
        return result, (weights, result[0], valid, carries, inputs)

    def backward(residuals, gradients):
        weights, tape, valid, carries, inputs = residuals
        d_tape, d_carry, d_y = gradients

        def body(state, x):
            d_weights, d_tape, d_carry = state
            time, carry, x, d_y = x
            slices = jax.tree.map(lambda leaf: window(leaf, time), tape)
            inside = window(valid, time)
            _, back = jax.vjp(
                lambda w, s, c, x: step(w, s, inside, c, x), weights, slices, carry, x
            )
            d_entry = jax.tree.map(lambda leaf: leaf[:, slots + time], d_tape)
            d_w, d_slices, d_carry, d_x = back((d_carry, d_entry, d_y))
            d_tape = jax.tree.map(
                lambda leaf, d: jax.lax.dynamic_update_slice_in_dim(
                    leaf, window(leaf, time) + d, time, 1
                ),
                d_tape,
                d_slices,
            )
            return (jax.tree.map(jnp.add, d_weights, d_w), d_tape, d_carry), d_x

        (d_weights, d_tape, d_carry), d_inputs = jax.lax.scan(
            body,
            (jax.tree.map(jnp.zeros_like, weights), d_tape, d_carry),
            (jnp.arange(steps), carries, inputs, d_y),
            reverse=True,
        )
        before = jax.tree.map(lambda x: x[:, :slots], d_tape)
        return d_weights, before, None, d_carry, d_inputs

    run.defvjp(forward, backward)
    return run(weights, tape, valid, carry, inputs)
