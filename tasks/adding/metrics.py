"""Metrics of real-valued estimates.

Axes: ... any batch; B estimates.
"""

import numpy as np

TOLERANCE = 0.04  # Hochreiter and Schmidhuber (1997), adding and multiplication


def within_tolerance(errors: np.ndarray, tolerance: float = TOLERANCE) -> np.ndarray:
    """Mask of the estimates within the tolerance: |errors| < tolerance.

    Args:
        errors: [...] estimates minus targets.
        tolerance: bound of |errors|, exclusive.

    Returns:
        [...] bool.
    """
    return np.abs(errors) < tolerance


def accuracy(errors: np.ndarray) -> float:
    """Percentage of estimates within the tolerance.

    Args:
        errors: [...] estimates minus targets.

    Returns:
        A percentage in [0, 100].
    """
    return float(100 * within_tolerance(errors).mean())


def accuracy_by_length(
    errors: np.ndarray, lengths: np.ndarray, groups: int
) -> dict[str, float]:
    """Accuracy by sequence length, in groups of equal numbers of sequences.

    Args:
        errors: [B] estimates minus targets.
        lengths: [B] sequence lengths, sorted.
        groups: number of groups; divides B.

    Returns:
        Percentages; the keys are the minimum and maximum length of a group, as in
        {"50-61": 97.5, ...}.
    """
    parts = np.split(np.arange(len(errors)), groups)
    return {
        f"{lengths[part[0]]}-{lengths[part[-1]]}": accuracy(errors[part])
        for part in parts
    }
