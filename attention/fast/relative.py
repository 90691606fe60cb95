"""Relative positions without a vector per pair of query and key.

A query has only 2k + 1 different products with a table. `_spread` copies them to the
keys; `_collect`, its transpose, sums the weights of equal distances for the values. No
array of [Q, K, D] is formed, not even one shared by the batch as in section 3.3 of Shaw
et al. (2018). Both functions are gathers and each is the gradient of the other; the
automatic gradient of a gather is a scatter, which is slow. Only reverse-mode gradients
are defined.

Axes: as in `attention.relative`.
"""

import functools

import jax
import jax.numpy as jnp

from .._checks import check_table
from ..masks import distances


def relative_scores(
    query: jax.Array, table: jax.Array, keys: int, offset: int | jax.Array = 0
) -> jax.Array:
    """Relative-position scores.

    See `attention.relative.relative_scores` for arguments, result and errors.
    """
    check_table(table)
    if query.shape[-1] != table.shape[-1]:
        raise ValueError(f"query {query.shape} and table {table.shape} differ in width")
    products = jnp.einsum("...qd,...rd->...qr", query, table)  # [..., Q, 2k+1]
    return _spread(products, table.shape[-2] // 2, keys, offset)


def relative_values(
    weights: jax.Array, table: jax.Array, offset: int | jax.Array = 0
) -> jax.Array:
    """Relative-position values.

    See `attention.relative.relative_values` for arguments, result and errors.
    """
    check_table(table)
    k, keys = table.shape[-2] // 2, weights.shape[-1]
    by_distance = _collect(weights, k, keys, offset)  # [..., Q, 2k+1]
    return jnp.einsum("...qr,...rv->...qv", by_distance, table)


def _take(x: jax.Array, columns: jax.Array) -> jax.Array:
    """[..., Q, N] and columns [Q, M] -> [..., Q, M]: in row i, x[i, columns[i]]."""
    rows = jnp.arange(len(columns))[:, None]
    return x.at[..., rows, columns].get(mode="promise_in_bounds")


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _spread(x: jax.Array, k: int, keys: int, offset: int | jax.Array) -> jax.Array:
    """[..., Q, 2k+1] -> [..., Q, K]: entry of the clipped distance of each key."""
    distance = distances(offset + jnp.arange(x.shape[-2]), keys)  # [Q, K]
    return _take(x, jnp.clip(distance, -k, k) + k)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _collect(x: jax.Array, k: int, keys: int, offset: int | jax.Array) -> jax.Array:
    """[..., Q, K] -> [..., Q, 2k+1]: sum over the keys of each clipped distance."""
    if k == 0:
        return jnp.sum(x, axis=-1, keepdims=True)
    position = offset + jnp.arange(x.shape[-2])
    distance = distances(position, keys)  # [Q, K]
    before = jnp.sum(jnp.where(distance <= -k, x, 0), axis=-1, keepdims=True)
    after = jnp.sum(jnp.where(distance >= k, x, 0), axis=-1, keepdims=True)
    # Between the two ends, each distance belongs to at most one key.
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
