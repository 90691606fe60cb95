"""Errors of answers by task, over the repeats of a model.

Axes: Q questions; R repeats of a model; K hops; F supporting facts.
"""

from collections.abc import Mapping, Sequence

import numpy as np

FAILED = 5.0  # per cent; a task with a greater error has failed


def summary(
    errors: Mapping[int, Sequence[float]],
    training_errors: Mapping[int, Sequence[float]],
) -> dict[str, float]:
    """Returns the mean error over tasks, and that of the best repeats.

    The best repeat of a task is the first with the minimum training error, as in
    Sukhbaatar et al. (2015), section 4.2.

    Args:
        errors: by task, the error [R] in per cent.
        training_errors: the same on the training questions.

    Returns:
        `error`, the mean over tasks and repeats, and `error_T`, that of task T; if
        there are several repeats, the standard deviations of both over the repeats,
        `..._deviation`, and `repeat_N`, the mean over tasks of the N-th repeat; `best`,
        the mean error of the best repeats, and `best_T`; `failed`, the number of tasks
        whose best repeat has an error above 5 %.
    """
    table = np.array(list(errors.values()))  # [tasks, R]
    choice = np.argmin(np.array([training_errors[task] for task in errors]), 1)
    best = np.take_along_axis(table, choice[:, None], 1)[:, 0]
    groups = {"error": table.mean(0)}  # by name, the values [R] of the repeats
    groups |= {f"error_{task}": row for task, row in zip(errors, table, strict=True)}
    scores = {name: float(values.mean()) for name, values in groups.items()}
    if table.shape[1] > 1:
        for name, values in groups.items():
            scores[f"{name}_deviation"] = float(values.std(ddof=1))
        for n, mean in enumerate(groups["error"], 1):
            scores[f"repeat_{n}"] = float(mean)
    scores |= {"best": float(best.mean()), "failed": float((best > FAILED).sum())}
    names = zip(errors, best, strict=True)
    return scores | {f"best_{task}": float(error) for task, error in names}


def attention_on_facts(top: np.ndarray, facts: np.ndarray) -> np.ndarray:
    """Returns how often each hop's maximum weight is on a supporting fact.

    Args:
        top: int [..., Q, K], slot of the maximum weight of each hop.
        facts: int [Q, F], slots of the supporting facts, -1 at padding.

    Returns:
        [..., K] in per cent of the questions with a supporting fact in memory; nan if
        there are none.
    """
    answerable = (facts >= 0).any(-1)
    hits = (top[..., None] == facts[:, None]).any(-1)[..., answerable, :]
    return 100 * (hits.sum(-2) / (answerable.sum() or np.nan))
