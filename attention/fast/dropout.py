"""Dropout with half of the random bits.

Axes: ... any batch; C channels.
"""

import jax
import jax.numpy as jnp


def dropout(x: jax.Array, rate: float, rng: jax.Array) -> jax.Array:
    """Sets a fraction `rate` of the elements to 0 and scales up the others.

    Hinton et al. (2012). Each random word decides on two elements; the rate is rounded
    to a multiple of 2^-16, and the scale is exact for the rounded rate.
    `flax.linen.Dropout` draws a word per element.

    Args:
        x: [..., C].
        rate: probability that an element becomes 0, in [0, 1).
        rng: typed PRNG key.

    Returns:
        [..., C] in the dtype of `x`, equal to `x` in expectation.

    Raises:
        ValueError: if `rate` is not in [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"rate is {rate}: must be at least 0 and below 1")
    *batch, width = x.shape
    words = jax.random.bits(rng, (*batch, -(-width // 2)), jnp.uint32)
    bits = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(*batch, -1)
    threshold = min(round(rate * 2**16), 2**16 - 1)
    scale = jnp.asarray(2**16 / (2**16 - threshold), x.dtype)
    return jnp.where(bits[..., :width] >= threshold, x * scale, 0)
