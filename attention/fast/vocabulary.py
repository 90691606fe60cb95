"""Top-k, nucleus truncation and samples over a large vocabulary, without sorting it.

On a CPU, `lax.top_k` is the most expensive part of a step of a beam search.

Axes: ... any batch; W vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import lax

BLOCK = 32  # tokens


def top(values: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """Top-k values and their indices, in descending order.

    The k largest lie in the k blocks with the largest maxima, or in the incomplete
    block at the end, so that one pass over `values` is enough. At [256, 8000] on two
    cores, `lax.top_k` takes 3.3 ms, `argmax` 4.1 ms and `top` 0.9 ms.

    Args:
        values: [..., W].
        k: number of values, at most W.

    Returns:
        Values [..., k] and indices [..., k] int32. Equal values may come in any order.
    """
    width = values.shape[-1]
    blocks = width // BLOCK
    if blocks < 2 * k:
        return lax.top_k(values, k)
    whole = blocks * BLOCK
    maxima = values[..., :whole].reshape(*values.shape[:-1], blocks, BLOCK).max(-1)
    starts = BLOCK * lax.top_k(maxima, k)[1][..., None]
    indices = (starts + jnp.arange(BLOCK)).reshape(*starts.shape[:-2], k * BLOCK)
    rest = jnp.arange(whole, width)
    rest = jnp.broadcast_to(rest, (*indices.shape[:-1], rest.size))
    indices = jnp.concatenate([indices, rest], -1)
    top_values, position = lax.top_k(jnp.take_along_axis(values, indices, -1), k)
    return top_values, jnp.take_along_axis(indices, position, -1)


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
    padding = [(0, 0)] * (logits.ndim - 1) + [(0, -logits.shape[-1] % BLOCK)]
    logits = jnp.pad(logits, padding, constant_values=-jnp.inf)
    logits = logits.reshape(*logits.shape[:-1], -1, BLOCK)
    outer, inner = jax.random.split(rng)
    block = jax.random.categorical(outer, jax.nn.logsumexp(logits, -1))
    logits = jnp.take_along_axis(logits, block[..., None, None], -2)[..., 0, :]
    return block * BLOCK + jax.random.categorical(inner, logits)
