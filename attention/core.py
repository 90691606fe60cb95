"""Score, align, read: the three moves of every attention.

A score function compares the queries with the keys (`scores.py`), an alignment turns
the scores into weights (`masked_softmax` here, the others in `alignments.py`), and
`attend` reads the values with them: context = align(scores) value, Bahdanau et al.
(2015), eqs. 5 and 6; Vaswani et al. (2017), eq. 1.

Axes: ... any batch (heads are one of its axes); Q queries; K keys; V value width.

Differs from the papers: a query that may attend to nothing gets weights, context and
gradients of 0, where the printed softmax over -inf is not a number.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Attention(NamedTuple):
    """What an attention returns.

    Attributes:
        context: [..., Q, V] the values read.
        weights: [..., Q, K] the alignment that read them.
    """

    context: jax.Array
    weights: jax.Array


def masked_softmax(scores: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Softmax over the keys a query may attend to: 0 elsewhere, exactly.

    Bahdanau et al. (2015), eq. 6; Luong et al. (2015), eq. 7, their global alignment;
    Vaswani et al. (2017), eq. 1 and section 3.2.3. A row without any such key is 0
    everywhere and sends back a gradient of 0; a score of -inf counts as masked.

    Args:
        scores: [..., Q, K] unnormalised, floating.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] weights in the dtype of `scores`, computed in float32 or wider.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` does not broadcast against `scores`.
    """
    wide = masked_scores(scores, mask)
    maximum = jnp.max(wide, axis=-1, keepdims=True, initial=-jnp.inf)
    # -inf - -inf is not a number: a row of -inf subtracts a finite number instead.
    maximum = jnp.maximum(maximum, jnp.finfo(wide.dtype).min)
    exps = jnp.exp(wide - jax.lax.stop_gradient(maximum))
    total = jnp.sum(exps, axis=-1, keepdims=True)  # 0 in a row of -inf, else at least 1
    return (exps / jnp.where(total == 0, 1, total)).astype(scores.dtype)


def masked_scores(scores: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Scores of -inf wherever a query may not attend.

    Args:
        scores: [..., Q, K] unnormalised, floating.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] in float32 or wider.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` does not broadcast against `scores`.
    """
    dtype = scores.dtype
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"scores must be floating, got {dtype}")
    scores = scores.astype(jnp.promote_types(dtype, jnp.float32))
    if mask is None:
        return scores
    check_mask(mask, scores.shape)
    return jnp.where(mask, scores, -jnp.inf)


def attend(
    scores: jax.Array,
    value: jax.Array,
    *,
    mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    align: Callable[..., jax.Array] = masked_softmax,
) -> Attention:
    """Aligns the scores and reads the values: Vaswani et al. (2017), eq. 1.

    Args:
        scores: [..., Q, K] unnormalised.
        value: [..., K, V]; batch axes broadcast against `scores`.
        mask: bool, True = may attend; broadcasts against `scores`.
        bias: added to the scores; broadcasts against them.
        align: `align(scores, mask=mask)` -> [..., Q, K] weights.

    Returns:
        Attention(context [..., Q, V], weights [..., Q, K]).

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if `mask` does not broadcast against `scores`, or `value` has
            another number of keys.
    """
    if scores.shape[-1] != value.shape[-2]:
        raise ValueError(
            f"scores {scores.shape} have {scores.shape[-1]} keys, "
            f"value {value.shape} has {value.shape[-2]}"
        )
    if bias is not None:
        scores = scores + bias
    weights = align(scores, mask=mask)
    return Attention(jnp.matmul(weights, value), weights)


def check_mask(mask: jax.Array, shape: tuple[int, ...]) -> None:
    """Refuses a mask for scores of a shape.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if it does not broadcast against the shape.
    """
    if mask.dtype != bool:
        raise TypeError(f"mask must be bool (True = may attend), got {mask.dtype}")
    try:
        fits = np.broadcast_shapes(mask.shape, shape)[-1:] == shape[-1:]
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"mask {mask.shape} does not broadcast to scores {shape}")
