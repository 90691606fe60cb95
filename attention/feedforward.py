"""Feed-forward attention: one context vector per sequence, without a query.

Raffel and Ellis (2015). The score of step t depends on its value alone, e_t =
tanh(h_t w + b), and the context is c = sum_t alpha_t h_t with alpha = softmax(e).
Neither reordering the steps nor repeating the whole sequence changes the context.

Since scores lie in (-1, 1), two weights differ by a factor of at most e^2, and one of T
steps has a weight of at most e^2 / (e^2 + T - 1). A network that selects a few steps
among many must therefore encode the others as values near 0.

Axes: ... any batch; T steps; D value width.
"""

import jax
import jax.numpy as jnp

from ._checks import check_width
from .core import Attention, attend

__all__ = ["feedforward_attention"]


def feedforward_attention(
    value: jax.Array, w: jax.Array, b: jax.Array, *, mask: jax.Array | None = None
) -> Attention:
    """Feed-forward attention over the steps of a sequence: Raffel and Ellis (2015).

    The context is sum_t softmax(e)_t h_t with scores e_t = tanh(h_t w + b). With w = 0
    it is the mean of the values. A sequence whose steps are all masked has weights,
    context and gradients of 0.

    Args:
        value: [..., T, D], the paper's h.
        w: [D] weight vector of the score.
        b: scalar bias of the score.
        mask: bool, True = may attend; broadcasts against [..., T].

    Returns:
        Attention(context [..., D], weights [..., T]).

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `w` does not fit the last axis of `value`, or `mask` does not
            broadcast.

    Example:
        >>> value = jnp.array([[0.0], [2.0], [0.0]])
        >>> context, weights = feedforward_attention(value, jnp.ones(1), jnp.array(0.0))
        >>> print(context, weights)
        [1.13] [0.22 0.57 0.22]
    """
    check_width("feedforward_attention", value.shape, w)
    scores = jnp.tanh(value @ w + b)[..., None, :]  # [..., 1, T]
    mask = None if mask is None else mask[..., None, :]
    context, weights = attend(scores, value, mask=mask)
    return Attention(context[..., 0, :], weights[..., 0, :])
