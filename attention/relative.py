"""Relative positions: Shaw, Uszkoreit and Vaswani (2018), section 3.

A key or a value is what it is plus a vector for its distance from the query, j - i,
clipped to -k..k: row clip(j - i) + k of a table of 2k + 1.

Axes: ... any batch (heads are one of its axes); Q queries; K keys; D query and key
width; V value width; k the clipping distance. A table is [2k+1, D] for all heads, or
[H, 2k+1, D], one a head.

Differs from the paper: nothing is ever [Q, K, D], not even once for the whole batch as
in the paper's section 3.3. A query has only 2k + 1 different products, so those are
formed and laid out over the keys (`_spread`); the values take the transpose
(`_collect`). Both are gathers, each the gradient of the other, since the gradient JAX
derives from a gather is a slow scatter; they have reverse-mode gradients only.
"""

import functools
import math

import jax
import jax.numpy as jnp

from attention.core import Attention, attend
from attention.masks import distances
from attention.scores import Score, scaled_dot_scores


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
    _check_table(table)
    if query.shape[-1] != table.shape[-1]:
        raise ValueError(f"query {query.shape} and table {table.shape} differ in width")
    products = jnp.einsum("...qd,...rd->...qr", query, table)  # [..., Q, 2k+1]
    return _spread(products, table.shape[-2] // 2, keys, offset)


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
    _check_table(table)
    k, keys = table.shape[-2] // 2, weights.shape[-1]
    by_distance = _collect(weights, k, keys, offset)  # [..., Q, 2k+1]
    return jnp.einsum("...qr,...rv->...qv", by_distance, table)


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
    score: Score = scaled_dot_scores,
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


def _check_table(table: jax.Array) -> None:
    if table.ndim < 2 or table.shape[-2] % 2 == 0:
        raise ValueError(
            f"a table has an odd number of rows, 2k + 1: got {table.shape}"
        )


def _take(x: jax.Array, columns: jax.Array) -> jax.Array:
    """[..., Q, N] and columns [Q, M] -> [..., Q, M]: in row i, x[i, columns[i]]."""
    rows = jnp.arange(len(columns))[:, None]
    return x.at[..., rows, columns].get(mode="promise_in_bounds")


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _spread(x: jax.Array, k: int, keys: int, offset: int | jax.Array) -> jax.Array:
    """[..., Q, 2k+1] -> [..., Q, K]: the entry of each key's clipped distance."""
    distance = distances(offset + jnp.arange(x.shape[-2]), keys)  # [Q, K]
    return _take(x, jnp.clip(distance, -k, k) + k)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _collect(x: jax.Array, k: int, keys: int, offset: int | jax.Array) -> jax.Array:
    """[..., Q, K] -> [..., Q, 2k+1]: the sum over the keys of a clipped distance."""
    if k == 0:
        return jnp.sum(x, axis=-1, keepdims=True)
    position = offset + jnp.arange(x.shape[-2])
    distance = distances(position, keys)  # [Q, K]
    before = jnp.sum(jnp.where(distance <= -k, x, 0), axis=-1, keepdims=True)
    after = jnp.sum(jnp.where(distance >= k, x, 0), axis=-1, keepdims=True)
    # Between the two ends there is one key a distance, if any.
    key = position[:, None] + jnp.arange(1 - k, k)  # [Q, 2k-1]
    between = _take(x, jnp.clip(key, 0, keys - 1))
    between = jnp.where((0 <= key) & (key < keys), between, 0)
    return jnp.concatenate([before, between, after], axis=-1)


_spread.defvjp(
    lambda x, k, keys, offset: (_spread(x, k, keys, offset), offset),
    lambda k, keys, offset, gradient: (_collect(gradient, k, keys, offset), None),
)
_collect.defvjp(
    lambda x, k, keys, offset: (_collect(x, k, keys, offset), offset),
    lambda k, keys, offset, gradient: (_spread(gradient, k, keys, offset), None),
)
