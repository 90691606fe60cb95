"""Identity with a bounded gradient, for long recurrences."""

import functools
from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def bounded_gradient(x: Tree, limit: float) -> Tree:
    """Identity whose gradient is clipped to [-limit, limit], elementwise.

    Applied to the carry of a scan, it bounds the gradient between steps. Clipping after
    the backward pass is too late, since the product of the steps' Jacobians can
    overflow.

    Args:
        x: pytree of arrays of any shape.
        limit: a positive Python number, the maximum absolute value of a gradient.

    Returns:
        `x`.
    """
    return x


def _forward(x, limit):
    return x, None


def _backward(limit, _, gradient):
    return (jax.tree.map(lambda g: jnp.clip(g, -limit, limit), gradient),)


bounded_gradient.defvjp(_forward, _backward)
