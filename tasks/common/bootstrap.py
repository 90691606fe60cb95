"""Confidence intervals of BLEU by the percentile bootstrap (Koehn, 2004).

Axes: N sentences.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

_SAMPLES = 1000


def interval(
    bleu: "BLEU", hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, float]:
    """Bounds of the 95% confidence interval of BLEU, by a bootstrap over sentences.

    Args:
        bleu: sacreBLEU's metric.
        hypotheses: N texts.
        references: N texts.

    Returns:
        The bounds, `bleu_low` and `bleu_high`.
    """
    pairs = zip(hypotheses, references, strict=True)
    parts = [bleu.corpus_score([hypothesis], [[text]]) for hypothesis, text in pairs]
    # n-gram matches and totals of each sentence, and the two lengths.
    counts = np.array([[*x.counts, *x.totals, x.sys_len, x.ref_len] for x in parts])
    rng, share = np.random.default_rng(0), np.full(len(counts), 1 / len(counts))
    scores = []
    for _ in range(_SAMPLES):
        *grams, length, other_length = (
            rng.multinomial(len(counts), share) @ counts
        ).tolist()
        order = len(grams) // 2
        scores.append(
            bleu.compute_bleu(
                grams[:order],
                grams[order:],
                length,
                other_length,
                smooth_method=bleu.smooth_method,
                smooth_value=bleu.smooth_value,
                effective_order=bleu.effective_order,
                max_ngram_order=order,
            ).score
        )
    low, high = np.percentile(scores, [2.5, 97.5])
    return {"bleu_low": float(low), "bleu_high": float(high)}
