"""Heat maps of attention weights, one per head.

Axes: H heads; Q queries; K keys.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from figures import canvas, fonts
from figures.drawings import drawing

# In inches: space above the maps, also if the title is wrapped; of a map's name; below
# a map; below the maps; between maps; of the colour scale.
_HEAD, _HEAD_MAX, _NAME, _GAP = 0.45, 0.9, 0.3, 0.2
_FOOT, _BETWEEN, _BAR = 0.3, 0.25, 1.3
_PAGE = 12.0  # side of a figure in inches; larger ones are illegible on a slide
_MIN_MAP = 1.0  # minimum width and height of a map whose cells are smaller than CELL


@drawing
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
    uniform: float | None = None,
    note: str = "",
) -> Path:
    """Draws attention weights as one heat map per head, on one colour scale.

    Large maps are summarised, which the title states: cells show the maxima of blocks
    of weights, and heads are averaged if there are too many for one figure.

    Args:
        weights: [H, Q, K] in [0, 1].
        rows: Q labels of the queries.
        columns: K labels of the keys.
        title: title of the figure.
        path: PNG file to write; its folder is created.
        panels: H titles of the maps; "head 1", "head 2", ... by default.
        row_title: title of the query axis.
        column_title: title of the key axis.
        marks: [H, Q] positions to draw over the maps as dots on a line, in units of
            keys, with 0 at the centre of the first cell; NaN leaves a gap.
        uniform: weight to mark on the colour scale, 1 / K by default; 0 for none.
        note: explanation of the labels, below the maps.

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
    name_room = _NAME if any(panels) else 0.05
    layout = _layout(weights.shape, rows, columns, name_room)
    if layout is None:  # too many maps for one figure
        weights, panels = weights.mean(0, keepdims=True), [f"mean of {heads} maps"]
        layout = _layout(weights.shape, rows, columns, name_room)
    across, width, height, left, top = layout
    down, pitch = -(-len(weights) // across), name_room + top + height + _GAP
    total_width = left + across * width + (across - 1) * _BETWEEN + _BAR
    bar_y, bar_height = _HEAD + name_room + top, float(np.clip(height, 0.8, 3.0))
    total_height = max(_HEAD + down * pitch - _GAP, bar_y + bar_height) + _FOOT
    total_width = max(total_width, canvas.title_width(title))
    title += canvas.blocks_note(*canvas.blocks((queries, keys), width, height))

    figure = canvas.figure(total_width, total_height, title)
    scale, maps = max(float(weights.max(initial=0.0)), 1.0), []
    for number, (panel, name) in enumerate(zip(weights, panels, strict=True)):
        row, column = divmod(number, across)
        x = left + column * (width + _BETWEEN)
        y = _HEAD + row * pitch + name_room + top
        axes = canvas.axes(figure, x=x, y=y, width=width, height=height)
        row_labels = rows if column == 0 else []
        image = canvas.heatmap(
            axes, panel, rows=row_labels, columns=columns, scale=scale
        )
        axes.set_title(fonts.readable(name), fontsize=10, color=canvas.INK, pad=5)
        if marks is not None:
            lines = marks if len(weights) < heads else marks[number : number + 1]
            axes.plot(  # cut off beyond the keys
                np.transpose(lines),
                range(queries),
                ".-",
                color=canvas.MARK,
                lw=1.0,
                markersize=5,
                scalex=False,
                scaley=False,
            )
        maps.append(axes)
    x = left + across * width + (across - 1) * _BETWEEN + 0.15
    uniform = 1 / keys if uniform is None else uniform
    canvas.colour_bar(figure, image, x=x, y=bar_y, height=bar_height, uniform=uniform)
    canvas.share_titles(maps, column_title, row_title)
    if note:
        canvas.footnote(figure, note)
    return canvas.save(figure, path)


def legible(heads: int, rows: Sequence[str], columns: Sequence[str]) -> bool:
    """Returns True if the labels of as many maps can be read on one page."""
    layout = _layout((heads, len(rows), len(columns)), rows, columns, _NAME)
    if layout is None:
        return False
    across, width, height, left, top = layout
    sides = left + across * (width + _BETWEEN), -(-heads // across) * (height + top)
    return max(sides) <= _PAGE


def _layout(
    shape: tuple[int, ...],
    rows: Sequence[str],
    columns: Sequence[str],
    name_room: float,
) -> tuple[int, float, float, float, float] | None:
    """Places maps so that they are as large as possible, in a figure close to 4:3.

    Returns:
        The number of maps per row; the width and height of a map, at most CELL per
        weight; the space at the left of the first map and above each map. None if the
        maps would be smaller than _MIN_MAP and CELL per weight.
    """
    heads, queries, keys = shape
    left, top = 0.45 + canvas.text_width(rows), 0.08 + canvas.text_width(columns)
    natural = np.array([keys, queries]) * canvas.CELL
    layouts = []
    for across in range(1, heads + 1):
        down = -(-heads // across)
        room_x = canvas.MAX_SIZE - left - (across - 1) * _BETWEEN - _BAR
        room_y = canvas.MAX_SIZE - _HEAD_MAX - down * (name_room + top + _GAP) - _FOOT
        size = np.minimum(natural, (room_x / across, room_y / down))
        if (size < np.minimum(natural, _MIN_MAP)).any():
            continue
        width, height = across * (size[0] + 0.25) + 2, down * (size[1] + 1.2) + 0.6
        cost = abs(np.log(width / height / (4 / 3))) + 0.3 * (across * down - heads)
        layouts.append((-(size / natural).min(), cost, (across, *size, left, top)))
    return min(layouts)[-1] if layouts else None
