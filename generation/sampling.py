"""Sampled decoding: ancestral, with temperature, top-k and nucleus truncation.

Top-k: Fan et al. (2018), section 5; nucleus (top-p): Holtzman et al. (2020), section
3.1.
"""

import jax
import jax.numpy as jnp
from jax import lax

from generation.rollout import rollout
from generation.types import Carry, Decoded, Step
from ops.top_k import top


def nucleus(logits: jax.Array, top_p: float) -> jax.Array:
    """Sets to -inf what is not among the fewest tokens that sum to `top_p`.

    Tokens as probable as the last of them are kept too. The least probability kept is
    found by bisection over its bits, which is several times as fast as sorting on CPU.

    Args:
        logits: [..., W] float32.
        top_p: the probability that is kept at least, in (0, 1].

    Returns:
        [..., W].
    """
    probs = jax.nn.softmax(logits)
    # Floats that are not negative are in the order of their bits read as an integer.
    bits = lax.bitcast_convert_type(probs, jnp.int32)

    def halve(_, bounds):
        low, high = bounds  # enough is kept from `low` on, too little from `high` on
        middle = low + (high - low) // 2
        mass = jnp.where(bits >= middle, probs, 0).sum(-1, keepdims=True)
        enough = mass >= top_p
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low = jnp.zeros_like(bits[..., :1])
    high = jnp.full_like(low, lax.bitcast_convert_type(jnp.float32(2), jnp.int32))
    low, _ = lax.fori_loop(0, 31, halve, (low, high))
    return jnp.where(bits >= low, logits, -jnp.inf)


def categorical(rng: jax.Array, logits: jax.Array) -> jax.Array:
    """Draws [...] from the softmax of `logits` [..., W]: first a block, then in it.

    That is the same distribution as that of `jax.random.categorical`, with about
    W / 32 + 32 random numbers instead of W.
    """
    width = 32
    padding = [(0, 0)] * (logits.ndim - 1) + [(0, -logits.shape[-1] % width)]
    logits = jnp.pad(logits, padding, constant_values=-jnp.inf)
    logits = logits.reshape(*logits.shape[:-1], -1, width)
    outer, inner = jax.random.split(rng)
    block = jax.random.categorical(outer, jax.nn.logsumexp(logits, -1))
    logits = jnp.take_along_axis(logits, block[..., None, None], -2)[..., 0, :]
    return block * width + jax.random.categorical(inner, logits)


def sample(
    step: Step,
    carry: Carry,
    rng: jax.Array,
    *,
    batch: int,
    max_length: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    samples: int = 1,
    limit: jax.Array | None = None,
    keep_weights: bool = False,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
) -> Decoded:
    """Draws each token from the model's distribution until EOS.

    The samples of a sentence are independent of each other, but returned with the most
    probable first: a single one of several is not a fair sample.

    Args:
        step: see `generation.types.Step`.
        carry: the state of R = `samples` rows before the first token.
        rng: a PRNG key.
        batch: B.
        max_length: L, the most tokens, EOS included; the last is EOS in any case.
        temperature: divides the logits before truncation, above 0.
        top_k: draw from the k most probable tokens only; 0: from all.
        top_p: draw from the fewest tokens that have this probability together, after
            top-k.
        samples: N, hypotheses of each sentence.
        limit: [B] the same as `max_length` for each sentence; None: L for all.
        keep_weights: whether attention is recorded.
        bos: the first input.
        eos: the token that ends a hypothesis.
        pad: what follows it.

    Returns:
        N hypotheses a sentence. Score and log-probability are those of the model,
        without temperature and truncation.

    Raises:
        ValueError: if an option is out of its range or `limit` is not [B].
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if top_k < 0:
        raise ValueError(f"top_k must be at least 0, got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be in (0, 1], got {top_p}")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")

    def choose(logits, t):
        step_rng = jax.random.fold_in(rng, t)
        logits = logits / temperature
        if top_k:
            logits, tokens = top(logits, min(top_k, logits.shape[-1]))
        if top_p < 1:
            logits = nucleus(logits, top_p)
        token = categorical(step_rng, logits)
        if top_k:
            token = jnp.take_along_axis(tokens, token[..., None], -1)[..., 0]
        return token

    return rollout(
        step,
        carry,
        choose,
        batch=batch,
        rows=samples,
        max_length=max_length,
        limit=limit,
        keep_weights=keep_weights,
        bos=bos,
        eos=eos,
        pad=pad,
    )
