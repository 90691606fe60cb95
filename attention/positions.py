"""Absolute position encodings, sinusoidal and learned.

Vaswani et al. (2017), section 3.5; learned encodings are row (E) of their table 3.

Axes: L positions of a table; D model width.
"""

import jax
import jax.numpy as jnp
import numpy as np


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
    """
    rates = jnp.asarray(10000.0 ** -(np.arange(0, dim, 2) / dim))
    angles = (offset + jnp.arange(length))[:, None] * rates  # [length, D/2]
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
    """
    static = not isinstance(offset, jax.core.Tracer)
    if length > len(table) or static and not 0 <= offset <= len(table) - length:
        raise ValueError(
            f"offset is {offset} and length is {length}: must fit a table of "
            f"{len(table)} positions"
        )
    return jax.lax.dynamic_slice_in_dim(table, offset, length)
