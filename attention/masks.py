"""Attention masks: bool arrays, True = may attend.

Masks combine with `&`: `padding_mask(valid) & causal_mask(T, T)`.

Axes: ... any batch; Q queries; K keys; T steps of one sequence.
"""

import jax
import jax.numpy as jnp

__all__ = [
    "causal_mask",
    "distances",
    "later_mask",
    "padding_mask",
    "segment_mask",
    "window_mask",
]


def padding_mask(valid: jax.Array) -> jax.Array:
    """Padding mask: every query may attend to every valid key.

    Args:
        valid: [..., K] bool, True at tokens, False at padding.

    Returns:
        [..., 1, K] bool.

    Raises:
        TypeError: if `valid` is not bool, for example if it holds token ids.

    Example:
        >>> tokens = jnp.array([[5, 7, 2, 0], [5, 2, 0, 0]])
        >>> print(padding_mask(tokens != 0)[:, 0].astype(int))
        [[1 1 1 0]
         [1 1 0 0]]
    """
    if valid.dtype != bool:
        raise TypeError(f"valid must be bool (True = a token), got {valid.dtype}")
    return valid[..., None, :]


def causal_mask(queries: int, keys: int, offset: int | jax.Array = 0) -> jax.Array:
    """Causal mask: key position <= query position, Vaswani et al. (2017), 3.2.3.

    Args:
        queries: number of queries, Q.
        keys: number of keys, K; key j is at position j.
        offset: position of the first query; query i is at offset + i. When decoding
            with a cache, this is the number of tokens decoded so far. May be traced.

    Returns:
        [Q, K] bool.

    Example:
        >>> print(causal_mask(2, 3).astype(int))
        [[1 0 0]
         [1 1 0]]
        >>> print(causal_mask(2, 3, offset=1).astype(int))
        [[1 1 0]
         [1 1 1]]
    """
    return jnp.arange(keys) <= offset + jnp.arange(queries)[:, None]


def window_mask(centre: jax.Array, keys: int, window: int) -> jax.Array:
    """Window mask |s - centre| <= window: Luong et al. (2015), section 3.2.

    The window holds 2 window + 1 keys around an integer centre and 2 window keys around
    a centre between two positions, fewer at the ends of the sentence.

    Args:
        centre: [..., Q] int or floating positions, one window per query; may lie before
            the first or after the last key.
        keys: number of keys, K; key s is at position s, from 0.
        window: the paper's D, the number of positions to each side, at least 0.

    Returns:
        [..., Q, K] bool.

    Raises:
        ValueError: if `window` is negative.

    Example:
        >>> print(window_mask(jnp.array([0.0, 2.5]), 6, window=1).astype(int))
        [[1 1 0 0 0 0]
         [0 0 1 1 0 0]]
    """
    if window < 0:
        raise ValueError(f"window is {window}: must be at least 0")
    return jnp.abs(distances(centre, keys)) <= window


def segment_mask(query: jax.Array, key: jax.Array) -> jax.Array:
    """Mask for packed sequences: a query may attend to the keys of its own segment.

    Args:
        query: [..., Q] int, the segment of each query.
        key: [..., K] int, the segment of each key.

    Returns:
        [..., Q, K] bool.

    Example:
        >>> print(segment_mask(jnp.array([0, 0, 1]), jnp.array([0, 1, 1])).astype(int))
        [[1 0 0]
         [1 0 0]
         [0 1 1]]
    """
    return query[..., :, None] == key[..., None, :]


def later_mask(ends: jax.Array) -> jax.Array:
    """Mask of step t and all later steps of the same segment.

    Args:
        ends: [..., T] bool, True at the last step of each segment.

    Returns:
        [..., T, T] bool, True at (t, u) where u >= t and both are in one segment.

    Example:
        >>> print(later_mask(jnp.array([False, True, False, True])).astype(int))
        [[1 1 0 0]
         [0 1 0 0]
         [0 0 1 1]
         [0 0 0 1]]
    """
    segment = jnp.cumsum(ends, axis=-1) - ends
    steps = ends.shape[-1]
    return causal_mask(steps, steps).T & segment_mask(segment, segment)


def distances(centre: jax.Array, keys: int) -> jax.Array:
    """Signed distances s - centre between the key positions s and the queries' centres.

    Args:
        centre: [..., Q] int or floating positions.
        keys: number of keys, K; key s is at position s, from 0.

    Returns:
        [..., Q, K] distances, positive for the keys after `centre`. The dtype is int32
        or wider for an integer `centre` and float32 or wider for a floating one, since
        bfloat16 cannot represent all integers above 256.

    Example:
        >>> print(distances(jnp.array([0, 2]), 4))
        [[ 0  1  2  3]
         [-2 -1  0  1]]
    """
    centre = jnp.asarray(centre)
    floating = jnp.issubdtype(centre.dtype, jnp.floating)
    wide = jnp.promote_types(centre.dtype, jnp.float32 if floating else jnp.int32)
    return jnp.arange(keys, dtype=wide) - centre.astype(wide)[..., None]
