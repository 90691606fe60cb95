"""Travelling salesman tours in the plane: exact and near-optimal solvers.

Axes: B instances; S cities, padded; n cities of an instance; C cities of a tour, or
subsets of cities in Held-Karp.
"""

import functools

import numpy as np

from tasks.pointing.geometry import counter_clockwise

MAX_EXACT = 20  # maximum number of cities of `held_karp`
_TABLE = 2**22  # maximum size of the tables of Held-Karp, for few cities
_BLOCK = 2**14  # size of a block of work, which fits the processor's cache
_ROUNDS = 3  # rounds of `near_optimal` per city
_MAX_RUINED = 10  # maximum number of cities removed in a round


def shortest_tours(
    points: np.ndarray, sizes: np.ndarray, max_exact: int
) -> list[np.ndarray]:
    """Tours by `held_karp` for few cities and by `near_optimal` for more.

    Args:
        points: [B, S, 2], padded.
        sizes: [B] number of cities of each instance, at least 3.
        max_exact: maximum number of cities for `held_karp`, at most `MAX_EXACT`.

    Returns:
        The cities of each tour, counter-clockwise from city 0.
    """
    tours = np.empty(points.shape[:2], int)
    long = sizes > max_exact
    if long.any():
        tours[long] = near_optimal(points[long], sizes[long])
    for n in np.unique(sizes[~long]):
        tours[sizes == n, :n] = held_karp(points[sizes == n, :n])
    return [row[:n] for row, n in zip(tours, sizes, strict=True)]


def held_karp(points: np.ndarray) -> np.ndarray:
    """Shortest tours, by the dynamic program of Held and Karp (1962).

    Computes the shortest path from the first city through each subset of the others to
    each of its members. A tour consists of two such paths that meet, so subsets of up
    to half of the cities suffice. Rounding to float32 can make the result longer than
    the shortest tour, by a relative 1e-7.

    Takes about 50 ms for an instance of 20 cities, 2 ms for 15 and 0.02 ms for 10;
    points are [B, n, 2], n from 3 to 20.

    Returns:
        int [B, n] cities, counter-clockwise from city 0.
    """
    size = sum(cities.size for cities, _ in _subsets(points.shape[1] - 1)[0])
    chunk = min(max(_TABLE // size, 8), 128)  # 84 MB for 20 cities
    parts = [_held_karp(points[i : i + chunk]) for i in range(0, len(points), chunk)]
    return counter_clockwise(points, np.concatenate(parts))


def _held_karp(points: np.ndarray) -> np.ndarray:
    B, n, _ = points.shape
    others = n - 1  # all cities but the first, numbered from 0
    x = np.ascontiguousarray(points.transpose(2, 1, 0), np.float32)  # [2, n, B]
    distance = _norm(x[:, :, None] - x[:, None])  # [n, n, B]
    home, distance = distance[0, 1:], distance[1:, 1:].reshape(-1, B)
    layers, (meeting_position, meeting) = _subsets(others)
    # costs[s - 1][p, c]: length of the shortest path through subset c of s cities that
    # ends at the p-th of them. [s, C, B]: the batch is contiguous in memory.
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
        """A path from its end back to the first city, which is not included."""
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
    """Subsets of cities by size s = 1, 2, ..., cities // 2 + 1.

    Returns:
        layers: for each s, two arrays [s, C]: the members of each subset, ascending,
            and the index in the previous layer of the subset without that member.
        meeting: two arrays [s, C] for the last layer. A member of a subset and all
            cities outside the subset form a set: the position of the member in this
            set, and the index of this set in its layer.
    """
    subset = np.arange(2**cities)
    size = np.bitwise_count(subset)
    rank = np.zeros(2**cities, int)  # index of a subset in its layer
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
    """Near-optimal tours by ruin and recreate (Schrimpf et al., 2000).

    Builds a tour by cheapest insertion. Each round removes the cities around a random
    point, reinserts them in random order, and keeps the new tour if it is shorter. The
    random numbers are the same for all instances and calls: a tour depends only on its
    instance and S.

    The mean excess over the shortest tours of 512 instances is 0.001 % at n = 10,
    0.03 % at 15 and 0.04 % at 18. At n = 50 the mean length is 5.78, or 5.75 with seven
    times the rounds; the paper's best approximate solver has 5.79 and its A1 has 6.46.

    Args:
        points: [B, S, 2], padded.
        sizes: [B] number of cities of each instance, at least 3.

    Returns:
        int [B, S] cities, counter-clockwise from city 0, followed by the padding.
    """
    B, S, _ = points.shape
    rows = np.arange(B)[:, None]
    padding = np.arange(S) >= sizes[:, None]
    # Padding takes the first city's position and adds no length to a tour.
    points = np.where(padding[..., None], points[:, :1], points)
    x = np.ascontiguousarray(points.transpose(2, 0, 1), np.float32)  # [2, B, S]
    rng = np.random.default_rng(0)
    order = np.broadcast_to(np.arange(S - 1, 0, -1), (B, S - 1))  # padding first
    tour = _insert(x, np.zeros((B, 2), int), order)
    length = _closed_lengths(x, tour)
    for _ in range(_ROUNDS * S):
        distance = _norm(x - rng.random((2, 1, 1), np.float32))
        distance[padding] += 2  # remove padding last: it changes no length
        distance[:, 0] = np.inf
        count = rng.integers(2, min(_MAX_RUINED, S - 1), endpoint=True)
        ruined = distance.argsort(1, kind="stable")[:, :count]
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
    """Inserts cities [B, C] into tours [B, ...] with the first city at both ends."""
    B, S = x.shape[1:]
    x, first = x.reshape(2, -1), S * np.arange(B)[:, None]
    for city in cities.T[..., None]:  # [B, 1]
        corner = x.take(tour + first, 1)
        leg = _norm(corner[..., 1:] - corner[..., :-1])
        reach = _norm(corner - x.take(city + first, 1))
        after = (reach[:, 1:] + reach[:, :-1] - leg).argmin(1)
        indices = np.arange(1, tour.size, tour.shape[1]) + after
        tour = np.insert(tour, indices, city[:, 0]).reshape(B, -1)
    return tour


def _norm(x: np.ndarray) -> np.ndarray:
    """Lengths of vectors [2, ...]; equal on every machine, unlike `np.hypot`."""
    return np.sqrt(x[0] * x[0] + x[1] * x[1])


def _closed_lengths(x: np.ndarray, tour: np.ndarray) -> np.ndarray:
    """Lengths [B] of tours [B, C + 1] with the first city at both ends."""
    corner = x[:, np.arange(len(tour))[:, None], tour]
    return _norm(corner[..., 1:] - corner[..., :-1]).sum(1)


def tour_length(points: np.ndarray, tour: np.ndarray) -> float:
    """Length of the closed tour [C] through points [n, 2], in float64."""
    corners = np.asarray(points, np.float64)[tour]
    return float(np.linalg.norm(corners - np.roll(corners, -1, 0), axis=1).sum())
