"""Plane geometry: convex hulls, Delaunay triangulations, areas, simple polygons.

Axes: B instances; S points, padded; n points of an instance; C corners of a polygon.
"""

import itertools

import numpy as np
from scipy.spatial import ConvexHull, Delaunay

_ALL_TRIPLES = 10  # maximum n for trying all triangles: 4 ms for 128 instances


def convex_hulls(points: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Convex hulls: the corners counter-clockwise from the one with the lowest index.

    Args:
        points: [B, S, 2], padded.
        sizes: [B] number of points of each instance, at least 3.

    Raises:
        QhullError: if all points of an instance are on a line.
    """
    hulls = []
    for row, n in zip(points, sizes, strict=True):
        corners = ConvexHull(row[:n]).vertices  # counter-clockwise in two dimensions
        hulls.append(np.roll(corners, -corners.argmin()))
    return hulls


def gift_wrapping(points: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Convex hulls by the march of Jarvis (1973), vectorised over instances.

    Starts from the lowest point; the next corner is the point with the smallest left
    turn. No two points may be equal and no three points may be on a line.

    Args:
        points: [B, S, 2], padded.
        sizes: [B] number of points of each instance, at least 3.

    Returns:
        The corners of each hull, counter-clockwise from the one with the lowest index.
    """
    B, S, _ = points.shape
    rows, padding = np.arange(B), np.arange(S) >= sizes[:, None]
    position = points[..., 0] + 1j * points[..., 1].astype(np.float64)
    first = corner = np.where(padding, np.inf, position.imag).argmin(1)
    corners, heading, open_ = [first], np.ones((B, 1), complex), np.full(B, True)
    while True:
        leg = position - position[rows, corner, None]
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
    order = (lowest + np.arange(corners.shape[1])) % count[:, None]
    corners = np.take_along_axis(corners, order, 1)
    return [row[:n] for row, n in zip(corners, count, strict=True)]


def empty_circles(points: np.ndarray) -> list[np.ndarray]:
    """Delaunay triangulations: the triangles whose circumcircle has no point inside.

    Tries all triangles. A point is inside the circumcircle if, with all points lifted
    to z = x^2 + y^2, it is below the plane through the corners. No four points may be
    on a circle. Takes points [B, n, 2].

    Returns:
        int [triangles, 3] for each instance, the indices of a triangle ascending.
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


def triangulations(
    points: np.ndarray, sizes: np.ndarray, *, fast: bool
) -> list[np.ndarray]:
    """Delaunay triangulations, with triangles in the order of their incentres.

    Args:
        points: [B, S, 2], padded.
        sizes: [B] number of points of each instance, at least 3.
        fast: use `empty_circles` if no instance has more than 10 points; scipy
            otherwise.

    Returns:
        int [3 * triangles] for each instance: the corners of its triangles, three at a
        time, with the indices of each triangle ascending.

    Raises:
        QhullError: from scipy, if all points of an instance are on a line.
    """
    if fast and sizes.max() <= _ALL_TRIPLES:
        triangles_of = [np.array([])] * len(sizes)
        for n in np.unique(sizes):
            (rows,) = np.nonzero(sizes == n)
            for row, part in zip(rows, empty_circles(points[rows, :n]), strict=True):
                triangles_of[row] = part
    else:
        triangles_of = [
            np.sort(Delaunay(row[:n]).simplices, 1)
            for row, n in zip(points, sizes, strict=True)
        ]
    counts = [len(triangles) for triangles in triangles_of]
    row = np.repeat(np.arange(len(triangles_of)), counts)
    triangles = np.concatenate(triangles_of)  # [triangles, 3]
    corner = points[row[:, None], triangles].astype(np.float64)  # [triangles, 3, 2]
    # The incentre is the mean of the corners, weighted by the opposite sides' lengths.
    side = np.linalg.norm(np.roll(corner, -1, 1) - np.roll(corner, 1, 1), axis=-1)
    x, y = ((side[..., None] * corner).sum(1) / side.sum(1)[:, None]).T
    triangles = triangles[np.lexsort((y, x, row))]
    parts = np.split(triangles, np.cumsum(counts)[:-1])
    return [part.ravel() for part in parts]


def signed_area(polygon: np.ndarray) -> np.ndarray:
    """Signed areas of polygons [..., C, 2]; positive if counter-clockwise."""
    x, y = np.moveaxis(np.asarray(polygon, np.float64), -1, 0)
    return (x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1) / 2


def counter_clockwise(points: np.ndarray, tours: np.ndarray) -> np.ndarray:
    """Reverses clockwise tours [B, C] of points [B, S, 2]; the first point stays."""
    corners = np.take_along_axis(points, tours[..., None], 1)
    reverse = np.concatenate([tours[:, :1], tours[:, :0:-1]], 1)
    return np.where(signed_area(corners)[:, None] < 0, reverse, tours)


def is_simple(polygon: np.ndarray) -> bool:
    """Returns whether a polygon neither crosses nor touches itself.

    False also for fewer than three corners [C, 2] or if all are on a line. Exact for
    coordinates in float32, since float64 represents their products.
    """
    C = len(polygon)
    if C < 3:
        return False
    start = np.asarray(polygon, np.float64)
    end = np.roll(start, -1, 0)
    edge = end - start
    offset = start - start[:, None]  # [C, C, 2], from corner i to corner j
    # The side of edge i's line that corner j is on: 1 left, -1 right, 0 on the line.
    side = np.sign(edge[:, :1] * offset[..., 1] - edge[:, 1:] * offset[..., 0])
    divides = side * np.roll(side, -1, 1) <= 0
    low, high = np.minimum(start, end), np.maximum(start, end)
    near = (low[:, None] <= high).all(-1)
    meet = divides & divides.T & near & near.T
    # Neighbouring edges may share their corner, but not go back along each other.
    i, following = np.arange(C), np.roll(np.arange(C), -1)
    meet[i, i] = meet[i, following] = meet[following, i] = False
    back = (side[i, np.roll(i, -2)] == 0) & ((edge * edge[following]).sum(1) < 0)
    return not (meet.any() or back.any())
