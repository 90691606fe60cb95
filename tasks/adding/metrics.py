"""Metrics of real-valued estimates.

Axes: ... any batch; B estimates.
"""

import numpy as np

TOLERANCE = 0.04  # Hochreiter and Schmidhuber (1997), adding and multiplication


def accuracy(errors: np.ndarray) -> float:
    """Percentage of estimates [...] with |error| < `TOLERANCE`."""
    return 100 * float((np.abs(errors) < TOLERANCE).mean())


def accuracy_by_length(
    errors: np.ndarray, lengths: np.ndarray, groups: int
) -> dict[str, float]:
    """Accuracy by sequence length, in groups of equal numbers of sequences.

    Args:
        errors: [B] estimates minus targets.
        lengths: [B] sequence lengths, sorted.
        groups: number of groups; divides B.

    Returns:
        Percentages by minimum and maximum length: {"50-61": 97.5, ...}.
    """
    parts = np.split(np.arange(len(errors)), groups)
    return {
        f"{lengths[part[0]]}-{lengths[part[-1]]}": accuracy(errors[part])
        for part in parts
    }
