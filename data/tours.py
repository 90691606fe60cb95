"""Tours through cities of the plane: exact and near-optimal solvers.

Axes: B instances; S cities of the widest; n cities of one; C cities of a tour, or
subsets of cities where a comment says so.
"""

import functools

import numpy as np

from data.geometry import counter_clockwise

MAX_EXACT = 20  # cities of `held_karp`
_TABLE = 2**22  # numbers in the tables of Held-Karp at a time, for few cities
_BLOCK = 2**14  # numbers worked on at a time, so that they stay in the cache
_ROUNDS = 3  # of `near_optimal`, for each city
_RUINED = 10  # cities that leave a tour in one round, at most


def shortest_tours(
    points: np.ndarray, sizes: np.ndarray, exact: int
) -> list[np.ndarray]:
    """Shortest tours of few cities by `held_karp`, of more by `near_optimal`.

    Args:
        points: [B, S, 2]; those beyond an instance's size are padding.
        sizes: [B] cities of each instance, at least 3.
        exact: the most cities that `held_karp` solves, at most `MAX_EXACT`.

    Returns:
        The cities of each from 0 on, counter-clockwise.
    """
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
    if not 3 <= n <= MAX_EXACT:
        raise ValueError(f"held_karp: {n} cities: must be 3 to {MAX_EXACT}")
    size = sum(cities.size for cities, _ in _subsets(n - 1)[0])
    chunk = min(max(_TABLE // size, 8), 128)  # 84 MB for 20 cities
    parts = [_held_karp(points[i : i + chunk]) for i in range(0, len(points), chunk)]
    return counter_clockwise(points, np.concatenate(parts))


def _held_karp(points: np.ndarray) -> np.ndarray:
    B, n, _ = points.shape
    others = n - 1  # the cities without the first; their numbers begin at 0, too
    x = np.ascontiguousarray(points.transpose(2, 1, 0), np.float32)  # [2, n, B]
    distance = _norm(x[:, :, None] - x[:, None])  # [n, n, B]
    home, distance = distance[0, 1:], distance[1:, 1:].reshape(-1, B)
    layers, (meeting_position, meeting) = _subsets(others)
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
                for position in range(s - 1):
                    last = cities[position + (position >= end), block]
                    cost = costs[-2][position].take(before[end, block], 0)
                    cost += distance.take(row + last, 0)
                    np.minimum(best, cost, out=best)
    batch = np.arange(B)
    distance = distance.reshape(others, others, B)

    def path(s, position, subset):
        """From the end back to the first city, that not included."""
        route = [layers[s - 1][0][position, subset]]
        while s > 1:
            subset = layers[s - 1][1][position, subset]
            s -= 1
            cities = layers[s - 1][0][:, subset]  # [s, B]
            cost = costs[s - 1][:, subset, batch] + distance[cities, route[-1], batch]
            position = cost.argmin(0)
            route.append(cities[position, batch])
        return route

    half = len(costs)
    both = costs[-1] + costs[others - half][meeting_position, meeting]
    position, subset = np.divmod(both.reshape(-1, B).argmin(0), both.shape[1])
    outward = path(half, position, subset)
    back = path(
        others + 1 - half, meeting_position[position, subset], meeting[position, subset]
    )
    return np.stack([np.full(B, -1), *outward[::-1], *back[1:]], 1) + 1


@functools.cache
def _subsets(cities: int) -> tuple[list[tuple], tuple]:
    """The subsets of a number of cities, by size, up to half of them and one.

    Returns:
        layers: of size s = 1, 2, .. two arrays [s, C]: the members of each subset,
            ascending, and the subset without that member, as its position in the layer
            before.
        meeting: of the last layer two such arrays: of the subset that has that member
            and every city that this one has not: the positions of member and subset.
    """
    subset = np.arange(2**cities)
    size = np.bitwise_count(subset)
    rank = np.zeros(2**cities, int)  # position of a subset in its layer
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
    again and again the cities around a random point leave and are inserted anew, in
    random order, and the tour is kept if it is shorter. The points and orders are the
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
    tour = counter_clockwise(points, tour[:, :-1])
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


def tour_length(points: np.ndarray, tour: np.ndarray) -> float:
    """Length of the closed tour [C] through points [n, 2], in float64."""
    corners = np.asarray(points, np.float64)[tour]
    return float(np.linalg.norm(corners - np.roll(corners, -1, 0), axis=1).sum())
