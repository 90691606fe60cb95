"""Feed-forward attention over long sequences, in chunks.

Axes: as in `attention.feedforward`, and F channels of an input.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .._checks import check_mask, check_width
from ..core import Attention
from ..feedforward import feedforward_attention

_CHUNK = 1000  # steps whose values, 400 KB at D = 100, fit in the cache of a core


def pooled_attention(
    encode: Callable[[jax.Array], jax.Array],
    inputs: jax.Array,
    w: jax.Array,
    b: jax.Array,
    *,
    mask: jax.Array | None = None,
) -> Attention:
    """Feed-forward attention to encoded inputs.

    Equals `feedforward_attention(encode(inputs), w, b, mask=mask)`. On a CPU it is
    computed by `chunked_attention`.

    Args:
        encode: function from inputs [..., F] to values [..., D], applied per step.
        inputs: [..., T, F].
        w: [D] weight vector of the score.
        b: scalar bias of the score.
        mask: bool, True = may attend; broadcasts against [..., T].

    Returns:
        Attention(context [..., D], weights [..., T]).

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `w` does not fit what `encode` returns, or `mask` does not
            broadcast.
    """

    def chunked(inputs: jax.Array) -> Attention:
        return chunked_attention(encode, inputs, w, b, mask=mask)

    def plain(inputs: jax.Array) -> Attention:
        return feedforward_attention(encode(inputs), w, b, mask=mask)

    return jax.lax.platform_dependent(inputs, cpu=chunked, default=plain)


def chunked_attention(
    encode: Callable[[jax.Array], jax.Array],
    inputs: jax.Array,
    w: jax.Array,
    b: jax.Array,
    *,
    mask: jax.Array | None = None,
    chunk: int = _CHUNK,
) -> Attention:
    """Feed-forward attention, summed over chunks of a sequence.

    Scores are bounded, so that the sums need no running maximum. Chunks of at most
    `chunk` steps are computed one after the other and recomputed in the backward pass,
    so that their values stay in the CPU's cache.

    See `pooled_attention` for the other arguments and errors.

    Returns:
        Attention(context [..., D], weights [..., T]) in the dtype of the values; sums
        are computed in float32 or wider.
    """
    value = jax.eval_shape(
        encode, jax.ShapeDtypeStruct(inputs.shape[-2:], inputs.dtype)
    )
    check_width("chunked_attention", value.shape, w)
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

    def pooled(part):
        inputs, mask = part
        h = encode(inputs)
        e = jnp.tanh(h @ w + b).astype(wide)
        exps = jnp.where(mask, jnp.exp(e), 0)
        return exps @ h, exps.sum(), exps  # the compiler drops unused weights

    sums, totals, exps = jax.lax.map(jax.checkpoint(pooled, prevent_cse=False), parts)
    exps = exps.reshape(*batch, -1)[..., :steps]
    # An unmasked step adds at least 1/e: the bound only acts if all steps are masked.
    total = jnp.maximum(totals.reshape(*batch, pieces).sum(-1), 0.1)[..., None]
    context = sums.reshape(*batch, pieces, -1).sum(-2) / total
    return Attention(context.astype(value.dtype), (exps / total).astype(value.dtype))
