"""Scan over steps that attend to a tape of the previous steps.

`attention.tape.append` shifts the tape, and differentiating `jax.lax.scan` with a tape
in its carry saves the whole tape at every step. Here an entry overwrites the oldest
one, so that nothing moves. The backward pass restores the overwritten entry and
recomputes the step, except its products with weight matrices, which are saved. The
gradients of these matrices are deferred as in `attention.fast.scan`. A scan from an
empty tape runs in parts, each with a larger tape than the part before.

Axes: B batch; K slots; T steps; D, F input and output width of a matrix.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .scan import Handle, weight_gradient

Step = Callable[[Any, Any, Any, jax.Array, Any, Any], tuple[Any, Any, Any, jax.Array]]

PARTS = 2  # of a scan from an empty tape; more parts run faster but compile slower


def tape_scan(
    step: Step,
    matrices: Any,
    shared: Any,
    tape: Any,
    valid: jax.Array,
    carry: Any,
    inputs: Any,
    *,
    empty: bool = False,
) -> tuple[Any, Any, Any, jax.Array]:
    """Scan of a step that reads the K previous entries of a tape and writes one.

    Equal to `jax.lax.scan` of a step followed by `attention.tape.append`, for a step
    that does not depend on the order of the slots. Only reverse-mode gradients are
    defined.

    Args:
        step: step(matrices, shared, tape, valid, carry, x) -> (carry, entry, y, s), a
            pure function. Each leaf of its `matrices` is a `Matrix` as in
            `attention.fast.scan`; `tape` is a pytree of [B, K, ...] entries in any
            order, `valid` is [B, K], `entry` is a pytree of [B, ...], and s [B, K] has
            a value for each slot. The result must not depend on invalid entries.
        matrices: pytree of matrices [D, F].
        shared: pytree of other floating arrays that every step reads.
        tape: pytree of [B, K, ...] floating arrays, the entries before the first step,
            the oldest first.
        valid: [B, K + T] bool, whether an entry, of the tape or of a step, is valid.
        carry: pytree of floating arrays passed from step to step.
        inputs: pytree of [T, ...] floating arrays, one slice per step.
        empty: whether all entries of `tape` are invalid, which is not checked. Early
            steps then get fewer than K slots, and s is 0 at those left out.

    Returns:
        The entries of all steps as a pytree of [T, B, ...], the final carry, the y of
        all steps as [T, ...], and their s as [T, B, K], for the oldest slot first.
    """
    slots = jax.tree.leaves(tape)[0].shape[1]
    steps = len(jax.tree.leaves(inputs)[0])
    arrays, treedef = jax.tree.flatten(matrices)
    parts = _parts(steps, slots) if empty else [(0, steps, slots)]
    times, slot_numbers = np.arange(steps), np.arange(slots)

    def entry_at(time: int | np.ndarray) -> np.ndarray:
        """Number of the entry in each slot before a step, as [..., K].

        Entry n is in slot n % K, so step t overwrites entry t by entry K + t.
        """
        return time + (slot_numbers - time) % slots

    def call(handles, shared, ring, inside, carry, x):
        return step(
            jax.tree.unflatten(treedef, handles), shared, ring, inside, carry, x
        )

    def loop(arrays, shared, tape, inside, carry, inputs):
        def body(state, x):
            ring, carry = state
            slot, inside, x = x
            handles = list(map(Handle, arrays))
            new, entry, y, s = call(handles, shared, ring, inside, carry, x)
            products = [handle.products for handle in handles]
            return (_put(ring, entry, slot), new), (entry, y, s, carry, products)

        ring, outputs = tape, []
        for start, stop, size in parts:
            x = _cut((times % slots, inside[..., :size], inputs), start, stop)
            ring = _resized(ring, size)
            (ring, carry), (entry, y, s, *saved) = jax.lax.scan(body, (ring, carry), x)
            outputs.append((entry, y, _resized(s, slots, axis=2), *saved))
        entries, y, s, *saved = _joined(outputs)
        return (entries, carry, y, s), saved

    @jax.custom_vjp
    def run(*args):
        return loop(*args)[0]

    def forward(arrays, shared, tape, inside, carry, inputs):
        result, saved = loop(arrays, shared, tape, inside, carry, inputs)
        return result, (arrays, shared, tape, inside, *saved, inputs, result[0])

    def backward(residuals, gradients):
        arrays, shared, tape, inside, carries, products, inputs, entries = residuals
        d_entries, d_carry, d_y, d_s = gradients
        transposed = jax.lax.optimization_barrier([w.T for w in arrays])

        def body(state, x):
            d_shared, ring, d_ring, d_carry = state
            slot, inside, carry, products, x, old, d_old, d_y, d_s = x

            def recompute(shared, ring, carry, x, deltas):
                handles = list(map(Handle, arrays, transposed, deltas, products))
                result = call(handles, shared, ring, inside, carry, x)
                return result, [handle.factors for handle in handles]

            d_entry = jax.tree.map(lambda leaf: leaf[:, slot], d_ring)
            ring, d_ring = _put(ring, old, slot), _put(d_ring, d_old, slot)
            deltas = jax.tree.map(jnp.zeros_like, products)
            _, back, factors = jax.vjp(
                recompute, shared, ring, carry, x, deltas, has_aux=True
            )
            d_w, d_read, d_carry, d_x, deltas = back((d_carry, d_entry, d_y, d_s))
            d_shared, d_ring = jax.tree.map(jnp.add, (d_shared, d_ring), (d_w, d_read))
            return (d_shared, ring, d_ring, d_carry), (d_x, factors, deltas)

        every = jax.tree.map(
            lambda old, new: jnp.concatenate([jnp.swapaxes(old, 0, 1), new]),
            (tape, jax.tree.map(jnp.zeros_like, tape)),
            (entries, d_entries),
        )
        ring, d_ring = jax.tree.map(
            lambda leaf: jnp.swapaxes(leaf[entry_at(steps)], 0, 1), every
        )
        d_shared = jax.tree.map(jnp.zeros_like, shared)
        outputs: list[Any] = []
        for start, stop, size in reversed(parts):
            x = times % slots, inside[..., :size], carries, products, inputs, *every
            x = _cut((*x, d_y, d_s[..., :size]), start, stop)
            ring, d_ring = _resized((ring, d_ring), size)
            state, output = jax.lax.scan(
                body, (d_shared, ring, d_ring, d_carry), x, reverse=True
            )
            d_shared, ring, d_ring, d_carry = state
            outputs.insert(0, output)
        d_inputs, factors, deltas = _joined(outputs)
        d_arrays = list(map(weight_gradient, arrays, factors, deltas))
        return d_arrays, d_shared, _resized(d_ring, slots), None, d_carry, d_inputs

    run.defvjp(forward, backward)
    inside = jnp.swapaxes(valid[:, entry_at(times[:, None])], 0, 1)
    entries, carry, y, s = run(arrays, shared, tape, inside, carry, inputs)
    order = (times[:, None] + slot_numbers) % slots
    return entries, carry, y, jnp.take_along_axis(s, order[:, None], axis=2)


def _parts(steps: int, slots: int) -> list[tuple[int, int, int]]:
    """Start, stop and number of slots of each part of a scan from an empty tape."""
    bounds = [*range(0, steps, -(-steps // PARTS)), steps]
    return [(start, stop, min(stop, slots)) for start, stop in pairwise(bounds)]


def _put(ring: Any, entry: Any, slot: jax.Array) -> Any:
    """The tape with a slot replaced."""
    return jax.tree.map(
        lambda leaf, e: jax.lax.dynamic_update_index_in_dim(leaf, e, slot, 1),
        ring,
        entry,
    )


def _resized(ring: Any, size: int, axis: int = 1) -> Any:
    """The first `size` slots, with zeros appended if there are fewer."""

    def resized(leaf: jax.Array) -> jax.Array:
        leaf = jax.lax.slice_in_dim(leaf, 0, min(size, leaf.shape[axis]), axis=axis)
        room = [(0, 0)] * leaf.ndim
        room[axis] = (0, size - leaf.shape[axis])
        return jnp.pad(leaf, room)

    return jax.tree.map(resized, ring)


def _cut(tree: Any, start: int, stop: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[start:stop], tree)


def _joined(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)
