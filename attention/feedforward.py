"""Feed-forward attention, of Raffel and Ellis (2015): a sequence read without a query.

Every step has a score of its own, e_t = tanh(h_t w + b), and the whole sequence becomes
one vector, c = sum_t alpha_t h_t with alpha = softmax(e). Scores in (-1, 1) cannot
single a step out: no weight is above e^2 times another one, so that one step of T gets
at most e^2 / (e^2 + T - 1). A network that finds a few steps among many therefore has
values near 0 at the others. The order of the steps does not matter, nor does it to say
everything twice.

Axes: ... any batch; T steps; D width of a value; F features of an input.
"""

import jax
import jax.numpy as jnp

from .core import Attention, attend


def feedforward_attention(
    value: jax.Array, w: jax.Array, b: jax.Array, *, mask: jax.Array | None = None
) -> Attention:
    """One context of a sequence: e_t = tanh(h_t w + b), c = sum_t softmax(e)_t h_t.

    Raffel and Ellis (2015), on feed-forward attention. With w = 0 it is the mean.

    Args:
        value: [..., T, D], h.
        w: [D].
        b: [].
        mask: bool, True = may attend; broadcasts against [..., T].

    Returns:
        Attention(context [..., D], weights [..., T]); a sequence without any step to
        attend to has weights, context and gradients of 0.

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


def check_width(name: str, shape: tuple[int, ...], w: jax.Array) -> None:
    """Check that `w` is as wide as the last axis of a shape.

    Raises:
        ValueError: if it is not; the text begins with `name`.
    """
    if w.shape != shape[-1:]:
        raise ValueError(f"{name}: w {w.shape} must have the width of value {shape}")
