"""Decoding of independent rows: the loop of greedy decoding and sampling."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from generation.types import Carry, Decoded, Step


def limits(limit: jax.Array | None, batch: int, max_length: int) -> jax.Array:
    """Returns [B] the maximum number of tokens of each sentence, in 1..max_length.

    Raises:
        ValueError: if a size is below 1 or `limit` is not [B].
    """
    if batch < 1 or max_length < 1:
        raise ValueError(
            "batch and max_length must be at least 1, "
            f"got batch={batch}, max_length={max_length}"
        )
    if limit is None:
        return jnp.full([batch], max_length, jnp.int32)
    if jnp.shape(limit) != (batch,):
        raise ValueError(f"limit must be [{batch}], got {list(jnp.shape(limit))}")
    return jnp.clip(jnp.asarray(limit, jnp.int32), 1, max_length)


def empty_weights(
    step: Step, carry: Carry, token: jax.Array, max_length: int, keep: bool
) -> jax.Array | None:
    """Returns zeros [L, B, R, S] to record weights in; None unless `keep`.

    Raises:
        ValueError: if `keep` and `step` returns no weights.
    """
    if not keep:
        return None
    weights = jax.eval_shape(step, carry, token)[2]
    if weights is None:
        raise ValueError("keep_weights=True, but step returns no attention weights")
    return jnp.zeros((max_length, *weights.shape), weights.dtype)


def rollout(
    step: Step,
    carry: Carry,
    choose: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    batch: int,
    rows: int,
    max_length: int,
    limit: jax.Array | None,
    bos: int,
    eos: int,
    pad: int,
    keep_weights: bool,
) -> Decoded:
    """Extends [B, R] rows by `choose(logits, t)` until all have ended.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token.
        choose: (logits [B, R, W] float32, t) -> token [B, R].
        batch: B.
        rows: R.
        max_length: L, the maximum number of tokens, EOS included.
        limit: [B] the maximum for each sentence; None: L for all. The last token is
            always EOS.
        bos: the first input token.
        eos: the token that ends a row.
        pad: the id after `eos`.
        keep_weights: whether attention weights are returned.

    Returns:
        R hypotheses of each sentence; the score is the log-probability.
    """
    limit = limits(limit, batch, max_length)[:, None]
    token = jnp.full([batch, rows], bos, jnp.int32)
    log_probs = jnp.zeros([batch, rows], jnp.float32)
    lengths = jnp.zeros([batch, rows], jnp.int32)
    going = jnp.ones([batch, rows], bool)
    tokens = jnp.full([max_length, batch, rows], pad, jnp.int32)
    kept = empty_weights(step, carry, token, max_length, keep_weights)

    def extend(state):
        t, carry, token, log_probs, lengths, going, tokens, kept = state
        carry, logits, weights = step(carry, token)
        logits = logits.astype(jnp.float32)
        token = jnp.where(t + 1 < limit, choose(logits, t), eos).astype(jnp.int32)
        log_prob = jnp.take_along_axis(logits, token[..., None], -1)[..., 0]
        log_prob -= jax.nn.logsumexp(logits, -1)
        log_probs += jnp.where(going, log_prob, 0)
        lengths += going
        tokens = tokens.at[t].set(jnp.where(going, token, pad))
        if kept is not None and weights is not None:
            kept = kept.at[t].set(jnp.where(going[..., None], weights, 0))
        going &= token != eos
        return t + 1, carry, token, log_probs, lengths, going, tokens, kept

    state = (0, carry, token, log_probs, lengths, going, tokens, kept)
    state = lax.while_loop(lambda state: jnp.any(state[5]), extend, state)
    _, _, _, log_probs, lengths, _, tokens, kept = state
    log_probs, order = lax.top_k(log_probs, rows)
    tokens = jnp.moveaxis(tokens, 0, 2)  # [B, R, L]
    tokens = jnp.take_along_axis(tokens, order[..., None], 1)
    lengths = jnp.take_along_axis(lengths, order, 1)
    if kept is not None:
        kept = jnp.moveaxis(kept, 0, 2)  # [B, R, L, S]
        kept = jnp.take_along_axis(kept, order[..., None, None], 1)
    return Decoded(tokens, log_probs, log_probs, lengths, kept)
