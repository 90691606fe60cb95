"""Absolute positions: sinusoids and a learned table, added to the embeddings.

Vaswani et al. (2017), section 3.5; the learned table is row (E) of their table 3.

Axes: L positions a table has; D model width.
"""

import jax
import jax.numpy as jnp
import numpy as np


def sinusoids(length: int, dim: int, offset: int | jax.Array = 0) -> jax.Array:
    """Sinusoidal encodings: Vaswani et al. (2017), section 3.5.

    Sine and cosine alternate along D, as printed: channel 2i is
    sin(position / 10000^(2i/D)) and channel 2i + 1 the cosine of the same angle. The
    paper's code, tensor2tensor, has all sines first and other wavelengths.

    Args:
        length: how many positions.
        dim: D.
        offset: the first position; may be traced.

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
    """Rows of a learned table of positions.

    Args:
        table: [L, D].
        length: how many positions.
        offset: the first position; may be traced, and is then not checked: positions
            beyond the table read its last rows.

    Returns:
        [length, D].

    Raises:
        ValueError: if the table has no position for every row asked for.
    """
    known = not isinstance(offset, jax.core.Tracer)
    if length > len(table) or known and not 0 <= offset <= len(table) - length:
        raise ValueError(
            f"positions {offset} to {offset} + {length} do not fit "
            f"a table of {len(table)}"
        )
    return jax.lax.dynamic_slice_in_dim(table, offset, length)
