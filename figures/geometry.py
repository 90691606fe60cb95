"""Points in the plane: tours, polygons and triangles, true beside predicted."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pointing(
    points: np.ndarray,
    truth: Sequence[Sequence[int]],
    predicted: Sequence[Sequence[int]],
    title: str,
    path: Path,
    *,
    weights: np.ndarray | None = None,
    weight_rows: Sequence[str] | None = None,
) -> Path:
    """Draw the true polygons over points and, beside them, the predicted ones.

    Predicted edges that are not in the truth have another colour.

    Args:
        points: [n, 2], scaled into the unit square if they lie outside; labelled by
            their numbers, from 1.
        truth: indices of points, from 0: one tour or polygon, or many triangles.
        predicted: predicted indices, in the same form.
        title: one line above the figure.
        path: the PNG to write; its folder is made.
        weights: [T, n + 1] in [0, 1], the pointer's weights in each step, column 0 the
            end symbol; drawn as a heat map beside or below the panels.
        weight_rows: T labels of the steps; 1, ..., T by default.

    Returns:
        `path`.

    Raises:
        ValueError: if the weights do not fit the points or their labels.
    """
    from matplotlib.patheffects import withStroke

    points = np.asarray(points, np.float32)
    count, corner = len(points), points.min(0, initial=0)
    points = (points - corner) / (points.max(0, initial=1) - corner).max()
    side = float(np.clip(2.4 + 0.1 * count, 3.2, 4.8))
    left, between, head, foot = 0.2, 0.25, 0.8, 0.2
    width, height = left + 2 * side + between + 0.2, head + side + foot
    if weights is not None:
        weights = np.asarray(weights, np.float32)
        rows = weight_rows or [str(step + 1) for step in range(len(weights))]
        if weights.shape != (len(rows), count + 1):
            raise ValueError(
                f"weights {weights.shape} must be [{len(rows)} rows, "
                f"{count} points + 1]"
            )
        x, y = 0.45 + canvas.text_width(rows), head  # of the map
        across = min(canvas.CELL * (count + 1), width - x - 0.85)
        down = min(canvas.CELL * len(rows), 2 * side)
        if across > side:
            y = height + 0.6
            width, height = width, y + down + foot
        else:
            x += width - 0.2
            width, height = x + across + 0.85, max(height, y + down + foot)
    figure = canvas.figure(max(width, canvas.title_width(title)), height, title)
    true_edges = _edges(truth)
    spots = _label_spots(points, true_edges | _edges(predicted), 0.15 / side)
    panels = {"truth": truth, "predicted": predicted}
    for i, (name, polygons) in enumerate(panels.items()):
        axes = canvas.axes(figure, left + i * (side + between), head, side, side)
        edges = _edges(polygons)
        note = " (orange: not in the truth)" if edges - true_edges else ""
        axes.set_title(name + note, fontsize=10, color=canvas.INK, pad=5)
        _draw_polygons(axes, points, polygons, edges, true_edges)
        for number, spot in enumerate(spots, 1):
            axes.text(
                *spot,
                str(number),
                ha="center",
                va="center",
                fontsize=canvas.FONT,
                color=canvas.INK,
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
    if weights is not None:
        axes = canvas.axes(figure, x, y, across, down)
        columns = ["end", *map(str, range(1, count + 1))]
        image = canvas.heatmap(axes, weights, rows, columns, 1.0, rotation=0)
        axes.set_title("weights", fontsize=10, color=canvas.INK, pad=5)
        axes.set_ylabel("step", fontsize=10, color=canvas.GREY, labelpad=6)
        canvas.colour_bar(figure, image, x + across + 0.15, y, min(down, 3.0))
    return canvas.save(figure, path)


def _edges(polygons: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Edges of polygons as pairs of indices, the lower one first."""
    paths = ([*map(int, polygon), *map(int, polygon[:1])] for polygon in polygons)
    pairs = (tuple(sorted(pair)) for path in paths for pair in itertools.pairwise(path))
    return {(a, b) for a, b in pairs if a != b}


def _draw_polygons(
    axes: "Axes",
    points: np.ndarray,
    polygons: Sequence[Sequence[int]],
    edges: set[tuple[int, int]],
    true_edges: set[tuple[int, int]],
) -> None:
    """Draw points [n, 2], the edges between them, and the insides of polygons."""
    from matplotlib.collections import LineCollection, PolyCollection

    blue = canvas.LINE_COLOURS[0]
    areas = [points[list(polygon)] for polygon in polygons if len(polygon) > 2]
    axes.add_collection(PolyCollection(areas, facecolors=blue, alpha=0.1))
    for colour, group in (blue, edges & true_edges), (canvas.MARK, edges - true_edges):
        axes.add_collection(
            LineCollection(
                [points[list(edge)] for edge in sorted(group)],
                colors=colour,
                linewidths=1.6,
                capstyle="round",
            )
        )
    axes.scatter(*points.T, s=20, color=canvas.INK, linewidths=0, zorder=3)
    axes.set(xlim=(-0.08, 1.08), ylim=(-0.08, 1.08), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color(canvas.FRAME)


def _label_spots(
    points: np.ndarray, edges: set[tuple[int, int]], distance: float
) -> np.ndarray:
    """Positions for the points' numbers with the most room around them.

    Args:
        points: [n, 2].
        edges: pairs of points that are joined.
        distance: from a point to its number.

    Returns:
        [n, 2]: for each point, the one of 24 positions around it that is furthest from
        the other points, all edges and the numbers so far.
    """
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    # Numbers are wider than high.
    circle = distance * np.stack([1.2 * np.cos(angles), np.sin(angles)], -1)
    along = np.linspace(0, 1, 65)[:, None]
    taken = [points, *(along * points[a] + (1 - along) * points[b] for a, b in edges)]
    spots = []
    for point in points:
        candidates = point + circle  # [angles, 2]
        gaps = np.linalg.norm(candidates[:, None] - np.concatenate(taken), axis=-1)
        spots.append(candidates[gaps.min(1).argmax()])
        taken.append(spots[-1][None])
    return np.array(spots).reshape(-1, 2)
