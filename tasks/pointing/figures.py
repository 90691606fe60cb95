"""True and predicted tours, polygons and triangles, drawn side by side.

Axes: P points; T steps; A candidate angles.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import canvas
from figures.drawings import drawing

_BAR = 1.3  # width of the colour scale with its labels, in inches
_MAX_NUMBERS = 100  # maximum number of points that are numbered

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@drawing
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
    """Draws the true polygons on the left and the predicted ones on the right.

    Predicted edges that are not in the truth have another colour.

    Args:
        points: [P, 2], scaled into the unit square if they lie outside; labelled by
            their numbers, from 1, unless there are more than 100.
        truth: tours, polygons or triangles, as indices of points from 0.
        predicted: predicted indices, in the same form.
        title: title of the figure.
        path: PNG file to write; its folder is created.
        weights: [T, P + 1] in [0, 1], weights of the pointer at each step, column 0 for
            the end symbol; drawn as a heat map to the right of the panels or below.
        weight_rows: T labels of the steps; 1, ..., T by default.

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
        x, y = 0.45 + canvas.text_width(rows), head  # top left corner of the heat map
        map_width = min(canvas.CELL * (count + 1), width - x - _BAR)
        map_height = min(canvas.CELL * len(rows), 2 * side)
        if map_width > side:  # below the panels
            y = height + 0.6
            height = y + map_height + foot
        else:
            x += width - 0.2
            width, height = x + map_width + _BAR, max(height, y + map_height + foot)
        title += canvas.blocks_note(
            *canvas.blocks(weights.shape, map_width, map_height)
        )
    figure = canvas.figure(max(width, canvas.title_width(title)), height, title)
    true_edges, label_positions = _edges(truth), np.empty((0, 2))
    if count <= _MAX_NUMBERS:
        edges = true_edges | _edges(predicted)
        label_positions = _place_labels(points, edges, distance=0.15 / side)
    panels = {"truth": truth, "predicted": predicted}
    for i, (name, polygons) in enumerate(panels.items()):
        panel_x = left + i * (side + between)
        axes = canvas.axes(figure, x=panel_x, y=head, width=side, height=side)
        edges = _edges(polygons)
        note = " (orange: not in the truth)" if edges - true_edges else ""
        axes.set_title(name + note, fontsize=10, color=canvas.INK, pad=5)
        _draw_polygons(axes, points, polygons, edges=edges, true_edges=true_edges)
        for number, position in enumerate(label_positions, 1):
            axes.text(
                *position,
                str(number),
                ha="center",
                va="center",
                fontsize=canvas.FONT,
                color=canvas.INK,
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
    if weights is not None:
        axes = canvas.axes(figure, x=x, y=y, width=map_width, height=map_height)
        columns = ["end", *map(str, range(1, count + 1))]
        image = canvas.heatmap(
            axes, weights, rows=rows, columns=columns, scale=1.0, rotation=0
        )
        axes.set_title("weights", fontsize=10, color=canvas.INK, pad=5)
        axes.set_ylabel("step", fontsize=10, color=canvas.GREY, labelpad=6)
        bar = {"x": x + map_width + 0.15, "y": y, "height": min(map_height, 3.0)}
        canvas.colour_bar(figure, image, **bar, uniform=1 / (count + 1))
    return canvas.save(figure, path)


def _edges(polygons: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Edges of polygons as pairs of indices, the lower index first."""
    paths = ([*map(int, polygon), *map(int, polygon[:1])] for polygon in polygons)
    pairs = (tuple(sorted(pair)) for path in paths for pair in itertools.pairwise(path))
    return {(a, b) for a, b in pairs if a != b}


def _draw_polygons(axes: "Axes", points, polygons, *, edges, true_edges) -> None:
    """Draws points [P, 2], the edges between them, and the areas of polygons."""
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


def _place_labels(
    points: np.ndarray, edges: set[tuple[int, int]], distance: float
) -> np.ndarray:
    """Positions [P, 2] of the points' numbers with the most space around them.

    Each is the furthest, of 24 candidates at a distance from its point, from all
    points, all edges (pairs of indices of points) and the previous numbers.
    """
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    # Numbers are wider than high.
    circle = distance * np.stack([1.2 * np.cos(angles), np.sin(angles)], -1)
    along = np.linspace(0, 1, 65)[:, None]
    taken = [points, *(along * points[a] + (1 - along) * points[b] for a, b in edges)]
    positions = []
    for point in points:
        candidates = point + circle  # [A, 2]
        gaps = np.linalg.norm(candidates[:, None] - np.concatenate(taken), axis=-1)
        positions.append(candidates[gaps.min(1).argmax()])
        taken.append(positions[-1][None])
    return np.array(positions).reshape(-1, 2)
