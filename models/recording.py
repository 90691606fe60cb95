"""Records of what a model attends to; see `base.records`.

Axes: B batch; H heads; Q queries; K keys.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.declaration import ScoreParts
from base.records import DETAILS, AttentionRecord, ScoreDetails, sow


def sow_attention(
    module: nn.Module,
    weights: jax.Array,
    details: Callable[[], Any] | None = None,
    **fields: Any,
) -> None:
    """Sows an `AttentionRecord`.

    Args:
        module: the module that sows.
        weights: see `AttentionRecord`.
        details: returns the record's details; called only if they are requested.
        **fields: the other fields of the record.
    """
    described = details() if details and detailed(module) else None
    sow(module, AttentionRecord(weights, details=described, **fields))


def detailed(module: nn.Module) -> bool:
    """Returns whether the details of attention records are requested."""
    return module.is_mutable_collection(DETAILS) and not module.is_initializing()


def score_details(
    parts: ScoreParts | list[ScoreParts | None] | None,
    mask: jax.Array | None = None,
) -> ScoreDetails | None:
    """Returns the parts of scores [B, H, Q, K] as the details of a record.

    Args:
        parts: parts of the scores; a list of those of each query, [B, 1, 1, K], if each
            query has its own keys; None for scores without parts.
        mask: mask of the scores, bool, broadcasts to [B, H, Q, K].
    """
    if isinstance(parts, list):
        each = [score_details(query, mask) for query in parts]
        joined = jax.tree.map(lambda *x: jnp.concatenate(x, 1), *each)
        return joined and joined.replace(own_keys=True)
    if parts is None:
        return None
    batch, v = parts.query.shape[:2], parts.v
    queries, keys = parts.query.shape[-2], parts.key.shape[-2]
    bias = parts.bias if mask is None else jnp.where(mask, parts.bias, -jnp.inf)
    heads = jnp.shape(bias)[-3] if jnp.ndim(bias) > 2 else 1
    return ScoreDetails(
        query=parts.query,
        key=jnp.broadcast_to(parts.key, (*batch, *parts.key.shape[-2:])),
        scale=jnp.broadcast_to(parts.scale, (*batch, 1, 1))[..., 0, 0],
        bias=jnp.broadcast_to(bias, (batch[0], heads, queries, keys)),
        v=None if v is None else jnp.broadcast_to(v, (*batch, v.shape[-1])),
        location=parts.location,
        activation=parts.activation,
    )
