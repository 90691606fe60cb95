"""Score functions that also depend on the weights of the previous step.

| name | score(query, key, previous) | source |
|---|---|---|
| location_aware | v tanh(W query + V key + U F * previous) | Chorowski et al. (2015) |

Only models that decode step by step, such as recurrent decoders, have these weights.

Axes: as in `attention.scores`; C filters over the previous weights, each R keys wide.
"""

import jax
import jax.numpy as jnp

from .declaration import Score, score_function
from .scores import additive_scores


def _location_aware_compare(
    query: jax.Array,
    key: jax.Array,
    w_query: jax.Array,
    v: jax.Array,
    filters: jax.Array,
    w_location: jax.Array,
    *,
    previous: jax.Array,
    **_: jax.Array,
) -> jax.Array:
    keys, width = key.shape[-2], filters.shape[-2]
    if previous.shape[-1] != keys:
        raise ValueError(f"previous {previous.shape} must have {keys} keys")
    ends = [(0, 0)] * (previous.ndim - 1) + [(width // 2, width - 1 - width // 2)]
    padded = jnp.pad(previous, ends)
    near = jnp.stack([padded[..., r : r + keys] for r in range(width)], axis=-1)
    features = jnp.einsum("...qkr,...rc->...qkc", near, filters)  # f = F * previous
    location = jnp.einsum("...qkc,...ca->...qka", features, w_location)
    query = jnp.einsum("...qd,...da->...qa", query, w_query)
    hidden = jnp.tanh(query[..., :, None, :] + key[..., None, :, :] + location)
    return jnp.einsum("...qka,...a->...qk", hidden, v)


@score_function(
    project=additive_scores.project,
    compare=_location_aware_compare,
    w_query=("D", "A"),
    w_key=("E", "A"),
    v=("A",),
    filters=("R", "C"),
    w_location=("C", "A"),
)
def location_aware_scores(
    query: jax.Array,
    key: jax.Array,
    w_query: jax.Array,
    w_key: jax.Array,
    v: jax.Array,
    filters: jax.Array,
    w_location: jax.Array,
    *,
    previous: jax.Array,
) -> jax.Array:
    """Location-aware scores: Chorowski et al. (2015), section 2.2, eqs. 8 and 9.

    v tanh(W query + V key + U f) with f = F * previous, a convolution over the weights
    of the previous step. With previous weights of 0, as before the first step,
    these are additive scores. Unlike in the paper, and like in `additive_scores`, there
    is no bias inside the tanh. As in most libraries, the convolution is a
    cross-correlation: the filters are not flipped.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w_query: [..., D, A], W in the paper.
        w_key: [..., E, A], V in the paper.
        v: [..., A], w in the paper.
        filters: [..., R, C], F in the paper: C filters, R keys wide and centred on the
            key; 10 filters of width 201 in the paper.
        w_location: [..., C, A], U in the paper.
        previous: [..., Q, K] weights of the step before each query.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of the parameters do not match each other, or do not
            match `query` and `key`, or `previous` has a different number of keys.
    """
    return _location_aware_compare(
        query,
        additive_scores.project(key, w_key=w_key),
        w_query,
        v,
        filters,
        w_location,
        previous=previous,
    )


STEPWISE_SCORES: dict[str, Score] = {"location_aware": location_aware_scores}
"""Score functions with a keyword argument `previous`, by name."""
