"""Sampling from a softmax over a vocabulary.

Axes: ... any batch; W vocabulary.
"""

import jax
import jax.numpy as jnp

_BLOCK = 32


def categorical(rng: jax.Array, logits: jax.Array) -> jax.Array:
    """Samples from the softmax of logits: first a block of 32 tokens, then a token.

    The distribution is the same as in `jax.random.categorical`, but a sample needs only
    about W / 32 + 32 random numbers instead of W. At [256, 8000] this is 20 times as
    fast, on two threads of a CPU.

    Args:
        rng: PRNG key.
        logits: [..., W]; -inf for a token that must not be sampled.

    Returns:
        [...] int32 in [0, W).
    """
    padding = [(0, 0)] * (logits.ndim - 1) + [(0, -logits.shape[-1] % _BLOCK)]
    logits = jnp.pad(logits, padding, constant_values=-jnp.inf)
    logits = logits.reshape(*logits.shape[:-1], -1, _BLOCK)
    outer, inner = jax.random.split(rng)
    block = jax.random.categorical(outer, jax.nn.logsumexp(logits, -1))
    logits = jnp.take_along_axis(logits, block[..., None, None], -2)[..., 0, :]
    return block * _BLOCK + jax.random.categorical(inner, logits)
