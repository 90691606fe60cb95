"""Relative positions: Shaw, Uszkoreit and Vaswani (2018), section 3.

A key or a value is what it is plus a vector for its distance from the query, j - i,
clipped to -k..k: row clip(j - i) + k of a table of 2k + 1.

Axes: ... any batch (heads are one of its axes); Q queries; K keys; D query and key
width; V value width; k the clipping distance. A table is [2k+1, D] for all heads, or
[H, 2k+1, D], one a head.
"""

import math

import jax
import jax.numpy as jnp

from .core import Attention, attend
from .masks import distances
from .scores import Scoring, scaled_dot_scores


def relative_scores(
    query: jax.Array, table: jax.Array, keys: int, offset: int | jax.Array = 0
) -> jax.Array:
    """What the distances add to query key^T: the second term of Shaw's eq. 5.

    It is not divided by sqrt(D): scale the sum, or the query before.

    Args:
        query: [..., Q, D].
        table: [..., 2k+1, D]; batch axes broadcast against `query`.
        keys: K; key j is at position j.
        offset: position of the first query, query i is at offset + i; may be traced.

    Returns:
        [..., Q, K] unnormalised scores.

    Raises:
        ValueError: if `table` does not have an odd number of rows as wide as `query`.
    """
    check_table(table)
    if query.shape[-1] != table.shape[-1]:
        raise ValueError(f"query {query.shape} and table {table.shape} differ in width")
    vectors = _relative_vectors(table, query.shape[-2], keys, offset)
    return jnp.einsum("...qd,...qkd->...qk", query, vectors)


def relative_values(
    weights: jax.Array, table: jax.Array, offset: int | jax.Array = 0
) -> jax.Array:
    """What the distances add to weights value: the second term of Shaw's eq. 3.

    Args:
        weights: [..., Q, K] of the queries at offset + i for the keys at j.
        table: [..., 2k+1, V]; batch axes broadcast against `weights`.
        offset: position of the first query; may be traced.

    Returns:
        [..., Q, V].

    Raises:
        ValueError: if `table` does not have an odd number of rows.
    """
    check_table(table)
    queries, keys = weights.shape[-2:]
    vectors = _relative_vectors(table, queries, keys, offset)
    return jnp.einsum("...qk,...qkv->...qv", weights, vectors)


def relative_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    key_table: jax.Array,
    value_table: jax.Array,
    *,
    mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    offset: int | jax.Array = 0,
    score: Scoring = scaled_dot_scores,
) -> Attention:
    """Attention with relative keys and values: eqs. 3 to 5.

    Args:
        query: [..., Q, D].
        key: [..., K, D].
        value: [..., K, V].
        key_table: [..., 2k+1, D], a^K.
        value_table: [..., 2k+1, V], a^V; its k may be another.
        mask: bool, True = may attend; broadcasts to [..., Q, K].
        bias: added to the scaled scores.
        offset: position of the first query among the keys; may be traced.
        score: compares queries and keys; the paper's is the scaled dot product. What
            the distances add is scaled by 1/sqrt(D) whatever the score is.

    Returns:
        Attention(context [..., Q, V], weights [..., Q, K]).

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if the shapes do not fit.
    """
    scaled = query / math.sqrt(query.shape[-1])
    scores = score(query, key)
    scores = scores + relative_scores(scaled, key_table, key.shape[-2], offset)
    context, weights = attend(scores, value, mask=mask, bias=bias)
    return Attention(context + relative_values(weights, value_table, offset), weights)


def check_table(table: jax.Array) -> None:
    """Check the number of rows of a table.

    Raises:
        ValueError: if it is not odd.
    """
    if table.ndim < 2 or table.shape[-2] % 2 == 0:
        raise ValueError(
            f"a table has an odd number of rows, 2k + 1: got {table.shape}"
        )


def _relative_vectors(
    table: jax.Array, queries: int, keys: int, offset: int | jax.Array
) -> jax.Array:
    """Rows clip(j - i) + k of a table: a_ij of eqs. 3 and 4, [..., Q, K, D]."""
    k = table.shape[-2] // 2
    distance = distances(offset + jnp.arange(queries), keys)  # [Q, K]
    return table[..., jnp.clip(distance, -k, k) + k, :]
