"""Greedy decoding, and the decoding loop of independent hypotheses.

Axes: as in `generation.types`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attention.fast.vocabulary import top
from generation.types import Carry, Decoded, Step


def limits(limit: jax.Array | None, batch: int, max_length: int) -> jax.Array:
    """Returns the maximum number of tokens of each sentence.

    Args:
        limit: [B] maximum numbers; None for `max_length`.
        batch: number of sentences, B.
        max_length: L, the maximum for all sentences.

    Returns:
        [B] int32 in [1, L].

    Raises:
        ValueError: if a size is below 1 or `limit` is not [B].
    """
    if batch < 1 or max_length < 1:
        raise ValueError(
            f"batch is {batch} and max_length is {max_length}: must be at least 1"
        )
    if limit is None:
        return jnp.full([batch], max_length, jnp.int32)
    if jnp.shape(limit) != (batch,):
        raise ValueError(f"limit is {list(jnp.shape(limit))}: must be [{batch}]")
    return jnp.clip(jnp.asarray(limit, jnp.int32), 1, max_length)


def empty_weights(
    step: Step, carry: Carry, token: jax.Array, max_length: int, keep: bool
) -> jax.Array | None:
    """Returns zeros [L, B, R, S], a buffer for weights; None unless `keep`.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token.
        token: [B, R] first input tokens.
        max_length: L.
        keep: whether attention weights are requested.

    Raises:
        ValueError: if `keep` and `step` returns no weights.
    """
    if not keep:
        return None
    weights = jax.eval_shape(step, carry, token)[2]
    if weights is None:
        raise ValueError("keep_weights is True, but step returns no attention weights")
    return jnp.zeros((max_length, *weights.shape), weights.dtype)


def greedy(step: Step, carry: Carry, **options: Any) -> Decoded:
    """Greedy decoding: takes the most probable token at every step until EOS.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token, with one row (R = 1).
        **options: see `rollout`.

    Returns:
        One hypothesis per sentence (N = 1); its score is its log-probability.
    """

    def most_probable(logits: jax.Array, _: jax.Array) -> jax.Array:
        return top(logits, 1)[1][..., 0]

    return rollout(step, carry, most_probable, rows=1, **options)


def rollout(
    step: Step,
    carry: Carry,
    choose: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    batch: int,
    rows: int,
    max_length: int,
    limit: jax.Array | None = None,
    keep_weights: bool = False,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
) -> Decoded:
    """Extends [B, R] rows by `choose(logits, t)` until all end in EOS.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token.
        choose: (logits [B, R, W] float32, t) -> token [B, R].
        batch: number of sentences, B.
        rows: number of hypotheses per sentence, R.
        max_length: L, the maximum number of tokens, EOS included; the last is always
            EOS.
        limit: [B] maximum number of tokens of each sentence, such as source length +
            50; None for L.
        keep_weights: whether to return attention weights.
        bos: the first input token.
        eos: the token that ends a row.
        pad: the id after `eos`.

    Returns:
        R hypotheses per sentence; the score is the log-probability.

    Raises:
        ValueError: if a size is below 1 or `limit` is not [B].
    """
    limit = limits(limit, batch, max_length)[:, None]
    token = jnp.full([batch, rows], bos, jnp.int32)
    log_probs = jnp.zeros([batch, rows], jnp.float32)
    lengths = jnp.zeros([batch, rows], jnp.int32)
    active = jnp.ones([batch, rows], bool)
    tokens = jnp.full([max_length, batch, rows], pad, jnp.int32)
    attention = empty_weights(step, carry, token, max_length, keep_weights)

    def extend(state):
        t, carry, token, log_probs, lengths, active, tokens, attention = state
        carry, logits, weights = step(carry, token)
        logits = logits.astype(jnp.float32)
        token = jnp.where(t + 1 < limit, choose(logits, t), eos).astype(jnp.int32)
        log_prob = jnp.take_along_axis(logits, token[..., None], -1)[..., 0]
        log_prob -= jax.nn.logsumexp(logits, -1)
        log_probs += jnp.where(active, log_prob, 0)
        lengths += active
        tokens = tokens.at[t].set(jnp.where(active, token, pad))
        if attention is not None and weights is not None:
            attention = attention.at[t].set(jnp.where(active[..., None], weights, 0))
        active &= token != eos
        return t + 1, carry, token, log_probs, lengths, active, tokens, attention

    state = (0, carry, token, log_probs, lengths, active, tokens, attention)
    state = lax.while_loop(lambda state: jnp.any(state[5]), extend, state)
    _, _, _, log_probs, lengths, _, tokens, attention = state
    log_probs, order = lax.top_k(log_probs, rows)
    tokens = jnp.moveaxis(tokens, 0, 2)  # [B, R, L]
    tokens = jnp.take_along_axis(tokens, order[..., None], 1)
    lengths = jnp.take_along_axis(lengths, order, 1)
    if attention is not None:
        attention = jnp.moveaxis(attention, 0, 2)  # [B, R, L, S]
        attention = jnp.take_along_axis(attention, order[..., None, None], 1)
    return Decoded(tokens, log_probs, log_probs, lengths, attention)
