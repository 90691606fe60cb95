"""Which keys a query may attend to: bool arrays, True = may attend.

Masks of several kinds combine with `&`.

Axes: ... any batch; Q queries; K keys.
"""

import jax
import jax.numpy as jnp


def padding_mask(valid: jax.Array) -> jax.Array:
    """Lets every query attend to the keys that are not padding.

    Args:
        valid: [..., K] bool, True where there is a token.

    Returns:
        [..., 1, K] bool.

    Raises:
        TypeError: if `valid` is not bool (a padded id is not a truth value).
    """
    if valid.dtype != bool:
        raise TypeError(f"valid must be bool (True = a token), got {valid.dtype}")
    return valid[..., None, :]


def causal_mask(queries: int, keys: int, offset: int | jax.Array = 0) -> jax.Array:
    """Lets a query attend to its own position and those before it.

    Vaswani et al. (2017), section 3.2.3.

    Args:
        queries: Q.
        keys: K; key j is at position j.
        offset: position of the first query, query i is at offset + i; may be traced.
            In cached decoding the number of tokens decoded before.

    Returns:
        [Q, K] bool.
    """
    return jnp.arange(keys) <= offset + jnp.arange(queries)[:, None]


def window_mask(centre: jax.Array, keys: int, window: int) -> jax.Array:
    """Lets a query attend to the keys around a position: |s - centre| <= window.

    Luong et al. (2015), section 3.2: 2 window + 1 keys around an integer, 2 window
    around what lies between two, fewer at the ends of the sentence.

    Args:
        centre: [..., Q] int or floating, in positions; may lie outside of the keys.
        keys: K; key s is at position s, from 0.
        window: at least 0, the paper's D: how far the window reaches to each side.

    Returns:
        [..., Q, K] bool.

    Raises:
        ValueError: if `window` is negative.
    """
    if window < 0:
        raise ValueError(f"window must be at least 0, got {window}")
    return jnp.abs(distances(centre, keys)) <= window


def segment_mask(query: jax.Array, key: jax.Array) -> jax.Array:
    """Lets a query attend to the keys of its own segment: several sentences a row.

    Args:
        query: [..., Q] int, the segment of each query.
        key: [..., K] int, the segment of each key.

    Returns:
        [..., Q, K] bool.
    """
    return query[..., :, None] == key[..., None, :]


def later_mask(ends: jax.Array) -> jax.Array:
    """Pairs each position with itself and those after it in the same segment.

    Args:
        ends: [..., T] bool, True at the last position of each segment.

    Returns:
        [..., T, T] bool, True at (t, u) where u is t, or after it in its segment.
    """
    segment = jnp.cumsum(ends, axis=-1) - ends
    steps = ends.shape[-1]
    return causal_mask(steps, steps).T & segment_mask(segment, segment)


def distances(centre: jax.Array, keys: int) -> jax.Array:
    """How far each key lies behind a position.

    Args:
        centre: [..., Q] int or floating, in positions.
        keys: K; key s is at position s, from 0.

    Returns:
        [..., Q, K] s - centre; of a floating `centre` in float32 or wider, for bfloat16
        counts up to 256 only, else in int32 or wider.
    """
    centre = jnp.asarray(centre)
    floating = jnp.issubdtype(centre.dtype, jnp.floating)
    wide = jnp.promote_types(centre.dtype, jnp.float32 if floating else jnp.int32)
    return jnp.arange(keys, dtype=wide) - centre.astype(wide)[..., None]
