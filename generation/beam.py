"""Beam search with the length penalty of Wu et al. (2016), section 7, eq. 14.

The Transformer (Vaswani et al. 2017, section 6.1) uses a beam size of 4, alpha = 0.6
and at most source length + 50 tokens.

A hypothesis is finished when its EOS is among the R best continuations of a step
(Sutskever et al. 2014, section 3.2); the beam continues with the R best continuations
that are not EOS, so that its size is constant. With R = 1 and alpha = 0 this is greedy
decoding.

Differs from the papers: at the length limit a hypothesis is not cut off but ends in
EOS, with the model's probability of EOS, so that all scores belong to whole sentences;
the search of a sentence stops when no unfinished hypothesis can beat the finished ones,
without GNMT's pruning of poor hypotheses; there is no coverage penalty.

Axes: B sentences; R hypotheses in the beam; N hypotheses returned; L positions of the
output; S source positions; W vocabulary.
"""

import jax
import jax.numpy as jnp
from jax import lax

from attention.fast.vocabulary import top
from base.records import SearchTree
from generation.rollout import empty_weights, limits
from generation.types import Carry, Decoded, Step


def length_penalty(length: jax.Array, alpha: float, offset: float = 5) -> jax.Array:
    """Length penalty ((5 + length) / 6)^alpha: Wu et al. (2016), eq. 14.

    With an offset of 0 and alpha = 1 it is the length, by which Chan et al. (2016), eq.
    14, divide.

    Args:
        length: [...] number of tokens, EOS included.
        alpha: exponent, at least 0; 0 for no penalty.
        offset: replaces the 5, and 1 plus it the 6.

    Returns:
        [...] positive divisors of log-probabilities.
    """
    return ((offset + length) / (offset + 1)) ** alpha


def beam_search(
    step: Step,
    carry: Carry,
    *,
    batch: int,
    beam: int,
    max_length: int,
    alpha: float = 0.6,
    offset: float = 5,
    n_best: int = 1,
    limit: jax.Array | None = None,
    keep_weights: bool = False,
    keep_tree: bool = False,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
) -> Decoded:
    """Beam search for the hypotheses with the highest log p / `length_penalty`.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token, with R = `beam` equal rows.
        batch: number of sentences, B.
        beam: R, the beam size.
        max_length: L, the maximum number of tokens, EOS included; the last is always
            EOS.
        alpha: exponent of the length penalty, at least 0; 0 for no penalty.
        offset: see `length_penalty`.
        n_best: N, the number of returned hypotheses, at most `beam`.
        limit: [B] maximum number of tokens of each sentence; None for L.
        keep_weights: whether to return attention weights.
        keep_tree: whether to return the tree of the hypotheses.
        bos: the first input token.
        eos: the token that ends a hypothesis.
        pad: the id after `eos`.

    Returns:
        N different hypotheses per sentence, best score first.

    Raises:
        ValueError: if an option is out of its range or `limit` is not [B].
    """
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best is {n_best}: must be 1 to beam={beam}")
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}: must be at least 0")
    limit = limits(limit, batch, max_length)[:, None]
    token = jnp.full([batch, beam], bos, jnp.int32)
    # The rows start out equal: only the first one is extended.
    live = jnp.full([batch, beam], -jnp.inf, jnp.float32).at[:, 0].set(0)
    zeros = jnp.zeros([batch, n_best], jnp.int32)
    # Finished hypotheses: score, log-probability, step and row at which EOS was chosen.
    done = (jnp.full([batch, n_best], -jnp.inf, jnp.float32),) * 2 + (zeros, zeros)
    tokens = parents = jnp.zeros([max_length, batch, beam], jnp.int32)
    attention = empty_weights(step, carry, token, max_length, keep_weights)
    # Log-probabilities in the beam, and scores of the hypotheses that end.
    tree = (jnp.full([max_length, batch, beam], -jnp.inf),) * 2 if keep_tree else None

    def extend(state):
        t, carry, token, live, done, tokens, parents, attention, tree = state
        carry, logits, weights = step(carry, token)
        logits = logits.astype(jnp.float32)
        base = live - jax.nn.logsumexp(logits, -1)  # [B, R]
        ended = base + logits[..., eos]

        # R + 1 continuations, since EOS may be among them.
        values, ids = top(logits, min(beam + 1, logits.shape[-1]))
        values = jnp.where(ids == eos, -jnp.inf, base[..., None] + values)
        count = ids.shape[-1]
        live, index = lax.top_k(values.reshape(batch, beam * count), beam)
        parent = index // count
        token = jnp.take_along_axis(ids.reshape(batch, beam * count), index, 1)

        last, log_probs = t + 1 >= limit, live
        live = jnp.where(last, -jnp.inf, live)
        minimum = lax.top_k(jnp.concatenate([live, ended], 1), beam)[0][:, -1:]
        scores = jnp.where(
            ended >= minimum, ended / length_penalty(t + 1, alpha, offset), -jnp.inf
        )
        if keep_tree:
            tree = (tree[0].at[t].set(log_probs), tree[1].at[t].set(scores))
        new = (scores, ended, jnp.full_like(token, t), jnp.arange(beam) + 0 * token)
        done = tuple(jnp.concatenate(pair, 1) for pair in zip(done, new, strict=True))
        scores, best = lax.top_k(done[0], n_best)
        done = (scores, *(jnp.take_along_axis(x, best, 1) for x in done[1:]))

        # Log-probabilities only decrease, and the penalty is maximal at the limit: this
        # bounds the final score of a row.
        hopeless = live / length_penalty(limit, alpha, offset) <= scores[:, -1:]
        live = jnp.where(hopeless, -jnp.inf, live)
        tokens = tokens.at[t].set(token)
        parents = parents.at[t].set(parent)
        if keep_weights:
            attention = attention.at[t].set(weights)
        carry = carry.take(parent)
        return t + 1, carry, token, live, done, tokens, parents, attention, tree

    state = (0, carry, token, live, done, tokens, parents, attention, tree)
    state = lax.while_loop(lambda state: jnp.any(state[3] > -jnp.inf), extend, state)
    *_, (scores, log_probs, end, row), tokens, parents, attention, tree = state
    search = None
    if tree is not None:
        arrays = (jnp.moveaxis(x, 0, 1) for x in (tokens, parents, *tree))
        search = SearchTree(*arrays)

    def backtrack(row, history):
        t, tokens, parents, attention = history
        before_end = t < end
        token = jnp.where(before_end, jnp.take_along_axis(tokens, row, 1), pad)
        token = jnp.where(t == end, eos, token)
        row = jnp.where(before_end, jnp.take_along_axis(parents, row, 1), row)
        if keep_weights:
            # Weights belong to the extended row: the parent, or `row` itself at EOS.
            attention = jnp.take_along_axis(attention, row[..., None], 1)
            attention = jnp.where((t <= end)[..., None], attention, 0)
        return row, (token, attention)

    end = jnp.where(scores > -jnp.inf, end, -1)
    history = (jnp.arange(max_length), tokens, parents, attention)
    tokens, attention = lax.scan(backtrack, row, history, reverse=True)[1]
    tokens = jnp.moveaxis(tokens, 0, 2)  # [B, N, L]
    if keep_weights:
        attention = jnp.moveaxis(attention, 0, 2)  # [B, N, L, S]
    return Decoded(tokens, scores, log_probs, end + 1, attention, search)
