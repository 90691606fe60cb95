"""Generated random letters and their reversal.

A toy task that is hard for a fixed-size encoding of the source and easy with attention.
"""

import numpy as np

from tasks.translation.corpora.records import Record


def reversal_records(limits: tuple[int, int], seed: int) -> list[Record]:
    """Draws 10,000 sequences of letters, each in its own group.

    Args:
        limits: minimum and maximum number of letters; lengths are uniform.
        seed: seed of the lengths and letters.

    Returns:
        The records; none if the minimum is above the maximum.
    """
    if limits[0] > limits[1]:
        return []
    rng = np.random.default_rng(seed)
    records = []
    for length in rng.integers(limits[0], limits[1] + 1, 10_000):
        letters = rng.choice(list("abcdefghijklmnopqrst"), length)
        source, target = " ".join(letters), " ".join(letters[::-1])
        records.append((source, source, target))
    return records
