"""Relative position representations: Shaw, Uszkoreit and Vaswani (2018), section 3.

For query i, a learned vector for the distance j - i is added to key j and to value j.
Distances are clipped to [-k, k]: the vector is row clip(j - i, -k, k) + k of a table
with 2k + 1 rows.

Axes: ... any batch, heads included; H heads; Q queries; K keys; D query and key width;
V value width; k maximum distance. A table is [2k+1, D], shared by all heads, or
[H, 2k+1, D], one per head.
"""

import math

import jax
import jax.numpy as jnp

from ._checks import check_table
from .core import Attention, attend
from .declaration import Scoring
from .masks import distances
from .scores import scaled_dot_scores

__all__ = ["relative_attention", "relative_scores", "relative_values"]


def relative_scores(
    query: jax.Array, table: jax.Array, keys: int, offset: int | jax.Array = 0
) -> jax.Array:
    """Relative-position scores, query a^K: Shaw et al. (2018), second term of eq. 5.

    There is no factor 1/sqrt(D): scale the query, or the sum of both terms.

    Args:
        query: [..., Q, D].
        table: [..., 2k+1, D], a^K; batch axes broadcast against `query`.
        keys: number of keys, K; key j is at position j.
        offset: position of the first query; query i is at offset + i. May be traced.

    Returns:
        [..., Q, K] unnormalised scores.

    Raises:
        ValueError: if the number of rows of `table` is even, or the widths of `query`
            and `table` differ.

    Example:
        >>> table = jnp.array([[1.0], [2.0], [3.0]])  # left, same, right
        >>> print(relative_scores(jnp.ones((3, 1)), table, keys=3))
        [[2. 3. 3.]
         [1. 2. 3.]
         [1. 1. 2.]]
    """
    check_table(table)
    if query.shape[-1] != table.shape[-1]:
        raise ValueError(f"query {query.shape} and table {table.shape} differ in width")
    vectors = _relative_vectors(table, query.shape[-2], keys, offset)
    return jnp.einsum("...qd,...qkd->...qk", query, vectors)


def relative_values(
    weights: jax.Array, table: jax.Array, offset: int | jax.Array = 0
) -> jax.Array:
    """Relative-position values, weights a^V: Shaw et al. (2018), second term of eq. 3.

    Args:
        weights: [..., Q, K]; query i is at position offset + i, key j at position j.
        table: [..., 2k+1, V], a^V; batch axes broadcast against `weights`.
        offset: position of the first query; may be traced.

    Returns:
        [..., Q, V], to be added to the context.

    Raises:
        ValueError: if the number of rows of `table` is even.

    Example:
        >>> table = jnp.array([[1.0], [2.0], [3.0]])  # left, same, right
        >>> print(relative_values(jnp.eye(3)[::-1], table))
        [[3.]
         [2.]
         [1.]]
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
    offset: int | jax.Array = 0,
    score: Scoring = scaled_dot_scores,
) -> Attention:
    """Attention with relative keys and values: Shaw et al. (2018), eqs. 3 to 5.

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.
        value: [..., K, V]; batch axes broadcast against `query`.
        key_table: [..., 2k+1, D], a^K.
        value_table: [..., 2k+1, V], a^V; its k may differ from that of `key_table`.
        mask: bool, True = may attend; broadcasts against [..., Q, K].
        offset: position of the first query; query i is at offset + i. May be traced.
        score: score function of queries and keys; the paper's is the scaled dot
            product. Relative-position scores are divided by sqrt(D) with any score.

    Returns:
        Attention(context [..., Q, V], weights [..., Q, K]).

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if the number of rows of a table is even, the widths or the numbers
            of keys do not match, or `mask` does not broadcast.

    Example:
        >>> x, table = jnp.ones((3, 2)), jnp.array([[9.0, 9.0], [0.0, 0.0], [0.0, 0.0]])
        >>> print(relative_attention(x, x, x, table, 0 * table).weights)
        [[0.33 0.33 0.33]
         [1.   0.   0.  ]
         [0.5  0.5  0.  ]]
    """
    scaled = query / math.sqrt(query.shape[-1])
    scores = score(query, key)
    scores = scores + relative_scores(scaled, key_table, key.shape[-2], offset)
    context, weights = attend(scores, value, mask=mask)
    return Attention(context + relative_values(weights, value_table, offset), weights)


def _relative_vectors(
    table: jax.Array, queries: int, keys: int, offset: int | jax.Array
) -> jax.Array:
    """Vectors a_ij of eqs. 3 and 4, [..., Q, K, D]: rows clip(j - i) + k of a table."""
    k = table.shape[-2] // 2
    distance = distances(offset + jnp.arange(queries), keys)  # [Q, K]
    return table[..., jnp.clip(distance, -k, k) + k, :]
