"""Feed-forward attention: one context vector per sequence, without a query.

Raffel and Ellis (2015). The score of step t depends on its value alone, e_t =
tanh(h_t w + b), and the context is c = sum_t alpha_t h_t with alpha = softmax(e). The
order of the steps has no effect, and neither has repeating the whole sequence.

Scores in (-1, 1) bound the ratio of two weights by e^2: a single step of T weighs at
most e^2 / (e^2 + T - 1). A network that selects a few steps among many must therefore
encode the others as values near 0.

Axes: ... any batch; T steps; D value width.
"""

import jax
import jax.numpy as jnp

from ._checks import check_width
from .core import Attention, attend


def feedforward_attention(
    value: jax.Array, w: jax.Array, b: jax.Array, *, mask: jax.Array | None = None
) -> Attention:
    """Context sum_t softmax(e)_t h_t, e_t = tanh(h_t w + b): Raffel and Ellis (2015).

    With w = 0 the context is the mean of the values. A sequence whose steps are all
    masked has weights, context and gradients of 0.

    Args:
        value: [..., T, D], the paper's h.
        w: [D].
        b: [], a scalar.
        mask: bool, True = may attend; broadcasts against [..., T].

    Returns:
        Attention(context [..., D], weights [..., T]).

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `w` does not fit the last axis of `value`, or `mask` does not
            broadcast.
    """
    check_width("feedforward_attention", value.shape, w)
    scores = jnp.tanh(value @ w + b)[..., None, :]  # [..., 1, T]
    mask = None if mask is None else mask[..., None, :]
    context, weights = attend(scores, value, mask=mask)
    return Attention(context[..., 0, :], weights[..., 0, :])
