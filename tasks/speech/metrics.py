"""Error rates of transcripts, and monotony of their alignment.

Axes: Q characters; K positions.
"""

from collections.abc import Sequence

import numpy as np

from tasks.common.text import composed


def edit_distance(a: Sequence, b: Sequence) -> int:
    """Returns the minimum number of insertions, deletions and substitutions."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            substituted = diagonal + (x != y)
            diagonal, row[j] = row[j], min(substituted, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def error_rates(hypotheses: Sequence[str], references: Sequence[str]) -> dict:
    """Error rates in per cent of the references' words and characters.

    Args:
        hypotheses: N texts, compared in Unicode's form NFC.
        references: N texts; at least one is not empty.

    Returns:
        `wer` and `cer`, which can exceed 100; `correct`, the percentage of texts
        without an error.
    """
    pairs = zip(map(composed, hypotheses), map(composed, references), strict=True)
    rows = [
        (edit_distance(h.split(), r.split()), len(r.split()))
        + (edit_distance(h, r), len(r), h == r)
        for h, r in pairs
    ]
    words, all_words, characters, all_characters, correct = np.sum(rows, 0).tolist()
    return {
        "wer": 100 * words / all_words,
        "cer": 100 * characters / all_characters,
        "correct": 100 * correct / len(rows),
    }


def monotony(weights: Sequence[np.ndarray]) -> float:
    """Percentage of characters whose maximum weight is not before the previous one's.

    The first character of each text, whose `weights` are [Q, K], does not count; 100 if
    there are no others.
    """
    moves = np.concatenate([np.diff(x.argmax(-1)) for x in weights])
    return 100 * float((moves >= 0).mean()) if len(moves) else 100.0
