"""Alignments: from scores to weights.

Each is `align(scores [..., Q, K], *, mask=None) -> weights [..., Q, K]`, which `attend`
takes.

Axes: ... any batch; Q queries; K keys.
"""

import jax

from attention.core import masked_softmax


def global_alignment(scores: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
    """Softmax over all source positions: Luong et al. (2015), eq. 7.

    Args:
        scores: [..., Q, K] unnormalised.
        mask: bool, True = may attend; broadcasts against `scores`.

    Returns:
        [..., Q, K] weights, each row of sum 1, or 0 where all is masked.

    Raises:
        TypeError: if `mask` is not bool or `scores` not floating.
        ValueError: if `mask` does not broadcast against `scores`.
    """
    return masked_softmax(scores, mask)
