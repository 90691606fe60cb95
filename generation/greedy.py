"""Greedy decoding: the most probable token at every step.

Axes: as in `generation.types`.
"""

import jax

from attention.fast.top_k import top
from generation.rollout import rollout
from generation.types import Carry, Decoded, Step


def greedy(
    step: Step,
    carry: Carry,
    *,
    batch: int,
    max_length: int,
    limit: jax.Array | None = None,
    keep_weights: bool = False,
    bos: int = 1,
    eos: int = 2,
    pad: int = 0,
) -> Decoded:
    """Greedy decoding: takes the most probable token at every step until EOS.

    Args:
        step: see `generation.types.Step`.
        carry: the state before the first token, with one row (R = 1).
        batch: number of sentences, B.
        max_length: L, the maximum number of tokens, EOS included; the last is always
            EOS.
        limit: [B] maximum number of tokens of each sentence, such as source length +
            50; None for L.
        keep_weights: whether to return attention weights.
        bos: the first input token.
        eos: the token that ends a hypothesis.
        pad: the id after `eos`.

    Returns:
        One hypothesis per sentence (N = 1); its score is its log-probability.

    Raises:
        ValueError: if a size is below 1 or `limit` is not [B].
    """
    return rollout(
        step,
        carry,
        lambda logits, t: top(logits, 1)[1][..., 0],
        batch=batch,
        rows=1,
        max_length=max_length,
        limit=limit,
        keep_weights=keep_weights,
        bos=bos,
        eos=eos,
        pad=pad,
    )
