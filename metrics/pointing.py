"""Metrics of pointers: sorted numbers, hulls, triangulations and tours.

Those of Vinyals, Fortunato and Jaitly (2015), section 4, and of Vinyals, Bengio and
Kudlur (2016); see `data.pointing` for the tasks.

Axes: B instances; n inputs of an instance; F numbers of an input; T pointers.
"""

from collections.abc import Callable

import numpy as np

from data.geometry import is_simple, signed_area
from data.pointing import sequences
from data.tours import MAX_EXACT, tour_length

_SAME_LENGTH = 1e-4  # relative tolerance of tour lengths, for rounded coordinates

# Inputs [n, F], predicted indices and true indices of each instance.
_Cases = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def pointing_scores(
    kind: str, batch: dict[str, np.ndarray], tokens: np.ndarray
) -> dict[str, float]:
    """Metrics of predicted pointers, valid or not; shares in per cent.

    *   sorting: `accuracy`, sequences that are entirely right.
    *   hull: `accuracy`, answers that are the true polygon, from any corner and in
        either direction; `failure`, answers that are not a simple polygon of at least
        three different inputs; `area`, the mean share of the hull's area covered by the
        simple polygons.
    *   delaunay: `accuracy`, answers that are the true set of triangles; `coverage`,
        the mean share of the true triangles that are predicted. An answer whose number
        of pointers is not a multiple of three is wrong.
    *   tsp: `valid`, answers that visit every city once; `accuracy`, valid tours at
        most 1e-4 longer, relatively, than the label; `length`, the mean length of valid
        tours; `excess`, the mean of their length over the label's, minus 1; `optimum`,
        the mean length of the labels, named `reference` if a batch has instances of
        more than 20 cities, whose labels come from a heuristic search.

    Args:
        kind: one of `data.pointing.KINDS`.
        batch: see `data.pointing`.
        tokens: int [B, T], with any T.

    Returns:
        Finite numbers. Means over nothing are left out: `area` if all answers failed,
        `length` and `excess` if no tour is valid.

    Raises:
        ValueError: for an unknown kind.
    """
    if kind not in _SCORES:
        raise ValueError(f"kind is {kind!r}: must be one of {', '.join(_SCORES)}")
    cases = list(
        zip(
            (x[:n] for x, n in zip(batch["inputs"], batch["lengths"], strict=True)),
            sequences(tokens),
            sequences(batch["target"]),
            strict=True,
        )
    )
    return _SCORES[kind](cases)


def _percent(values: list | np.ndarray) -> float:
    return 100 * float(np.mean(values))


def _distinct(indices: np.ndarray, n: int) -> bool:
    """Return whether all are indices of n inputs, none twice."""
    inside = ((0 <= indices) & (indices < n)).all()
    return bool(inside) and len(np.unique(indices)) == len(indices)


def _score_sorting(cases: _Cases) -> dict[str, float]:
    return {"accuracy": _percent([np.array_equal(p, r) for _, p, r in cases])}


def _score_hulls(cases: _Cases) -> dict[str, float]:
    same, failed, covered = [], [], []
    for points, predicted, right in cases:
        simple = _distinct(predicted, len(points)) and is_simple(points[predicted])
        # A simple polygon on a hull's corners is the hull: they are in convex position.
        same.append(simple and set(predicted.tolist()) == set(right.tolist()))
        failed.append(not simple)
        if simple:
            areas = signed_area(points[predicted]), signed_area(points[right])
            covered.append(abs(areas[0] / areas[1]))
    scores = {"accuracy": _percent(same), "failure": _percent(failed)}
    return scores | ({"area": _percent(covered)} if covered else {})


def _triples(indices: np.ndarray) -> set[tuple[int, ...]]:
    whole = indices[: len(indices) // 3 * 3].reshape(-1, 3)
    return set(map(tuple, np.sort(whole, 1).tolist()))


def _score_triangulations(cases: _Cases) -> dict[str, float]:
    same, covered = [], []
    for _, predicted, right in cases:
        triangles, wanted = _triples(predicted), _triples(right)
        same.append(triangles == wanted and len(predicted) % 3 == 0)
        covered.append(len(triangles & wanted) / len(wanted))
    return {"accuracy": _percent(same), "coverage": _percent(covered)}


def _score_tours(cases: _Cases) -> dict[str, float]:
    shortest = np.array([tour_length(points, right) for points, _, right in cases])
    valid = np.array([len(p) == len(x) and _distinct(p, len(x)) for x, p, _ in cases])
    length = np.array(
        [tour_length(x, p) for (x, p, _), v in zip(cases, valid, strict=True) if v]
    )
    excess = length / shortest[valid] - 1
    exact = max(len(points) for points, *_ in cases) <= MAX_EXACT
    scores = {
        "optimum" if exact else "reference": float(shortest.mean()),
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
