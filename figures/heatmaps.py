"""Heat maps of attention weights, one per head.

Axes: H heads; Q queries; K keys.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from figures import canvas


def attention_heatmaps(
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    path: Path,
    *,
    panels: Sequence[str] | None = None,
    row_title: str = "query",
    column_title: str = "key",
    marks: np.ndarray | None = None,
) -> Path:
    """Draws attention weights as one heat map per head, on one colour scale.

    Args:
        weights: [H, Q, K] in [0, 1].
        rows: Q labels of the queries.
        columns: K labels of the keys.
        title: title of the figure, one line.
        path: PNG file to write; its folder is created.
        panels: H titles of the maps; "head 1", "head 2", ... by default.
        row_title: title of the query axis.
        column_title: title of the key axis.
        marks: [H, Q] positions to draw over the maps as dots on a line, in units of
            keys, with 0 at the centre of the first cell; NaN leaves a gap.

    Returns:
        `path`.

    Raises:
        ValueError: if the labels or `marks` do not fit `weights`.
    """
    weights = np.asarray(weights, np.float32)
    if weights.ndim != 3 or weights.shape[1:] != (len(rows), len(columns)):
        raise ValueError(
            f"weights must have shape (H, {len(rows)} rows, {len(columns)} columns), "
            f"got {weights.shape}"
        )
    if marks is not None and np.shape(marks) != weights.shape[:2]:
        shape = np.shape(marks)
        raise ValueError(f"marks must have shape {weights.shape[:2]}, got {shape}")
    heads, queries, keys = weights.shape
    panels = panels or [f"head {head + 1}" for head in range(heads)]
    across = _panels_across(heads, queries, keys)
    down = -(-heads // across)
    # In inches: cells are squares and labels never overlap.
    width, height = keys * canvas.CELL, queries * canvas.CELL
    left = 0.45 + canvas.text_width(rows)
    top, between = 0.08 + canvas.text_width(columns), 0.25
    head_room, foot, bar = 0.45, 0.3, 0.85
    pitch = top + 0.3 + height + 0.2
    total_width = left + across * width + (across - 1) * between + bar
    total_height = head_room + down * pitch - 0.2 + foot
    total_width = max(total_width, canvas.title_width(title))

    figure = canvas.figure(total_width, total_height, title)
    scale = max(float(weights.max(initial=0.0)), 1e-6)
    image = None
    for head in range(heads):
        row, column = divmod(head, across)
        x = left + column * (width + between)
        y = head_room + row * pitch + top + 0.3
        axes = canvas.axes(figure, x=x, y=y, width=width, height=height)
        row_labels = rows if column == 0 else [""] * queries
        image = canvas.heatmap(
            axes, weights[head], rows=row_labels, columns=columns, scale=scale
        )
        axes.set_title(panels[head], fontsize=10, color=canvas.INK, pad=5)
        if marks is not None:
            axes.autoscale(False)  # cuts off marks beyond the keys
            axes.plot(
                marks[head],
                range(queries),
                ".-",
                color=canvas.MARK,
                lw=1.0,
                markersize=5,
            )
        if column == 0:
            axes.set_ylabel(row_title, fontsize=10, color=canvas.GREY, labelpad=6)
        axes.set_xlabel(column_title, fontsize=10, color=canvas.GREY, labelpad=4)
    x = left + across * width + (across - 1) * between + 0.15
    y = head_room + top + 0.3
    canvas.colour_bar(figure, image, x=x, y=y, height=min(height, 3.0))
    return canvas.save(figure, path)


def pointers(
    weights: np.ndarray,
    rows: Sequence[str],
    inputs: Sequence[str],
    title: str,
    path: Path,
) -> Path:
    """Draws the weights of a pointer over the inputs and the end symbol.

    Args:
        weights: [Q, K + 1], column 0 for the end symbol.
        rows: Q labels of the steps, such as the selected inputs.
        inputs: K labels of the inputs.
        title: title of the figure, one line.
        path: PNG file to write; its folder is created.

    Returns:
        `path`.
    """
    return attention_heatmaps(
        weights[None],
        rows=rows,
        columns=["end", *inputs],
        title=title,
        path=path,
        panels=["weights"],
        row_title="output",
        column_title="input",
    )


def _panels_across(heads: int, queries: int, keys: int) -> int:
    """Number of panels per row that brings the figure closest to 4:3."""

    def cost(across: int) -> float:
        width = across * (keys * canvas.CELL + 0.25) + 2
        height = -(-heads // across) * (queries * canvas.CELL + 1.2) + 0.6
        empty = across * -(-heads // across) - heads
        return abs(np.log(width / height / (4 / 3))) + 0.3 * empty

    return min(range(1, heads + 1), key=cost)
