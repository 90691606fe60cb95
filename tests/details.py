"""Weights from the details of an attention record, as the explorer computes them."""

import jax.numpy as jnp

from attention.core import masked_softmax
from attention.declaration import ScoreParts


def weights_of(d):
    """Weights [..., H, Q, K] of the `ScoreDetails` of a batch or of one example."""
    parts = ScoreParts(
        d.query, d.key, v=d.v, location=d.location, activation=d.activation
    )
    weights = masked_softmax(d.scale[..., None, None] * parts.terms().sum(-1) + d.bias)
    return jnp.swapaxes(weights, -3, -2) if d.own_keys else weights
