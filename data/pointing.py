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
`near_optimal`, where the paper has its approximate solvers A1 to A3.

Axes: B batch; S inputs; F features of one; T target steps; C cities, subsets of them
or corners, where a comment says so.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np
from scipy.spatial import ConvexHull, Delaunay, QhullError

from data import sizes as sized
from data.sizes import Batch
from errors import UserError

KINDS = ("sorting", "hull", "delaunay", "tsp")
_FEWEST = {"sorting": 1, "hull": 3, "delaunay": 3, "tsp": 3}

# Training is not to wait for its data, so that what it learns from is solved for many
# instances at once; what is held out is made once, by solvers that others rely on.
# Tours of up to so many cities are exact: `held_karp` takes about 10 ms for 128 sets of
# 12 cities, less than a training step, but more than twice as much for each further
# one; `near_optimal` takes 30 ms at 13 to 18 and is hardly longer than the optimum.
EXACT = 12
HELD_OUT_EXACT = 20
_ALL_TRIPLES = 10  # points of which all triangles are tried: 4 ms for 128 sets

_TABLE = 2**22  # numbers in the tables of Held-Karp at a time, for few cities
_BLOCK = 2**14  # numbers worked on at a time, so that they stay in the cache
_ROUNDS = 3  # of `near_optimal`, for each city
_RUINED = 10  # cities that leave a tour in one round, at most
_SAME_LENGTH = 1e-4  # relative: tours of one length, for the rounding of coordinates


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
    _check_size(kind, "the number of inputs", width)
    return (3 * (2 * width - 5) if kind == "delaunay" else width) + 1


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
    _check_size(kind, "size", sizes.min())
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
        "hull": gift_wrapping if fast else _hulls,
        "delaunay": functools.partial(_triangulations, fast=fast),
        "tsp": functools.partial(_tours, exact=EXACT if fast else HELD_OUT_EXACT),
    }
    try:
        found = solve[kind](inputs, sizes)
    except QhullError:
        raise UserError("points on one line have no hull and no triangles") from None
    target = np.zeros((len(sizes), steps(kind, inputs.shape[1])), np.int32)
    for row, answer in zip(target, found, strict=True):
        row[: len(answer)] = answer + 1
    return target


class Batches(sized.Batches):
    """Endless training batches of a kind; see `data.sizes.Batches`.

    Raises:
        UserError: for an unknown kind or a number out of its range.
    """

    def __init__(
        self,
        kind: str,
        *,
        smallest: int,
        largest: int,
        buckets: int,
        rows: int,
        seed: int,
    ):
        _check_size(kind, "config.data.smallest", smallest)
        super().__init__(
            functools.partial(instances, kind),
            smallest=smallest,
            largest=largest,
            buckets=buckets,
            rows=rows,
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
    _check_size(kind, "size", size)
    if count < 1:
        raise UserError(f"count is {count}: must be at least 1")
    rng = sized.held_out_rng(split, KINDS.index(kind), size)
    return instances(kind, rng, np.full(count, size), size, fast=False)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UserError(
            f"config.data.kind is {kind!r}: must be one of {', '.join(KINDS)}"
        )


def _check_size(kind: str, name: str, size: int) -> None:
    _check_kind(kind)
    if size < _FEWEST[kind]:
        raise UserError(
            f"{name} is {size}: must be at least {_FEWEST[kind]} for {kind}"
        )


# Answers. Each solver takes inputs [B, S, F] and sizes [B] and returns, for each
# instance, the indices it points at.


def _orders(numbers: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    padding = np.arange(numbers.shape[1]) >= sizes[:, None]
    order = np.where(padding, np.inf, numbers[..., 0]).argsort(1, kind="stable")
    return [row[:n] for row, n in zip(order, sizes, strict=True)]


def _hulls(points: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    answers = []
    for row, n in zip(points, sizes, strict=True):
        corners = ConvexHull(row[:n]).vertices  # counter-clockwise, in the plane
        answers.append(np.roll(corners, -corners.argmin()))
    return answers


def gift_wrapping(points: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Convex hulls by the march of Jarvis (1973), of all instances at a time.

    From the lowest point on, the next corner is the point to which one has to turn the
    least to the left. No three points may lie on a line, nor two on one place.

    Args:
        points: [B, S, 2]; those beyond an instance's size are padding.
        sizes: [B] points of each instance, at least 3.

    Returns:
        The corners of each, counter-clockwise from the one with the lowest index.
    """
    B, S, _ = points.shape
    rows, padding = np.arange(B), np.arange(S) >= sizes[:, None]
    place = points[..., 0] + 1j * points[..., 1].astype(np.float64)
    first = corner = np.where(padding, np.inf, place.imag).argmin(1)
    corners, heading, open_ = [first], np.ones((B, 1), complex), np.full(B, True)
    while True:
        leg = place - place[rows, corner, None]
        turn = np.angle(leg / heading) % (2 * np.pi)
        corner = np.where(padding | (leg == 0), np.inf, turn).argmin(1)
        open_ &= corner != first
        if not open_.any():
            break
        corners.append(np.where(open_, corner, -1))
        heading = leg[rows, corner, None]
    corners = np.stack(corners, 1)
    count = (corners >= 0).sum(1)
    lowest = np.where(corners < 0, S, corners).argmin(1)[:, None]
    places = (lowest + np.arange(corners.shape[1])) % count[:, None]
    corners = np.take_along_axis(corners, places, 1)
    return [row[:n] for row, n in zip(corners, count, strict=True)]


def empty_circles(points: np.ndarray) -> list[np.ndarray]:
    """The triangles whose circle holds no other point: Delaunay's, of all that are.

    Lifted to z = x^2 + y^2, a point is inside of the circle where it is below the plane
    through the corners. No four points may lie on a circle.

    Args:
        points: [B, n, 2].

    Returns:
        int [triangles, 3] of each instance, each triangle ascending.
    """
    n = points.shape[1]
    x = points - points.mean(1, keepdims=True, dtype=np.float64)
    lifted = np.concatenate([x, np.square(x).sum(-1, keepdims=True)], -1)
    triples = np.array(list(itertools.combinations(range(n), 3)))
    a = lifted[:, triples[:, 0]]  # [B, triples, 3], x, y and z
    (x, y, z), (p, q, r) = (
        np.moveaxis(lifted[:, triples[:, i]] - a, -1, 0) for i in (1, 2)
    )
    up = np.stack([y * r - z * q, z * p - x * r, x * q - y * p], -1)
    up *= np.sign(up[..., 2:])
    above = up @ lifted.mT > (up * a).sum(-1)[..., None]  # [B, triples, n]
    corner = (triples[..., None] == np.arange(n)).any(1)
    return [triples[empty] for empty in (above | corner).all(-1)]


def _triangulations(
    points: np.ndarray, sizes: np.ndarray, *, fast: bool
) -> list[np.ndarray]:
    if fast and sizes.max() <= _ALL_TRIPLES:
        found = [np.array([])] * len(sizes)
        for n in np.unique(sizes):
            (rows,) = np.nonzero(sizes == n)
            for row, part in zip(rows, empty_circles(points[rows, :n]), strict=True):
                found[row] = part
    else:
        found = [
            np.sort(Delaunay(row[:n]).simplices, 1)
            for row, n in zip(points, sizes, strict=True)
        ]
    counts = [len(triangles) for triangles in found]
    row = np.repeat(np.arange(len(found)), counts)
    triangles = np.concatenate(found)  # [triangles, 3]
    corner = points[row[:, None], triangles].astype(np.float64)  # [triangles, 3, 2]
    # The incentre is the mean of the corners, each by the length of the side opposite.
    side = np.linalg.norm(np.roll(corner, -1, 1) - np.roll(corner, 1, 1), axis=-1)
    x, y = ((side[..., None] * corner).sum(1) / side.sum(1)[:, None]).T
    triangles = triangles[np.lexsort((y, x, row))]
    parts = np.split(triangles, np.cumsum(counts)[:-1])
    return [part.ravel() for part in parts]


def _tours(points: np.ndarray, sizes: np.ndarray, exact: int) -> list[np.ndarray]:
    tours = np.empty(points.shape[:2], int)
    long = sizes > exact
    if long.any():
        tours[long] = near_optimal(points[long], sizes[long])
    for n in np.unique(sizes[~long]):
        tours[sizes == n, :n] = held_karp(points[sizes == n, :n])
    return [row[:n] for row, n in zip(tours, sizes, strict=True)]


def held_karp(points: np.ndarray) -> np.ndarray:
    """The shortest tours, by the dynamic programme of Held and Karp (1962).

    It finds the shortest path from the first city through each subset of the others to
    each of its members. A tour is two such paths that meet, so that subsets of half the
    cities will do. In float32: a tour that is longer by 1e-7 may pass for the shortest.

    Takes about 50 ms for a set of 20 cities, 2 ms for 15 and 0.02 ms for 10.

    Args:
        points: [B, n, 2], n from 3 to 20.

    Returns:
        int [B, n]: the cities from 0 on, counter-clockwise.

    Raises:
        ValueError: for another n.
    """
    n = points.shape[1]
    if not 3 <= n <= HELD_OUT_EXACT:
        raise ValueError(f"held_karp: {n} cities: must be 3 to {HELD_OUT_EXACT}")
    size = sum(cities.size for cities, _ in _subsets(n - 1)[0])
    chunk = min(max(_TABLE // size, 8), 128)  # 84 MB for 20 cities
    parts = [_held_karp(points[i : i + chunk]) for i in range(0, len(points), chunk)]
    return _counter_clockwise(points, np.concatenate(parts))


def _held_karp(points: np.ndarray) -> np.ndarray:
    B, n, _ = points.shape
    others = n - 1  # the cities without the first; their numbers begin at 0, too
    x = np.ascontiguousarray(points.transpose(2, 1, 0), np.float32)  # [2, n, B]
    distance = _norm(x[:, :, None] - x[:, None])  # [n, n, B]
    home, distance = distance[0, 1:], distance[1:, 1:].reshape(-1, B)
    layers, (meeting_place, meeting) = _subsets(others)
    # costs[s - 1][p, c]: of the shortest path through subset c of s cities that ends at
    # the p-th of them. [s, C, B], the batch in the cache's lines.
    costs = [home[None]]
    for cities, before in layers[1:]:
        s, C = cities.shape
        costs.append(np.full((s, C, B), np.inf, np.float32))
        for start in range(0, C, max(_BLOCK // B, 1)):
            block = slice(start, start + max(_BLOCK // B, 1))
            for end in range(s):
                best = costs[-1][end, block]
                row = cities[end, block] * others
                for place in range(s - 1):
                    last = cities[place + (place >= end), block]
                    cost = costs[-2][place].take(before[end, block], 0)
                    cost += distance.take(row + last, 0)
                    np.minimum(best, cost, out=best)
    batch = np.arange(B)
    distance = distance.reshape(others, others, B)

    def path(s, place, subset):
        """From the end back to the first city, that not included."""
        found = [layers[s - 1][0][place, subset]]
        while s > 1:
            subset = layers[s - 1][1][place, subset]
            s -= 1
            cities = layers[s - 1][0][:, subset]  # [s, B]
            cost = costs[s - 1][:, subset, batch] + distance[cities, found[-1], batch]
            place = cost.argmin(0)
            found.append(cities[place, batch])
        return found

    half = len(costs)
    both = costs[-1] + costs[others - half][meeting_place, meeting]
    place, subset = np.divmod(both.reshape(-1, B).argmin(0), both.shape[1])
    there = path(half, place, subset)
    back = path(others + 1 - half, meeting_place[place, subset], meeting[place, subset])
    return np.stack([np.full(B, -1), *there[::-1], *back[1:]], 1) + 1


@functools.cache
def _subsets(cities: int) -> tuple[list[tuple], tuple]:
    """The subsets of a number of cities, by size, up to half of them and one.

    Returns:
        layers: of size s = 1, 2, .. two arrays [s, C]: the members of each subset,
            ascending, and the subset without that member, as its place in the layer
            before.
        meeting: of the last layer two such arrays: of the subset that has that member
            and every city that this one has not, the member's place and the subset's.
    """
    subset = np.arange(2**cities)
    size = np.bitwise_count(subset)
    rank = np.zeros(2**cities, int)  # place of a subset in its layer
    layers = []
    for s in range(1, cities // 2 + 2):
        layer = subset[size == s]
        rank[layer] = np.arange(len(layer))
        member = np.nonzero(layer[:, None] >> np.arange(cities) & 1)[1]
        member = np.ascontiguousarray(member.reshape(-1, s).T)
        layers.append((member, rank[layer ^ 1 << member]))
    other = subset[-1] ^ layer | 1 << member
    return layers, (np.bitwise_count(other & (1 << member) - 1), rank[other])


def near_optimal(points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Short tours by ruin and recreate (Schrimpf et al., 2000).

    A tour is built by inserting one city after the other where it costs least. Then
    again and again the cities around a random place leave and are inserted anew, in
    random order, and the tour is kept if it is shorter. The places and orders are the
    same for all instances and always: a tour depends on its instance and on S.

    Over the shortest tours of 512 sets its mean excess is 0.001 % at n = 10, 0.03 % at
    15 and 0.04 % at 18. At n = 50 its mean length is 5.78, and 5.75 after seven times
    the rounds; the best of the paper's approximate solvers has 5.79, A1 6.46.

    Args:
        points: [B, S, 2]; those beyond an instance's size are padding.
        sizes: [B] cities of each instance, at least 3.

    Returns:
        int [B, S]: the cities from 0 on, counter-clockwise, then the padding.
    """
    B, S, _ = points.shape
    rows = np.arange(B)[:, None]
    padding = np.arange(S) >= sizes[:, None]
    # Padding stands where the first city stands, and costs a tour nothing.
    points = np.where(padding[..., None], points[:, :1], points)
    x = np.ascontiguousarray(points.transpose(2, 0, 1), np.float32)  # [2, B, S]
    rng = np.random.default_rng(0)
    order = np.broadcast_to(np.arange(S - 1, 0, -1), (B, S - 1))  # padding first
    tour = _insert(x, np.zeros((B, 2), int), order)
    length = _closed_lengths(x, tour)
    for _ in range(_ROUNDS * S):
        away = _norm(x - rng.random((2, 1, 1), np.float32))
        away[padding] += 2  # its leaving would change nothing
        away[:, 0] = np.inf
        count = rng.integers(2, min(_RUINED, S - 1), endpoint=True)
        ruined = away.argsort(1, kind="stable")[:, :count]
        stays = np.ones((B, S), bool)
        stays[rows, ruined] = False
        rest = tour[stays[rows, tour]].reshape(B, -1)
        trial = _insert(x, rest, rng.permutation(ruined, axis=1))
        trial_length = _closed_lengths(x, trial)
        shorter = trial_length < length
        tour[shorter], length[shorter] = trial[shorter], trial_length[shorter]
    tour = _counter_clockwise(points, tour[:, :-1])
    return tour[rows, (tour >= sizes[:, None]).argsort(1, kind="stable")]


def _insert(x: np.ndarray, tour: np.ndarray, cities: np.ndarray) -> np.ndarray:
    """Inserts cities [B, C] into closed tours [B, ..], first city at both ends."""
    B, S = x.shape[1:]
    x, first = x.reshape(2, -1), S * np.arange(B)[:, None]
    for city in cities.T[..., None]:  # [B, 1]
        corner = x.take(tour + first, 1)
        leg = _norm(corner[..., 1:] - corner[..., :-1])
        reach = _norm(corner - x.take(city + first, 1))
        after = (reach[:, 1:] + reach[:, :-1] - leg).argmin(1)
        places = np.arange(1, tour.size, tour.shape[1]) + after
        tour = np.insert(tour, places, city[:, 0]).reshape(B, -1)
    return tour


def _norm(x: np.ndarray) -> np.ndarray:
    """Lengths of vectors [2, ..]; rounded alike on every machine, unlike `hypot`."""
    return np.sqrt(x[0] * x[0] + x[1] * x[1])


def _closed_lengths(x: np.ndarray, tour: np.ndarray) -> np.ndarray:
    corner = x[:, np.arange(len(tour))[:, None], tour]
    return _norm(corner[..., 1:] - corner[..., :-1]).sum(1)


def _counter_clockwise(points: np.ndarray, tours: np.ndarray) -> np.ndarray:
    """Turns those round that run clockwise; the first city stays the first."""
    corners = np.take_along_axis(points, tours[..., None], 1)
    turned = np.concatenate([tours[:, :1], tours[:, :0:-1]], 1)
    return np.where(signed_area(corners)[:, None] < 0, turned, tours)


def signed_area(polygon: np.ndarray) -> np.ndarray:
    """Signed areas of polygons [..., C, 2]: above 0 where counter-clockwise."""
    x, y = np.moveaxis(np.asarray(polygon, np.float64), -1, 0)
    return (x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1) / 2


def tour_length(points: np.ndarray, tour: np.ndarray) -> float:
    """Length of the closed tour [C] through points [n, 2], in float64."""
    corners = np.asarray(points, np.float64)[tour]
    return float(np.linalg.norm(corners - np.roll(corners, -1, 0), axis=1).sum())


def is_simple(polygon: np.ndarray) -> bool:
    """Whether a polygon neither crosses nor touches itself.

    Exact for coordinates in float32, whose products float64 can hold.

    Args:
        polygon: [C, 2], its corners in order.

    Returns:
        False also for fewer than three corners, and where all lie on one line.
    """
    C = len(polygon)
    if C < 3:
        return False
    start = np.asarray(polygon, np.float64)
    end = np.roll(start, -1, 0)
    edge = end - start
    to = start - start[:, None]  # [C, C, 2], from corner i to corner j
    # The side of edge i's line that corner j lies on: 1 left, -1 right, 0 on it.
    side = np.sign(edge[:, :1] * to[..., 1] - edge[:, 1:] * to[..., 0])
    divides = side * np.roll(side, -1, 1) <= 0
    low, high = np.minimum(start, end), np.maximum(start, end)
    near = (low[:, None] <= high).all(-1)
    meet = divides & divides.T & near & near.T
    # Neighbours meet by rights, unless the second goes back along the first.
    i, following = np.arange(C), np.roll(np.arange(C), -1)
    meet[i, i] = meet[i, following] = meet[following, i] = False
    back = (side[i, np.roll(i, -2)] == 0) & ((edge * edge[following]).sum(1) < 0)
    return not (meet.any() or back.any())


def sequences(tokens: np.ndarray) -> list[np.ndarray]:
    """The indices that pointers [B, T] point at, from 0 on, up to the first 0 or all.

    Returns:
        For each row an int array, maybe empty.
    """
    tokens = np.asarray(tokens)
    ended = np.cumsum(tokens == 0, 1) > 0
    return [row[:n] - 1 for row, n in zip(tokens, (~ended).sum(1), strict=True)]


def score(kind: str, batch: Batch, tokens: np.ndarray) -> dict[str, float]:
    """Scores what a model points at; any tokens will do. Shares are per cent.

    *   sorting: `accuracy`, of the sequences that are right from end to end.
    *   hull: `accuracy`, of those that are the same polygon, whichever corner and
        direction they begin with; `failure`, of those that are no simple polygon of at
        least three different inputs; `area`, the mean share of the hull that the others
        cover.
    *   delaunay: `accuracy`, of those that are the same set of triangles; `coverage`,
        the mean share of the triangles that are found. What is left over after the last
        three is no triangle, and the set not the same.
    *   tsp: `valid`, of those that visit every city once; `accuracy`, of those that are
        valid and at most 1e-4 longer than the label, relatively; `length`, the mean of
        the valid tours; `excess`, the mean of their length over the label's, less 1, in
        per cent; `optimum`, the mean of all labels' lengths, or where they are of a
        search, in a batch with more than 20 cities, `reference`.

    Args:
        kind: one of `KINDS`.
        batch: as in the module's docstring.
        tokens: int [B, T], with any T.

    Returns:
        Finite numbers; those that nothing is left to be measured by are left out:
        `area` where all failed, `length` and `excess` where no tour is valid.

    Raises:
        UserError: for an unknown kind.
    """
    _check_kind(kind)
    cases = list(
        zip(
            (x[:n] for x, n in zip(batch["inputs"], batch["lengths"], strict=True)),
            sequences(tokens),
            sequences(batch["target"]),
            strict=True,
        )
    )
    return _SCORES[kind](cases)


# Of each instance: its inputs [n, F], the indices found and the right ones.
_Cases = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def _percent(values: list) -> float:
    return 100 * float(np.mean(values))


def _distinct(found: np.ndarray, n: int) -> bool:
    """Whether all are indices of n inputs, none twice."""
    inside = ((0 <= found) & (found < n)).all()
    return bool(inside) and len(np.unique(found)) == len(found)


def _score_sorting(cases: _Cases) -> dict[str, float]:
    return {"accuracy": _percent([np.array_equal(f, r) for _, f, r in cases])}


def _score_hulls(cases: _Cases) -> dict[str, float]:
    same, failed, covered = [], [], []
    for points, found, right in cases:
        simple = _distinct(found, len(points)) and is_simple(points[found])
        # A simple polygon on a hull's corners is the hull: they are in convex position.
        same.append(simple and set(found.tolist()) == set(right.tolist()))
        failed.append(not simple)
        if simple:
            covered.append(abs(signed_area(points[found]) / signed_area(points[right])))
    scores = {"accuracy": _percent(same), "failure": _percent(failed)}
    return scores | ({"area": _percent(covered)} if covered else {})


def _triples(found: np.ndarray) -> set[tuple[int, ...]]:
    whole = found[: len(found) // 3 * 3].reshape(-1, 3)
    return set(map(tuple, np.sort(whole, 1).tolist()))


def _score_triangulations(cases: _Cases) -> dict[str, float]:
    same, covered = [], []
    for _, found, right in cases:
        triangles, wanted = _triples(found), _triples(right)
        same.append(triangles == wanted and len(found) % 3 == 0)
        covered.append(len(triangles & wanted) / len(wanted))
    return {"accuracy": _percent(same), "coverage": _percent(covered)}


def _score_tours(cases: _Cases) -> dict[str, float]:
    shortest = np.array([tour_length(points, right) for points, _, right in cases])
    valid = np.array([len(f) == len(p) and _distinct(f, len(p)) for p, f, _ in cases])
    length = np.array(
        [tour_length(p, f) for (p, f, _), v in zip(cases, valid, strict=True) if v]
    )
    excess = length / shortest[valid] - 1
    exact = max(len(points) for points, *_ in cases) <= HELD_OUT_EXACT
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
