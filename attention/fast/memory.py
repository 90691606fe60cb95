"""Memory access of the Neural Turing Machine, equal to `attention.memory` but faster.

The memory is transposed, [..., M, N]: operations on all slots then run along the
longer, contiguous axis. The derivatives of `address` and `write` are written out: a
scan stores only the memory, the weights and the head parameters, and its backward pass
recomputes the rest.

Axes: ... any batch, the same for all arguments; H heads; N memory slots; M memory
width; J shifts.
"""

import math

import jax
import jax.numpy as jnp

from ..core import masked_softmax
from ..memory import interpolate, sharpen, shift

_MIN_SQUARE = 1e-24  # shorter vectors count as 0: the derivative would overflow


def address(
    memory: jax.Array,
    previous: jax.Array,
    *,
    key: jax.Array,
    strength: jax.Array,
    gate: jax.Array,
    shifts: jax.Array,
    sharpening: jax.Array,
) -> jax.Array:
    """NTM addressing in four stages, [..., H, N] weights.

    See `attention.memory.address` for arguments and errors.
    """
    query = key * (strength * _inverse_norm(key, axis=-1))[..., None]
    return _address(memory, previous, query, gate, shifts, sharpening)


def read(weights: jax.Array, memory: jax.Array) -> jax.Array:
    """Read vectors [..., H, M] by weights [..., H, N]; see `attention.memory.read`."""
    return jnp.einsum("...hn,...mn->...hm", weights, memory)


def _inverse_norm(x, axis):
    """1 / |x|; 0 for a vector of (almost) zeros, with a gradient of 0."""
    square = jnp.sum(x * x, axis=axis)
    positive = square > _MIN_SQUARE
    return jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, square, 1)), 0)


def _outer(left, right):
    """Outer products of [..., H, M] and [..., H, N], summed over heads: [..., M, N]."""
    return jnp.einsum("...hm,...hn->...mn", left, right)


def _content_scores(memory, query):
    """Scores beta K[k, M(i)], [..., H, N], and the slots' inverse norms [..., 1, N]."""
    inverse = _inverse_norm(memory, axis=-2)[..., None, :]
    return (query @ memory) * inverse, inverse


def _weights(scores, previous, gate, shifts, sharpening):
    """Content scores [..., H, N] to weights [..., H, N]."""
    weights = interpolate(masked_softmax(scores), previous, gate)
    return sharpen(shift(weights, shifts), sharpening)


@jax.custom_vjp
def _address(memory, previous, query, gate, shifts, sharpening):
    scores, _ = _content_scores(memory, query)
    return _weights(scores, previous, gate, shifts, sharpening)


def _address_forward(*inputs):
    return _address(*inputs), inputs


def _address_backward(inputs, gradient):
    memory, previous, query, gate, shifts, sharpening = inputs
    scores, inverse = _content_scores(memory, query)
    _, back = jax.vjp(_weights, scores, previous, gate, shifts, sharpening)
    scores_gradient, previous_gradient, *others = back(gradient)
    # scores(i) = query . M(i) / |M(i)|: through the product, and through the norm.
    product_gradient = scores_gradient * inverse
    radial = inverse**2 * jnp.sum(scores_gradient * scores, axis=-2, keepdims=True)
    memory_gradient = _outer(query, product_gradient) - memory * radial
    query_gradient = read(product_gradient, memory)
    return memory_gradient, previous_gradient, query_gradient, *others


_address.defvjp(_address_forward, _address_backward)


def _split_heads(weights, erase):
    """The H weights [..., 1, N] and erase vectors [..., M, 1] of each head, as lists.

    These are stored for the backward pass instead of the arrays of all heads: XLA
    vectorizes slicing them from a scan's stacked residuals. With four heads, this takes
    0.6 times as long.
    """
    heads = range(weights.shape[-2])
    return (
        [weights[..., h, None, :] for h in heads],
        [erase[..., h, :, None] for h in heads],
    )


def _retained(weights, erase):
    """1 - w(i) e of each head, a list of H arrays [..., M, N]."""
    return [1 - w * e for w, e in zip(weights, erase, strict=True)]


@jax.custom_vjp
def write(
    memory: jax.Array, weights: jax.Array, erase: jax.Array, add: jax.Array
) -> jax.Array:
    """Memory write by erase and add; see `attention.memory.write`."""
    retained = math.prod(_retained(*_split_heads(weights, erase)))
    return memory * retained + _outer(add, weights)


def _write_forward(memory, weights, erase, add):
    residuals = memory, *_split_heads(weights, erase), add
    return write(memory, weights, erase, add), residuals


def _write_backward(residuals, gradient):
    memory, weights, erase, add = residuals
    retained = _retained(weights, erase)
    product = gradient * memory
    erase_gradient, erased = [], []
    for h, (w, e) in enumerate(zip(weights, erase, strict=True)):
        by_others = product * math.prod(retained[:h] + retained[h + 1 :])
        erase_gradient.append(-read(w, by_others))
        erased.append(jnp.swapaxes(e, -1, -2) @ by_others)
    return (
        gradient * math.prod(retained),
        add @ gradient - jnp.concatenate(erased, axis=-2),
        jnp.concatenate(erase_gradient, axis=-2),
        read(jnp.concatenate(weights, axis=-2), gradient),
    )


write.defvjp(_write_forward, _write_backward)
