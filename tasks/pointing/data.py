"""Generated tasks of pointer networks: instances and their answers.

The tasks of Vinyals, Fortunato and Jaitly, Pointer Networks (2015), section 3, and
sorting from Vinyals, Bengio and Kudlur, Order Matters (2016):

*   `sorting`: numbers in [0, 1); the answer is their ascending order.
*   `hull`: points of the unit square; the answer is the corners of their convex hull,
    counter-clockwise from the one with the lowest index.
*   `delaunay`: points of the unit square; the answer is their Delaunay triangles. The
    indices of a triangle ascend; the triangles are in the order of their incentres, by
    x and then by y.
*   `tsp`: points of the unit square, called cities; the answer is their shortest tour,
    counter-clockwise from the first city. The first paper leaves the direction open,
    so that every tour has two labels; the second paper fixes it.

Each instance thus has one answer. It is a sequence of pointers 1..n followed by 0:
pointer k is input k - 1; 0 is the end, the padding and a decoder's first token. A batch
is a dict of

*   `inputs`: float32 [B, S, F], 0 at padding;
*   `lengths`: int32 [B], the number of inputs n of each instance;
*   `target`: int32 [B, T], the answers, each followed by at least one 0.

Differs from the paper: the labels of long tours are from
`tasks.pointing.tours.near_optimal`, which finds shorter tours than the paper's
approximate solvers A1 to A3.

Axes: B batch; S inputs, padded; F features of an input; T target steps.
"""

import functools

import numpy as np
from scipy.spatial import QhullError

from base.errors import FieldError, UserError
from tasks.common.batches import ALL, Batch, EndlessBatches, Rows, bucketed, pad
from tasks.common.splits import held_out_rng
from tasks.pointing.geometry import convex_hulls, gift_wrapping, triangulations
from tasks.pointing.tours import MAX_EXACT, shortest_tours

_MIN_SIZES = {"sorting": 1, "hull": 3, "delaunay": 3, "tsp": 3}
KINDS = tuple(_MIN_SIZES)

# Training must not wait for its data, so its solvers are vectorised over instances.
# Training tours of up to this many cities are exact: `held_karp` takes about 10 ms for
# 128 instances of 12 cities, less than a training step, and more than twice as much for
# each further city; `near_optimal` takes 30 ms for 13 to 18 cities.
MAX_EXACT_TRAINING = 12


def check_size(kind: str, name: str, size: int) -> None:
    """Raises a UserError if an instance of a kind cannot have this many inputs.

    `name` is that of the number in the error.
    """
    if size < _MIN_SIZES[kind]:
        raise FieldError(name, size, f"at least {_MIN_SIZES[kind]} for {kind}")


def features(kind: str) -> int:
    """Returns F: 1 for numbers to sort, 2 for the coordinates of points."""
    return 1 if kind == "sorting" else 2


def steps(kind: str, width: int) -> int:
    """Returns T for `width` inputs: the maximum length of an answer plus 1 for the end.

    A triangulation of S points has 2 S - 2 - h triangles, where h is the number of
    corners of the hull: at most 2 S - 5.
    """
    return (3 * (2 * width - 5) if kind == "delaunay" else width) + 1


def blank(kind: str, width: int) -> Batch:
    """Returns a batch with one instance of zeros, to initialise a model."""
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
    rows: Rows = ALL,
    *,
    fast: bool = True,
) -> Batch:
    """Draws instances and computes their answers: a batch, or its `rows`.

    Args:
        kind: one of `KINDS`.
        rng: random generator of the inputs.
        sizes: [B] number of inputs of each instance.
        width: S, at least the maximum of `sizes`.
        rows: instances to return.
        fast: see `answers`.
    """
    shape = len(sizes), width, features(kind)
    inputs, sizes = rng.random(shape, np.float32)[rows], sizes[rows]
    inputs[np.arange(width) >= sizes[:, None]] = 0
    target = answers(kind, inputs, sizes, fast=fast)
    return {"inputs": inputs, "lengths": sizes.astype(np.int32), "target": target}


def answers(
    kind: str, inputs: np.ndarray, sizes: np.ndarray, *, fast: bool = False
) -> np.ndarray:
    """Computes the answers of instances: the targets int32 [B, T].

    Args:
        kind: one of `KINDS`.
        inputs: [B, S, F], padded.
        sizes: [B] number of inputs of each instance.
        fast: whether to use the vectorised solvers, a tenth of scipy's time for hulls;
            tours are then exact up to 12 cities only, instead of 20.

    Raises:
        UserError: if all points of an instance are on a line.
    """
    solve = {
        "sorting": _orders,
        "hull": gift_wrapping if fast else convex_hulls,
        "delaunay": functools.partial(triangulations, fast=fast),
        "tsp": functools.partial(
            shortest_tours, max_exact=MAX_EXACT_TRAINING if fast else MAX_EXACT
        ),
    }
    try:
        indices = solve[kind](inputs, sizes)
    except QhullError:
        raise UserError("points on one line have no hull and no triangles") from None
    width = steps(kind, inputs.shape[1])
    return pad([answer + 1 for answer in indices], width)


def batches(kind: str, **sizes: int) -> EndlessBatches:
    """Returns the training batches of a kind; for `sizes` see `bucketed`."""
    return bucketed(functools.partial(instances, kind), **sizes)


def held_out(kind: str, split: str, size: int, count: int) -> Batch:
    """Returns the first `count` instances of a split, always the same.

    All have `size` inputs; tours of up to 20 cities are exact.
    """
    rng = held_out_rng(split, KINDS.index(kind), size)
    return instances(kind, rng, np.full(count, size), size, fast=False)


def _orders(numbers: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Indices that sort the numbers [B, S, 1] of each instance."""
    padding = np.arange(numbers.shape[1]) >= sizes[:, None]
    order = np.where(padding, np.inf, numbers[..., 0]).argsort(1, kind="stable")
    return [row[:n] for row, n in zip(order, sizes, strict=True)]


def sequences(tokens: np.ndarray) -> list[np.ndarray]:
    """Converts pointers [B, T] to indices from 0, up to the first pointer 0 if any.

    Returns:
        An int array for each instance, possibly empty.
    """
    tokens = np.asarray(tokens)
    ended = np.cumsum(tokens == 0, 1) > 0
    return [row[:n] - 1 for row, n in zip(tokens, (~ended).sum(1), strict=True)]
