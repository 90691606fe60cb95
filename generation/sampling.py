"""Ancestral sampling with temperature, top-k and nucleus truncation.

Top-k: Fan et al. (2018), section 5; nucleus (top-p): Holtzman et al. (2020), section
3.1.

Axes: as in `generation.types`.
"""

import hashlib
from typing import Any

import jax
import jax.numpy as jnp

from attention.fast.vocabulary import categorical, nucleus, top
from base.errors import FieldError
from generation.rollout import rollout
from generation.types import Carry, Decoded, Step


def line_seed(seed: int, line: str) -> int:
    """Returns the seed of a line's samples, which do not depend on other lines.

    Args:
        seed: seed of all lines.
        line: text of the line; spaces around it have no effect.

    Returns:
        A whole number below 2^32.
    """
    text = f"{seed} {line.strip()}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:4])


def sample(
    step: Step,
    carry: Carry,
    seeds: jax.Array,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    samples: int = 1,
    **options: Any,
) -> Decoded:
    """Ancestral sampling: draws every token from the model's distribution until EOS.

    The samples of a sentence are independent, but sorted by probability, so that the
    first of several samples is biased towards probable sentences.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token, with R = `samples` equal rows.
        seeds: uint32 [B], one for each sentence: its samples depend on no other's.
        temperature: divides the logits before truncation, above 0.
        top_k: sample from the k most probable tokens only; 0 for all.
        top_p: sample from the fewest tokens with this total probability, after top-k;
            in (0, 1].
        samples: N, the number of hypotheses per sentence.
        **options: see `generation.rollout.rollout`.

    Returns:
        N hypotheses per sentence. The score is the log-probability under the model,
        without temperature and truncation.

    Raises:
        FieldError: if `top_k` is above the size of the vocabulary.
        ValueError: if an option is out of its range or `limit` is not [B].
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}: must be above 0")
    if top_k < 0:
        raise ValueError(f"top_k is {top_k}: must be at least 0")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}: must be in (0, 1]")
    if samples < 1:
        raise ValueError(f"samples is {samples}: must be at least 1")

    rngs = jax.vmap(jax.random.key)(seeds)
    fold_in = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    rngs = fold_in(rngs, jnp.arange(samples))  # [B, N]

    def choose(logits, t):
        logits = logits / temperature
        if top_k > logits.shape[-1]:
            accepted = f"at most {logits.shape[-1]}, the size of the vocabulary"
            raise FieldError("top_k", top_k, accepted)
        if top_k:
            logits, tokens = top(logits, top_k)
        if top_p < 1:
            logits = nucleus(logits, top_p)
        step_rngs = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (0, None))(
            rngs, t
        )
        token = jax.vmap(jax.vmap(categorical))(step_rngs, logits)
        if top_k:
            token = jnp.take_along_axis(tokens, token[..., None], -1)[..., 0]
        return token

    return rollout(step, carry, choose, rows=samples, **options)
