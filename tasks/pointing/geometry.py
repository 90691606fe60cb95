"""Plane geometry: convex hulls, Delaunay triangulations, areas, simple polygons.

Axes: B instances; S points, padded; n points of an instance; C corners of a polygon.
"""

import numpy as np
from scipy.spatial import ConvexHull, Delaunay


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


def triangulations(points: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Delaunay triangulations, with triangles in the order of their incentres.

    Args:
        points: [B, S, 2], padded.
        sizes: [B] number of points of each instance, at least 3.

    Returns:
        int [3 * triangles] for each instance: the corners of its triangles, three at a
        time, with the indices of each triangle ascending.

    Raises:
        QhullError: if all points of an instance are on a line.
    """
    indices = []
    for row, n in zip(points, sizes, strict=True):
        triangles = np.sort(Delaunay(row[:n]).simplices, 1)
        corner = row[triangles].astype(np.float64)  # [triangles, 3, 2]
        # The incentre is the mean of the corners, weighted by the opposite sides.
        side = np.linalg.norm(np.roll(corner, -1, 1) - np.roll(corner, 1, 1), axis=-1)
        x, y = ((side[..., None] * corner).sum(1) / side.sum(1)[:, None]).T
        indices.append(triangles[np.lexsort((y, x))].ravel())
    return indices


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
