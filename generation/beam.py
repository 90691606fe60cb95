"""Beam search with the length penalty of Wu et al. (2016), section 7, eq. 14.

The Transformer's decoding (Vaswani et al. 2017, section 6.1) is beam 4, alpha 0.6 and
at most source length + 50 tokens.

A hypothesis leaves the beam when EOS is among the R best continuations of a step
(Sutskever et al. 2014, section 3.2), and the beam goes on with the R best that do not
end, so that it keeps its width. With R = 1 and alpha = 0 this is greedy decoding.

What differs: at its limit a hypothesis is ended by EOS at the model's probability
rather than cut off, so that all scores are those of whole sentences; the search of a
sentence ends only when no live hypothesis can reach the kept ones, rather than by
GNMT's pruning of hypotheses that fall behind; there is no coverage penalty.

Axes: B sentences; R hypotheses in the beam; N hypotheses returned; L positions of the
output; S source positions; W vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import lax

from generation.rollout import empty_weights, limits, logsumexp
from generation.types import Carry, Decoded, Step
from ops.top_k import top


def length_penalty(length: jax.Array, alpha: float) -> jax.Array:
    """Returns ((5 + length) / 6)^alpha, what a log-probability is divided by.

    Wu et al. (2016), eq. 14, without its coverage penalty; `length` of any shape.
    """
    return ((5 + length) / 6) ** alpha


def beam_search(
    step: Step,
    carry: Carry,
    *,
    batch: int,
    beam: int,
    max_length: int,
    alpha: float = 0.6,
    n_best: int = 1,
    limit: jax.Array | None = None,
    keep_weights: bool = False,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
) -> Decoded:
    """Searches for the hypotheses of the highest log p / length_penalty.

    Args:
        step: see `generation.types.Step`.
        carry: the state of R = `beam` equal rows before the first token.
        batch: B.
        beam: R, the number of unfinished hypotheses that are followed.
        max_length: L, the most tokens, EOS included; the last is EOS in any case.
        alpha: exponent of the length penalty, at least 0; 0 is none.
        n_best: N, the number of hypotheses returned, at most `beam`.
        limit: [B] the same as `max_length` for each sentence; None: L for all.
        keep_weights: whether attention is recorded.
        bos: the first input.
        eos: the token that ends a hypothesis.
        pad: what follows it.

    Returns:
        N different hypotheses a sentence, the best score first.

    Raises:
        ValueError: if an option is out of its range or `limit` is not [B].
    """
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must be in 1..beam, got {n_best} with beam={beam}")
    if alpha < 0:
        raise ValueError(f"alpha must be at least 0, got {alpha}")
    limit = limits(limit, batch, max_length)[:, None]
    token = jnp.full([batch, beam], bos, jnp.int32)
    # The rows are equal at first: one of them is followed.
    live = jnp.full([batch, beam], -jnp.inf, jnp.float32).at[:, 0].set(0)
    none = jnp.zeros([batch, n_best], jnp.int32)
    # Finished hypotheses: score, log-probability, step and row at which EOS was chosen.
    done = (jnp.full([batch, n_best], -jnp.inf, jnp.float32),) * 2 + (none, none)
    tokens = parents = jnp.zeros([max_length, batch, beam], jnp.int32)
    kept = empty_weights(step, carry, token, max_length, keep_weights)

    def extend(state):
        t, carry, token, live, done, tokens, parents, kept = state
        carry, logits, weights = step(carry, token)
        logits = logits.astype(jnp.float32)
        base = live - logsumexp(logits)  # [B, R]
        ended = base + logits[..., eos]

        # One more than R, for EOS may be among them.
        values, ids = top(logits, min(beam + 1, logits.shape[-1]))
        values = jnp.where(ids == eos, -jnp.inf, base[..., None] + values)
        count = ids.shape[-1]
        live, place = lax.top_k(values.reshape(batch, beam * count), beam)
        parent = place // count
        token = jnp.take_along_axis(ids.reshape(batch, beam * count), place, 1)

        last = t + 1 >= limit
        live = jnp.where(last, -jnp.inf, live)
        least = lax.top_k(jnp.concatenate([live, ended], 1), beam)[0][:, -1:]
        scores = jnp.where(
            ended >= least, ended / length_penalty(t + 1, alpha), -jnp.inf
        )
        new = (scores, ended, jnp.full_like(token, t), jnp.arange(beam) + 0 * token)
        done = tuple(jnp.concatenate(pair, 1) for pair in zip(done, new, strict=True))
        scores, best = lax.top_k(done[0], n_best)
        done = (scores, *(jnp.take_along_axis(x, best, 1) for x in done[1:]))

        # Log-probabilities only fall, and no penalty is larger than at the limit: what
        # cannot beat the worst kept hypothesis even so is not followed.
        hopeless = live / length_penalty(limit, alpha) <= scores[:, -1:]
        live = jnp.where(hopeless, -jnp.inf, live)
        tokens = tokens.at[t].set(token)
        parents = parents.at[t].set(parent)
        if keep_weights:
            kept = kept.at[t].set(weights)
        return t + 1, carry.take(parent), token, live, done, tokens, parents, kept

    state = (0, carry, token, live, done, tokens, parents, kept)
    state = lax.while_loop(lambda state: jnp.any(state[3] > -jnp.inf), extend, state)
    _, _, _, _, (scores, log_probs, end, row), tokens, parents, kept = state

    def back(row, history):
        t, tokens, parents, kept = history
        inside = t < end
        token = jnp.where(inside, jnp.take_along_axis(tokens, row, 1), pad)
        token = jnp.where(t == end, eos, token)
        row = jnp.where(inside, jnp.take_along_axis(parents, row, 1), row)
        if keep_weights:  # of the row that chose the token: its parent, at EOS itself
            kept = jnp.take_along_axis(kept, row[..., None], 1)
            kept = jnp.where((t <= end)[..., None], kept, 0)
        return row, (token, kept)

    end = jnp.where(scores > -jnp.inf, end, -1)
    history = (jnp.arange(max_length), tokens, parents, kept)
    tokens, kept = lax.scan(back, row, history, reverse=True)[1]
    tokens = jnp.moveaxis(tokens, 0, 2)  # [B, N, L]
    if keep_weights:
        kept = jnp.moveaxis(kept, 0, 2)  # [B, N, L, S]
    return Decoded(tokens, scores, log_probs, end + 1, kept)
