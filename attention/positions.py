"""Absolute position encodings, sinusoidal and learned, and rotary positions.

Vaswani et al. (2017), section 3.5; learned encodings are row (E) of their table 3.
Rotary positions: Su et al. (2021), section 3.2.

Axes: ... any batch, heads included; T tokens; L positions of a table; D model width, or
width of a head.
"""

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["learned_positions", "rotary", "sinusoids"]


def sinusoids(length: int, dim: int, offset: int | jax.Array = 0) -> jax.Array:
    """Sinusoidal position encodings: Vaswani et al. (2017), section 3.5.

    Sines and cosines alternate along D, as in the paper: channel 2i is
    sin(position / 10000^(2i/D)), channel 2i + 1 the cosine of the same angle. The
    authors' code, tensor2tensor, has all sines first and slightly different
    wavelengths.

    Args:
        length: number of positions.
        dim: width of an encoding, D.
        offset: position of the first row; may be traced.

    Returns:
        [length, D] in the default float dtype.

    Example:
        >>> print(sinusoids(3, 4))
        [[ 0.    1.    0.    1.  ]
         [ 0.84  0.54  0.01  1.  ]
         [ 0.91 -0.42  0.02  1.  ]]
    """
    angles = _angles(offset + jnp.arange(length), dim)
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return waves.reshape(length, -1)[:, :dim]


def learned_positions(
    table: jax.Array, length: int, offset: int | jax.Array = 0
) -> jax.Array:
    """Learned position encodings: Vaswani et al. (2017), table 3, row (E).

    Args:
        table: [L, D] learned encodings, one per position.
        length: number of positions.
        offset: position of the first row. May be traced; it is then not checked, and
            past the end of the table the last `length` rows are returned.

    Returns:
        [length, D] rows of `table`.

    Raises:
        ValueError: if some positions are outside of the table.

    Example:
        >>> table = jnp.arange(8.0).reshape(4, 2)
        >>> print(learned_positions(table, 2, offset=1))
        [[2. 3.]
         [4. 5.]]
    """
    static = not isinstance(offset, jax.core.Tracer)
    if length > len(table) or static and not 0 <= offset <= len(table) - length:
        raise ValueError(
            f"offset is {offset} and length is {length}: must fit a table of "
            f"{len(table)} positions"
        )
    return jax.lax.dynamic_slice_in_dim(table, offset, length)


def rotary(x: jax.Array, position: jax.Array) -> jax.Array:
    """Rotates queries or keys by their positions: Su et al. (2021), eqs. 14 and 15.

    Channels 2i and 2i + 1 are a vector in a plane, turned by the angle
    position / 10000^(2i/D). Positions therefore enter the dot product of a rotated
    query and a rotated key only through their offset.

    Args:
        x: [..., T, D]; D is even.
        position: numbers, broadcast to [..., T].

    Returns:
        [..., T, D] in the dtype of `x`; the angles are computed in the default float
        dtype.

    Raises:
        ValueError: if D is odd.

    Example:
        >>> query, key = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])
        >>> for m, n in ((0, 1), (5, 6)):
        ...     print(rotary(query, jnp.array(m)) @ rotary(key, jnp.array(n)).T)
        [[-0.84]]
        [[-0.84]]
    """
    if x.shape[-1] % 2:
        raise ValueError(f"x {x.shape} must have an even width")
    angles = _angles(position, x.shape[-1])
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = x[..., 0::2], x[..., 1::2]
    rotated = [first * cos - second * sin, first * sin + second * cos]
    return jnp.stack(rotated, axis=-1).reshape(x.shape)


def _angles(position: jax.Array, dim: int) -> jax.Array:
    """Angles position / 10000^(2i/D), [..., D/2] of positions [...]."""
    rates = jnp.asarray(10000.0 ** -(np.arange(0, dim, 2) / dim))
    return jnp.asarray(position)[..., None] * rates
