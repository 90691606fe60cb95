"""Generated tasks whose answer points at the inputs, with exact answers.

Those of Vinyals, Fortunato and Jaitly, Pointer Networks (2015), section 3, and the
numbers of Vinyals, Bengio and Kudlur, Order Matters (2016):

*   `sorting`: numbers of [0, 1); the answer is their order, ascending.
*   `hull`: points of the unit square; the corners of their convex hull,
    counter-clockwise from the one that comes first among the inputs.
*   `delaunay`: such points; their Delaunay triangles. Inside a triangle the inputs
    ascend; the triangles stand in the order of their incentres, by x and then by y.
*   `tsp`: such points, called cities; their shortest tour, counter-clockwise from the
    first city. The first paper leaves the direction open, so that every tour has two
    labels; the second one fixes it.

Each set thus has one answer. It is written as pointers 1..n and a closing 0: pointer k
is input k - 1, and 0 is the end, the padding, and where a decoder starts from. A batch
is a dict of

*   `inputs`: float32 [B, S, F], 0 at padding;
*   `lengths`: int32 [B], how many of the S inputs are there, n;
*   `target`: int32 [B, T], the answers, at least one 0 at the end of each.

What differs from the paper: long tours are learned from better labels, those of
`data.tours.near_optimal`, where the paper has its approximate solvers A1 to A3.

Axes: B batch; S inputs; F features of one; T target steps.
"""

import functools

import numpy as np
from scipy.spatial import QhullError

from data import bucketing
from data.endless import Batch
from data.geometry import convex_hulls, gift_wrapping, triangulations
from data.splits import held_out_rng
from data.tours import MAX_EXACT, shortest_tours
from errors import UserError

KINDS = ("sorting", "hull", "delaunay", "tsp")
_FEWEST = {"sorting": 1, "hull": 3, "delaunay": 3, "tsp": 3}

# Training is not to wait for its data, so that what it learns from is solved for many
# instances at once; what is held out is made once, by solvers that others rely on.
# Tours of up to so many cities are exact: `held_karp` takes about 10 ms for 128 sets of
# 12 cities, less than a training step, but more than twice as much for each further
# one; `near_optimal` takes 30 ms at 13 to 18 and is hardly longer than the optimum.
EXACT = 12


def check_size(kind: str, name: str, size: int) -> None:
    """Raises a UserError for a number of inputs that a kind cannot have.

    Args:
        kind: one of `KINDS`.
        name: of the number, in the error.
        size: the number.
    """
    _check_kind(kind)
    if not isinstance(size, (int, np.integer)):
        raise UserError(f"{name} is {size!r}: must be a whole number")
    if size < _FEWEST[kind]:
        raise UserError(
            f"{name} is {size}: must be at least {_FEWEST[kind]} for {kind}"
        )


def features(kind: str) -> int:
    """Returns F, the numbers of one input: 1 to sort, 2 coordinates of a point.

    Raises:
        UserError: for an unknown kind.
    """
    _check_kind(kind)
    return 1 if kind == "sorting" else 2


def steps(kind: str, width: int) -> int:
    """Returns T, which holds every answer of `width` inputs and a 0.

    No triangulation of S points has more than 2 S - 5 triangles: 2 S - 2 less the
    corners of the hull.

    Raises:
        UserError: for an unknown kind, or fewer inputs than it needs.
    """
    check_size(kind, "the number of inputs", width)
    return (3 * (2 * width - 5) if kind == "delaunay" else width) + 1


def blank(kind: str, width: int) -> Batch:
    """Returns an instance of this many zeros, for the shapes of a model.

    Raises:
        UserError: for an unknown kind, or fewer inputs than it needs.
    """
    return {
        "inputs": np.zeros((1, width, features(kind)), np.float32),
        "lengths": np.full(1, width, np.int32),
        "target": np.zeros((1, steps(kind, width)), np.int32),
    }


def instances(
    kind: str,
    rng: np.random.Generator,
    sizes: np.ndarray,
    width: int,
    *,
    fast: bool = True,
) -> Batch:
    """Draws instances and answers them.

    Args:
        kind: one of `KINDS`.
        rng: what the inputs are drawn from.
        sizes: [B] inputs of each instance.
        width: S, at least the largest of them.
        fast: see `answers`.

    Returns:
        A batch, as in the module's docstring.

    Raises:
        UserError: for an unknown kind, or fewer inputs than it needs.
        ValueError: if `width` does not fit.
    """
    sizes = np.asarray(sizes)
    check_size(kind, "size", sizes.min())
    if sizes.max() > width:
        raise ValueError(f"instances: {sizes.max()} inputs do not fit width {width}")
    shape = len(sizes), width, features(kind)
    inputs = rng.random(shape, np.float32)
    inputs[np.arange(width) >= sizes[:, None]] = 0
    target = answers(kind, inputs, sizes, fast=fast)
    return {"inputs": inputs, "lengths": sizes.astype(np.int32), "target": target}


def answers(
    kind: str, inputs: np.ndarray, sizes: np.ndarray, *, fast: bool = False
) -> np.ndarray:
    """Answers instances.

    Args:
        kind: one of `KINDS`.
        inputs: [B, S, F].
        sizes: [B] inputs of each instance.
        fast: solve many at once: hulls by `gift_wrapping`, triangulations of up to 10
            points by `empty_circles`, tours beyond 12 cities, in place of 20, by
            `near_optimal`. Else hulls and triangulations are scipy's.

    Returns:
        The targets [B, T], as in the module's docstring.

    Raises:
        UserError: for an unknown kind, or points on a line, which have neither a hull
            nor triangles.
    """
    _check_kind(kind)
    solve = {
        "sorting": _orders,
        "hull": gift_wrapping if fast else convex_hulls,
        "delaunay": functools.partial(triangulations, fast=fast),
        "tsp": functools.partial(shortest_tours, exact=EXACT if fast else MAX_EXACT),
    }
    try:
        found = solve[kind](inputs, sizes)
    except QhullError:
        raise UserError("points on one line have no hull and no triangles") from None
    target = np.zeros((len(sizes), steps(kind, inputs.shape[1])), np.int32)
    for row, answer in zip(target, found, strict=True):
        row[: len(answer)] = answer + 1
    return target


class Batches(bucketing.Batches):
    """Endless training batches of a kind; see `data.bucketing.Batches`.

    Raises:
        UserError: for an unknown kind or a number out of its range.
    """

    def __init__(
        self,
        kind: str,
        *,
        min_size: int,
        max_size: int,
        buckets: int,
        batch_size: int,
        seed: int,
    ):
        check_size(kind, "config.data.min_size", min_size)
        super().__init__(
            functools.partial(instances, kind),
            min_size=min_size,
            max_size=max_size,
            buckets=buckets,
            batch_size=batch_size,
            seed=seed,
        )


def held_out(kind: str, split: str, size: int, count: int) -> Batch:
    """The first `count` instances of a split, always the same; tours exact up to 20.

    Args:
        kind: one of `KINDS`.
        split: "validation" or "test".
        size: inputs of every instance, S.
        count: B.

    Returns:
        A batch, as in the module's docstring.

    Raises:
        UserError: for an unknown kind or split, or a number out of its range.
    """
    check_size(kind, "size", size)
    if count < 1:
        raise UserError(f"count is {count}: must be at least 1")
    rng = held_out_rng(split, KINDS.index(kind), size)
    return instances(kind, rng, np.full(count, size), size, fast=False)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UserError(
            f"config.data.kind is {kind!r}: must be one of {', '.join(KINDS)}"
        )


def _orders(numbers: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """The indices of numbers [B, S, 1] in ascending order, of each instance."""
    padding = np.arange(numbers.shape[1]) >= sizes[:, None]
    order = np.where(padding, np.inf, numbers[..., 0]).argsort(1, kind="stable")
    return [row[:n] for row, n in zip(order, sizes, strict=True)]


def sequences(tokens: np.ndarray) -> list[np.ndarray]:
    """The indices that pointers [B, T] point at, from 0 on, up to the first 0 or all.

    Returns:
        For each row an int array, maybe empty.
    """
    tokens = np.asarray(tokens)
    ended = np.cumsum(tokens == 0, 1) > 0
    return [row[:n] - 1 for row, n in zip(tokens, (~ended).sum(1), strict=True)]
