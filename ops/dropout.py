"""Dropout from one random byte an element.

Axes: ... any batch; C channels.
"""

import jax
import jax.numpy as jnp


def dropout(x: jax.Array, rate: float, rng: jax.Array) -> jax.Array:
    """Sets a share `rate` of the elements to 0 and scales the others up to match.

    Draws one random byte an element, a quarter of the random bits of a float mask
    (drawing them is a fifth of a training step on a CPU). The rate is therefore
    rounded to a multiple of 1/256, and the scale is exact for the rounded rate.

    Args:
        x: [..., C].
        rate: in [0, 1).
        rng: typed PRNG key.

    Returns:
        [..., C] in the dtype of `x`, equal to `x` in expectation.

    Raises:
        ValueError: if `rate` is not in [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"dropout: rate is {rate}, must be at least 0 and below 1")
    keep = 256 - round(256 * rate)
    if keep == 256:
        return x
    *batch, width = x.shape
    words = jax.random.bits(rng, (*batch, -(-width // 4)), jnp.uint32)
    random_bytes = jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(*batch, -1)
    kept = random_bytes[..., :width] < keep
    return jnp.where(kept, x * jnp.asarray(256 / keep, x.dtype), 0)
