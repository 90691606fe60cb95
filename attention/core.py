"""Masked softmax and the weighted sum of the values, shared by every mechanism.

A score function compares queries with keys (`scores.py`), an alignment function turns
the scores into weights (`masked_softmax`, or another one from `alignments.py`), and
`attend` sums the values with these weights: context = align(scores) value, Bahdanau et
al. (2015), eqs. 5 and 6; Vaswani et al. (2017), eq. 1.

Axes: ... any batch, heads included; Q queries; K keys; V value width.

Differs from the papers: a query whose keys are all masked gets weights, context and
gradients of 0, where the printed softmax is undefined (0 / 0).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ._checks import check_mask

__all__ = ["Attention", "attend", "masked_scores", "masked_softmax"]


class Attention(NamedTuple):
    """Context vectors and attention weights, the result of an attention function.

    Attributes:
        context: [..., Q, V] weighted sums of the values.
        weights: [..., Q, K] weights of the keys.
    """

    context: jax.Array
    weights: jax.Array


def masked_softmax(scores: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Softmax over the keys that are not masked: Bahdanau et al. (2015), eq. 6.

    This is also the global alignment of Luong et al. (2015), eq. 7, and the masked
    softmax of Vaswani et al. (2017), section 3.2.3. The weight of a masked key is
    exactly 0. A row whose keys are all masked is 0 everywhere, with a gradient of 0. A
    score of -inf counts as masked.

    Args:
        scores: [..., Q, K] unnormalised, floating.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] weights in the dtype of `scores`, computed in float32 or wider.

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` does not broadcast against `scores`.

    Example:
        >>> mask = jnp.array([[True, True, False], [False, False, False]])
        >>> print(masked_softmax(jnp.zeros((2, 3)), mask))
        [[0.5 0.5 0. ]
         [0.  0.  0. ]]
    """
    wide = masked_scores(scores, mask)
    maximum = jnp.max(wide, axis=-1, keepdims=True, initial=-jnp.inf)
    # -inf - -inf is NaN: from a row of -inf, subtract a finite number instead.
    maximum = jnp.maximum(maximum, jnp.finfo(wide.dtype).min)
    exps = jnp.exp(wide - jax.lax.stop_gradient(maximum))
    total = jnp.sum(exps, axis=-1, keepdims=True)  # 0 in a row of -inf, else at least 1
    return (exps / jnp.where(total == 0, 1, total)).astype(scores.dtype)


def masked_scores(scores: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Scores with -inf at masked keys: Vaswani et al. (2017), section 3.2.3.

    Args:
        scores: [..., Q, K] unnormalised, floating.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] scores in float32 or wider.

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` does not broadcast against `scores`.

    Example:
        >>> print(masked_scores(jnp.ones((1, 3)), jnp.array([True, False, True])))
        [[  1. -inf   1.]]
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
    align: Callable[..., jax.Array] = masked_softmax,
) -> Attention:
    """Attention from scores: align(scores) value, Vaswani et al. (2017), eq. 1.

    Args:
        scores: [..., Q, K] unnormalised.
        value: [..., K, V]; batch axes broadcast against `scores`.
        mask: bool, True = may attend; broadcasts against `scores`.
        align: alignment function, `align(scores, mask=mask)` -> [..., Q, K] weights.

    Returns:
        Attention(context [..., Q, V], weights [..., Q, K]).

    Raises:
        TypeError: if `mask` is not bool or `scores` is not floating.
        ValueError: if `mask` does not broadcast against `scores`, or the numbers of
            keys of `scores` and `value` differ.

    Example:
        >>> scores = jnp.array([[0.0, 1.0, 2.0]])
        >>> value = jnp.array([[1.0], [2.0], [3.0]])
        >>> mask = jnp.array([True, True, False])
        >>> context, weights = attend(scores, value, mask=mask)
        >>> print(context, weights)
        [[1.73]] [[0.27 0.73 0.  ]]
    """
    if scores.shape[-1] != value.shape[-2]:
        raise ValueError(
            f"scores {scores.shape} have {scores.shape[-1]} keys, "
            f"value {value.shape} has {value.shape[-2]}"
        )
    weights = align(scores, mask=mask)
    return Attention(jnp.matmul(weights, value), weights)
