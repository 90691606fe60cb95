"""Metrics of pointer tasks: sorting, hulls, triangulations and tours.

Vinyals, Fortunato and Jaitly (2015), section 4; Vinyals, Bengio and Kudlur (2016);
`tasks.pointing.data` defines the tasks.

Axes: B instances; n inputs per instance; F numbers per input; T pointers.
"""

from collections.abc import Callable

import numpy as np

from tasks.pointing.data import sequences
from tasks.pointing.geometry import is_simple, signed_area
from tasks.pointing.tours import MAX_EXACT, tour_length

_SAME_LENGTH = 1e-4  # relative tolerance of tour lengths, as coordinates are rounded

# Inputs [n, F], predicted indices and true indices of each instance.
_Cases = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def pointing_scores(
    kind: str, batch: dict[str, np.ndarray], tokens: np.ndarray
) -> dict[str, float]:
    """Metrics of predicted pointers, valid or not; shares in per cent.

    *   sorting: `accuracy`, the share of sequences that are entirely correct.
    *   hull: `accuracy`, the share of answers that are the true polygon, from any
        corner in either direction; `failure`, the share that are not simple polygons of
        at least three different inputs; `area`, the mean share of the hull's area that
        simple polygons cover.
    *   delaunay: `accuracy`, the share of answers that are the true set of triangles;
        `coverage`, the mean share of true triangles that are predicted. An answer whose
        number of pointers is not a multiple of three is wrong.
    *   tsp: `valid`, the share of answers that visit every city once; `accuracy`, the
        share that are valid and at most 1e-4 longer, relatively, than the label;
        `length`, the mean length of valid tours; `excess`, their mean length relative
        to the label's, minus 1; `optimum`, the mean length of the labels, named
        `reference` if any instance has more than 20 cities, as its label comes from a
        heuristic search.

    Args:
        kind: one of `tasks.pointing.data.KINDS`.
        batch: see `tasks.pointing.data`.
        tokens: int [B, T], with any T.

    Returns:
        Finite numbers. Undefined means are absent: `area` if all answers failed,
        `length` and `excess` if no tour is valid.
    """
    inputs = (x[:n] for x, n in zip(batch["inputs"], batch["lengths"], strict=True))
    predicted, truth = sequences(tokens), sequences(batch["target"])
    return _SCORES[kind](list(zip(inputs, predicted, truth, strict=True)))


def _percent(values: list | np.ndarray) -> float:
    return 100 * float(np.mean(values))


def _distinct(indices: np.ndarray, n: int) -> bool:
    """Returns True if all are indices of n inputs, without repetition."""
    inside = ((0 <= indices) & (indices < n)).all()
    return bool(inside) and len(np.unique(indices)) == len(indices)


def _score_sorting(cases: _Cases) -> dict[str, float]:
    return {"accuracy": _percent([np.array_equal(p, t) for _, p, t in cases])}


def _score_hulls(cases: _Cases) -> dict[str, float]:
    same, failed, covered = [], [], []
    for points, predicted, truth in cases:
        simple = _distinct(predicted, len(points)) and is_simple(points[predicted])
        # Hull corners are in convex position: the simple polygon on them is the hull.
        same.append(simple and set(predicted.tolist()) == set(truth.tolist()))
        failed.append(not simple)
        if simple:
            areas = signed_area(points[predicted]), signed_area(points[truth])
            covered.append(abs(areas[0] / areas[1]))
    scores = {"accuracy": _percent(same), "failure": _percent(failed)}
    return scores | ({"area": _percent(covered)} if covered else {})


def _triples(indices: np.ndarray) -> set[tuple[int, ...]]:
    whole = indices[: len(indices) // 3 * 3].reshape(-1, 3)
    return set(map(tuple, np.sort(whole, 1).tolist()))


def _score_triangulations(cases: _Cases) -> dict[str, float]:
    same, covered = [], []
    for _, predicted, truth in cases:
        triangles, expected = _triples(predicted), _triples(truth)
        same.append(triangles == expected and len(predicted) % 3 == 0)
        covered.append(len(triangles & expected) / len(expected))
    return {"accuracy": _percent(same), "coverage": _percent(covered)}


def _score_tours(cases: _Cases) -> dict[str, float]:
    labels = np.array([tour_length(points, truth) for points, _, truth in cases])
    valid = np.array([len(p) == len(x) and _distinct(p, len(x)) for x, p, _ in cases])
    length = np.array(
        [tour_length(x, p) for (x, p, _), v in zip(cases, valid, strict=True) if v]
    )
    excess = length / labels[valid] - 1
    exact = max(len(points) for points, *_ in cases) <= MAX_EXACT
    scores = {
        "optimum" if exact else "reference": float(labels.mean()),
        "valid": _percent(valid),
        "accuracy": 100 * float((excess <= _SAME_LENGTH).sum()) / len(cases),
    }
    if valid.any():
        scores |= {"length": float(length.mean()), "excess": _percent(excess)}
    return scores


_SCORES: dict[str, Callable[[_Cases], dict[str, float]]] = {
    "sorting": _score_sorting,
    "hull": _score_hulls,
    "delaunay": _score_triangulations,
    "tsp": _score_tours,
}
