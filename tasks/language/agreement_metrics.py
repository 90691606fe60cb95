"""Accuracy of agreement by distance.

Axes: N dependent words.
"""

import numpy as np

_FIRST = 2  # the first group has the distances 1 and 2; each further one doubles


def group(distance: np.ndarray) -> np.ndarray:
    """Returns the maximum distance of each distance's group: 2, 4, 8, 16, ...

    Args:
        distance: int [N], at least 1.

    Returns:
        int [N].
    """
    return np.maximum(_FIRST, 2 ** np.ceil(np.log2(distance)).astype(int))


def by_distance(correct: np.ndarray, distance: np.ndarray) -> dict[str, float]:
    """Accuracy of dependent words, overall and by distance to their controller.

    Args:
        correct: bool [N].
        distance: int [N], number of words from the controller, at least 1.

    Returns:
        Per cent: `accuracy`, and `accuracy_G` of each group of distances that occurs,
        from G / 2 + 1 to G words (1 and 2 for G = 2).
    """
    groups = group(distance)
    scores = {"accuracy": 100 * float(correct.mean())}
    for name in np.unique(groups):
        scores[f"accuracy_{name}"] = 100 * float(correct[groups == name].mean())
    return scores
