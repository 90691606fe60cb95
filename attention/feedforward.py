"""Feed-forward attention, of Raffel and Ellis (2015): a sequence read without a query.

Every step has a score of its own, e_t = tanh(h_t w + b), and the whole sequence becomes
one vector, c = sum_t alpha_t h_t with alpha = softmax(e). Scores in (-1, 1) cannot
single a step out: no weight is above e^2 times another one, so that one step of T gets
at most e^2 / (e^2 + T - 1). A network that finds a few steps among many therefore has
values near 0 at the others. The order of the steps does not matter, nor does it to say
everything twice.

Axes: ... any batch; T steps; D width of a value; F features of an input.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from attention.core import Attention, attend, check_mask

_CHUNK = 1000  # steps whose values, 400 KB at D = 100, stay in a core's own cache


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
    _check("feedforward_attention", value.shape, w)
    scores = jnp.tanh(value @ w + b)[..., None, :]  # [..., 1, T]
    mask = None if mask is None else mask[..., None, :]
    context, weights = attend(scores, value, mask=mask)
    return Attention(context[..., 0, :], weights[..., 0, :])


def feedforward_context(
    encode: Callable[[jax.Array], jax.Array],
    inputs: jax.Array,
    w: jax.Array,
    b: jax.Array,
    *,
    mask: jax.Array | None = None,
    chunk: int = _CHUNK,
) -> jax.Array:
    """`feedforward_attention(encode(inputs), w, b, mask=mask).context`, for a CPU.

    Bounded scores need no running maximum: the sums over exp(e_t) h_t and exp(e_t) of
    pieces of a sequence add up. The pieces of all sequences go one after the other and
    are made again in the backward pass, so that no values leave the cache; at 10,000
    steps, D = 100, one core takes an eighth of the time.

    Args:
        encode: from inputs [steps, F] to values [steps, D], each step by itself.
        inputs: [..., T, F].
        w: [D].
        b: [].
        mask: bool, True = may attend; broadcasts against [..., T].
        chunk: most steps at a time.

    Returns:
        [..., D]; sums are kept in float32 or wider.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `w` does not fit what `encode` returns, or `mask` does not
            broadcast.
    """
    value = jax.eval_shape(
        encode, jax.ShapeDtypeStruct(inputs.shape[-2:], inputs.dtype)
    )
    _check("feedforward_context", value.shape, w)
    if mask is not None:
        check_mask(mask, inputs.shape[:-1])
    *batch, steps, features = inputs.shape
    pieces = -(-steps // chunk)
    length = -(-steps // pieces)
    mask = jnp.broadcast_to(True if mask is None else mask, inputs.shape[:-1])
    ends = [(0, 0)] * len(batch) + [(0, pieces * length - steps)]
    parts = (
        jnp.pad(inputs, [*ends, (0, 0)]).reshape(-1, length, features),
        jnp.pad(mask, ends).reshape(-1, length),
    )

    wide = jnp.promote_types(value.dtype, jnp.float32)

    def sums(part):
        inputs, mask = part
        value = encode(inputs)
        scores = jnp.tanh(value @ w + b).astype(wide)
        exps = jnp.where(mask, jnp.exp(scores), 0)
        return exps @ value, exps.sum()

    above, below = jax.lax.map(jax.checkpoint(sums, prevent_cse=False), parts)
    above = above.reshape(*batch, pieces, -1).sum(-2)
    below = below.reshape(*batch, pieces).sum(-1)
    # A step that counts adds 1/e or more: the bound acts where there is none.
    return (above / jnp.maximum(below, 0.1)[..., None]).astype(value.dtype)


def _check(name: str, shape: tuple[int, ...], w: jax.Array) -> None:
    if w.shape != shape[-1:]:
        raise ValueError(f"{name}: w {w.shape} must have the width of value {shape}")
