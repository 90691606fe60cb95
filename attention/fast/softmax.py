"""Masked softmax, and attention that uses it; equal to `attention.core` but faster.

The derivative of the softmax is a function of the weights, so that the backward pass
stores one [Q, K] array instead of several.

Axes: ... any batch; Q queries; K keys; V value width.
"""

import functools

import jax
import jax.numpy as jnp

from .. import core


def masked_softmax(scores: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Masked softmax over the keys.

    See `attention.core.masked_softmax` for arguments, result and errors.
    """
    return _softmax(core.masked_scores(scores, mask)).astype(scores.dtype)


attend = functools.partial(core.attend, align=masked_softmax)


@jax.custom_jvp
def _softmax(scores: jax.Array) -> jax.Array:
    """Softmax over the last axis; a row of -inf becomes a row of 0."""
    # Both calls of `maximum` only affect such a row: any other has a finite maximum,
    # which adds exp(0) = 1 to its sum.
    highest = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    exps = jnp.exp(scores - jnp.maximum(highest, jnp.finfo(scores.dtype).min))
    return exps / jnp.maximum(jnp.sum(exps, axis=-1, keepdims=True), 1)


@_softmax.defjvp
def _softmax_jvp(primals, tangents):
    (scores,), (tangent,) = primals, tangents
    weights = _softmax(scores)
    mean = jnp.sum(weights * tangent, axis=-1, keepdims=True)
    return weights, weights * (tangent - mean)
