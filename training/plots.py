"""Figures: attention as heat maps, tours and triangles, sequences, bars, lines, curves.

Matplotlib's object interface only (no pyplot): nothing global is touched, no window
is opened, and figures may be drawn from any thread.
"""

import importlib.util
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from errors import UserError

_CELL = 0.235  # inches a token: room for one label line at _FONT points
_FONT = 8.5
_NAME = 0.17  # inches a name at the end of a line is high
_LABEL = 0.15  # inches that a row needs for a label at _FONT points
_DPI = 150
_INK = "#222222"
_MARK = "#e66100"  # stands out on every blue of `_colours`, for the colour-blind too
# Colours of Okabe and Ito, which the colour-blind tell apart. One marker fewer: when
# the colours come round, the markers differ.
_LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00")
_LINE_MARKERS = ("o", "s", "^", "D", "v")
_LINE_DASHES = ("--", "-", "-.", ":")


def available() -> bool:
    """Whether matplotlib, which the rest of this module needs, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def require() -> None:
    """Refuses to go on without matplotlib, where somebody asked for figures.

    Raises:
        UserError: if it is not installed.
    """
    if not available():
        raise UserError("figures need matplotlib, which is not installed")


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
    """Draws attention weights as one heat map a head, on one colour scale.

    Args:
        weights: [H, Q, K] in [0, 1].
        rows: Q labels of the queries.
        columns: K labels of the keys.
        title: One line above the figure.
        path: The PNG to write; its folder is made.
        panels: H titles of the maps; "head 1", ... where not given.
        row_title: What the rows are.
        column_title: What the columns are.
        marks: [H, Q] key positions to draw over the maps as dots on a line, in cells
            from 0 at the first cell's centre; NaN draws none.

    Returns:
        `path`.

    Raises:
        ValueError: if the labels or the marks do not fit `weights`.
    """
    weights = np.asarray(weights, np.float32)
    if weights.ndim != 3 or weights.shape[1:] != (len(rows), len(columns)):
        raise ValueError(
            f"weights {weights.shape} must be [H, {len(rows)} rows, "
            f"{len(columns)} columns]"
        )
    if marks is not None and np.shape(marks) != weights.shape[:2]:
        raise ValueError(f"marks {np.shape(marks)} must be {weights.shape[:2]} [H, Q]")
    heads, queries, keys = weights.shape
    panels = panels or [f"head {head + 1}" for head in range(heads)]
    across = _panels_across(heads, queries, keys)
    down = -(-heads // across)
    # Everything in inches: cells are squares and labels never overlap.
    width, height = keys * _CELL, queries * _CELL
    left = 0.45 + _text_width(rows)
    top, between = 0.08 + _text_width(columns), 0.25
    head_room, foot, bar = 0.45, 0.3, 0.85
    pitch = top + 0.3 + height + 0.2
    total_width = left + across * width + (across - 1) * between + bar
    total_height = head_room + down * pitch - 0.2 + foot
    total_width = max(total_width, _title_width(title))

    figure = _figure(total_width, total_height, title)
    scale = max(float(weights.max(initial=0.0)), 1e-6)
    image = None
    for head in range(heads):
        row, column = divmod(head, across)
        x = left + column * (width + between)
        y = head_room + row * pitch + top + 0.3
        axes = _axes(figure, x, y, width, height)
        image = _heatmap(
            axes, weights[head], rows if column == 0 else [""] * queries, columns, scale
        )
        axes.set_title(panels[head], fontsize=10, color=_INK, pad=5)
        if marks is not None:
            axes.autoscale(False)  # a mark beyond the keys is cut off
            axes.plot(
                marks[head], range(queries), ".-", color=_MARK, lw=1.0, markersize=5
            )
        if column == 0:
            axes.set_ylabel(row_title, fontsize=10, color="#777777", labelpad=6)
        axes.set_xlabel(column_title, fontsize=10, color="#777777", labelpad=4)
    x = left + across * width + (across - 1) * between + 0.15
    _bar(figure, image, x, head_room + top + 0.3, min(height, 3.0))
    return _save(figure, path)


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
    """Draws what points at points: the truth, and beside it the prediction.

    Edges of the prediction that the truth lacks have a colour of their own.

    Args:
        points: [n, 2], drawn in the unit square or, beyond it, in all that they take.
            Their numbers, from 1, stand beside them.
        truth: Indices of points, from 0: one tour or polygon, or many triangles.
        predicted: The same, as predicted.
        title: One line above the figure.
        path: The PNG to write; its folder is made.
        weights: [T, n + 1] in [0, 1], the pointer's weights in each step, those of the
            end in column 0; drawn as a heat map, beside the rest or below it.
        weight_rows: T labels of the steps; 1, ..., T where not given.

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
        x, y = 0.45 + _text_width(rows), head  # of the map
        across = min(_CELL * (count + 1), width - x - 0.85)
        down = min(_CELL * len(rows), 2 * side)
        if across > side:
            y = height + 0.6
            width, height = width, y + down + foot
        else:
            x += width - 0.2
            width, height = x + across + 0.85, max(height, y + down + foot)
    figure = _figure(max(width, _title_width(title)), height, title)
    true = _edges(truth)
    spots = _label_spots(points, true | _edges(predicted), 0.15 / side)
    panels = {"truth": truth, "predicted": predicted}
    for i, (name, sequences) in enumerate(panels.items()):
        axes = _axes(figure, left + i * (side + between), head, side, side)
        edges = _edges(sequences)
        note = " (orange: not in the truth)" if edges - true else ""
        axes.set_title(name + note, fontsize=10, color=_INK, pad=5)
        _draw_sequences(axes, points, sequences, edges, true)
        for number, spot in enumerate(spots, 1):
            axes.text(
                *spot,
                str(number),
                ha="center",
                va="center",
                fontsize=_FONT,
                color=_INK,
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
    if weights is not None:
        axes = _axes(figure, x, y, across, down)
        columns = ["end", *map(str, range(1, count + 1))]
        image = _heatmap(axes, weights, rows, columns, 1.0, rotation=0)
        axes.set_title("weights", fontsize=10, color=_INK, pad=5)
        axes.set_ylabel("step", fontsize=10, color="#777777", labelpad=6)
        _bar(figure, image, x + across + 0.15, y, min(down, 3.0))
    return _save(figure, path)


class Strip(NamedTuple):
    """A caption, and where it looks.

    Attributes:
        words: T of them, in order.
        maps: [T, I, J] weights at each word; without them the picture stands alone.
        boxes: a frame a word, first row, first column, last row and last column + 1, or
            None; none at all by default.
        label: stands over the picture.
    """

    words: Sequence[str]
    maps: np.ndarray | None
    boxes: Sequence[Sequence[float] | None] | None = None
    label: str = ""


def caption_strips(
    picture: np.ndarray, strips: Sequence[Strip], title: str, path: Path
) -> Path:
    """Draws a picture and, for each word, where it looks: the lit part of the picture.

    The strip of Xu et al. (2015): maps are enlarged to the picture and smoothed; the
    highest weight of each is white, none is dark.

    Args:
        picture: uint8 [rows, columns, 3].
        strips: captions of it, one below the other; each goes on in the next line where
            one is full.
        title: One line above the figure.
        path: The PNG to write; its folder is made.

    Returns:
        `path`.

    Raises:
        ValueError: if there are not as many maps as words.
    """
    lines = []
    for words, maps, boxes, label in strips:
        panels = [(label, None, None)]
        if maps is not None:
            if len(maps) != len(words):
                raise ValueError(
                    f"maps {maps.shape} must be [{len(words)} words, I, J]"
                )
            panels += zip(words, maps, boxes or [None] * len(words), strict=True)
        lines += [panels[i : i + 8] for i in range(0, len(panels), 8)]
    side, between, head = 1.15, 0.1, 0.45
    width = 0.3 + max(map(len, lines)) * (side + between)
    height = head + len(lines) * (side + between + 0.22) + 0.1
    figure = _figure(max(width, _title_width(title)), height, title)
    rows, columns = picture.shape[:2]
    places = [
        (y, x, *panel) for y, line in enumerate(lines) for x, panel in enumerate(line)
    ]
    for y, x, word, weights, box in places:
        x, y = 0.2 + x * (side + between), head + y * (side + between + 0.22) + 0.22
        axes = _axes(figure, x, y, side, side)
        shown = picture
        if weights is not None:
            light = _enlarge(weights, rows, columns)[..., None]
            shown = (picture * (0.2 + 0.8 * light)).astype(np.uint8)
        axes.imshow(shown)
        axes.set_title(word, fontsize=_FONT, color=_INK, pad=3)
        if box is not None:
            top, left, bottom, right = box
            corners = [left, right, right, left, left], [top, top, bottom, bottom, top]
            axes.plot(*(np.array(c) - 0.5 for c in corners), color=_MARK, linewidth=1)
        axes.set_axis_off()
    return _save(figure, path)


def picture_grid(
    pictures: np.ndarray, names: Sequence[str], title: str, path: Path
) -> Path:
    """Draws rows of pictures, white between them, the name of a row before it.

    Args:
        pictures: uint8 [rows, columns, I, J, 3].
        names: Of the rows.
        title: One line above the figure.
        path: The PNG to write; its folder is made.

    Returns:
        `path`.
    """
    gap = max(1, pictures.shape[2] // 16)
    around = ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0))
    pictures = np.pad(pictures, around, constant_values=255)
    down, across, rows, columns, _ = pictures.shape
    side, left, head = 0.75, 0.25 + _text_width(names), 0.5
    wide = side * columns / rows
    width, height = left + across * wide + 0.2, head + down * side + 0.15
    figure = _figure(max(width, _title_width(title)), height, title)
    axes = _axes(figure, left, head, across * wide, down * side)
    axes.imshow(pictures.swapaxes(1, 2).reshape(down * rows, across * columns, 3))
    places = (np.arange(down) + 0.5) * rows - 0.5 - gap / 2
    axes.set_yticks(places, names, fontsize=_FONT, color=_INK)
    axes.set_xticks([])
    axes.tick_params(length=0, pad=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return _save(figure, path)


def sequence_maps(
    panels: Mapping[str, np.ndarray],
    title: str,
    path: Path,
    *,
    signed: Collection[str] = (),
) -> Path:
    """Draws maps over one time axis, one under the other, as NTMs are shown.

    Args:
        panels: [rows, T] by name, from the top: bits, errors, weights of locations, ...
            They lie in [0, 1], where they are not signed.
        title: One line above the figure.
        path: The PNG to write; its folder is made.
        signed: Names of the maps around 0, which have a scale of two colours: to 1
            either way, or further where they need it.

    Returns:
        `path`.

    Raises:
        ValueError: if the maps have not the same T, or `signed` names none of them.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    panels = {name: np.asarray(values, np.float32) for name, values in panels.items()}
    steps = {values.shape[-1] for values in panels.values() if values.ndim == 2}
    if len(steps) != 1 or any(values.ndim != 2 for values in panels.values()):
        shapes = {name: values.shape for name, values in panels.items()}
        raise ValueError(f"maps {shapes} must be [rows, T] of one T")
    if unknown := sorted(set(signed) - set(panels)):
        raise ValueError(f"signed {unknown} must be among the maps: {list(panels)}")
    (steps,) = steps
    # Whole pixels a cell, so that cells of one map look alike.
    column = np.clip(1200 // steps, 4, 40) / _DPI
    heights = {
        name: max(0.3, len(values) * np.clip(384 // len(values), 2, 15) / _DPI)
        for name, values in panels.items()
    }
    width = steps * column
    left, between = 0.6 + 1.2 * _text_width(list(panels)), 0.14
    head, foot = 0.55, 0.6
    total = head + sum(heights.values()) + between * (len(panels) - 1) + foot
    figure = _figure(max(left + width + 0.85, _title_width(title)), total, title)
    limit = max([1.0, *(float(np.abs(panels[name]).max()) for name in signed)])
    colours = LinearSegmentedColormap.from_list(
        "signed", ["#7a3400", _MARK, "#ffffff", "#4292c6", "#08264f"], N=257
    )
    scales = {False: (_colours(), 0.0, 1.0), True: (colours, -limit, limit)}
    kinds = [[name for name in panels if (name in signed) is kind] for kind in scales]
    with_bar = [max(names, key=heights.__getitem__) for names in kinds if names]
    y = head
    for name, values in panels.items():
        axes = _axes(figure, left, y, width, heights[name])
        colours, low, high = scales[name in signed]
        image = axes.imshow(
            values,
            cmap=colours,
            vmin=low,
            vmax=high,
            aspect="auto",
            interpolation="nearest",
        )
        axes.set_ylabel(
            name, rotation=0, ha="right", va="center", fontsize=10, color=_INK
        )
        axes.yaxis.set_label_coords(-0.38 / width, 0.5)
        axes.set_yticks(sorted({0, len(values) - 1}))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(
            length=2,
            labelsize=_FONT,
            colors="#777777",
            labelbottom=name == list(panels)[-1],
        )
        for spine in axes.spines.values():
            spine.set_color("#bbbbbb")
        if name in with_bar:
            _bar(figure, image, left + width + 0.15, y, min(heights[name], 1.2))
        y += heights[name] + between
    axes.set_xlabel("time step", fontsize=10, color="#777777", labelpad=4)
    return _save(figure, path)


def bars(
    heights: Mapping[str, float],
    title: str,
    path: Path,
    *,
    axis_title: str,
    value_title: str,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Draws one bar a group, its value on top and a note under its name.

    Args:
        heights: Value of each group, in order.
        title: One line above the figure.
        path: The PNG to write; its folder is made.
        axis_title: What the groups are.
        value_title: What the values are.
        notes: A second line under a group's name.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    notes = notes or {}
    width = max(1.6 + 0.95 * len(heights), _title_width(title) + 0.7)  # the axis' names
    figure = Figure(figsize=(width, 3.2), dpi=_DPI)
    axes = figure.add_subplot()
    drawn = axes.bar(range(len(heights)), list(heights.values()), color="#3b6ea8")
    axes.bar_label(drawn, fmt="%.1f", fontsize=9, padding=2, color=_INK)
    names = [f"{name}\n{notes[name]}" if name in notes else name for name in heights]
    axes.set_xticks(range(len(heights)), names)
    axes.margins(y=0.15)
    _dress(axes, title, axis_title, value_title)
    figure.tight_layout()
    return _save(figure, path)


def fit(
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str,
    path: Path,
    *,
    axis_titles: tuple[str, str],
) -> Path:
    """Draws points, and curves over them, with their names above.

    Args:
        points: (x, y) of the dots of each name.
        curves: (x, y) of the line of each name.
        title: One line above the figure.
        path: The PNG to write; its folder is made.
        axis_titles: What x and y are.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), dpi=_DPI)
    axes = figure.add_subplot()
    for name, (x, y) in points.items():
        axes.scatter(x, y, s=22, color="#9aa3ad", linewidths=0, label=name)
    looks = zip(itertools.cycle(_LINE_COLOURS), itertools.cycle(_LINE_DASHES))
    for (name, (x, y)), (colour, dashes) in zip(curves.items(), looks, strict=False):
        axes.plot(x, y, dashes, color=colour, linewidth=1.8, label=name)
    # The names stand in one row between the title and the axes: over nothing drawn.
    _dress(axes, title, *axis_titles, grid="both", pad=26)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=len(points) + len(curves),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
        borderaxespad=0.2,
        handlelength=1.8,
        columnspacing=1.6,
    )
    figure.tight_layout()
    return _save(figure, path)


def lines(
    series: Mapping[str, Mapping[str, Sequence[float]]],
    title: str,
    path: Path,
    *,
    axis_title: str,
    value_title: str,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Draws one line a series over the same groups, its name beside its end.

    A line is the mean of a group's values, the band around it their standard
    deviation; one value has none.

    Args:
        series: The values of each group, such as one a seed, by series; groups in
            order, and a group that a series lacks is a gap.
        title: One line above the figure.
        path: The PNG to write; its folder is made.
        axis_title: What the groups are.
        value_title: What the values are.
        notes: A second line under a group's name.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    notes = notes or {}
    groups = list(dict.fromkeys(group for of in series.values() for group in of))
    last = len(groups) - 1
    # In inches, as above.
    width, height = max(3.6, 0.95 * len(groups)), max(2.6, 1.1 * _NAME * len(series))
    left, right, head, foot = 0.6, 0.3 + _text_width(list(series)), 0.45, 0.75
    total_width = max(left + width + right, _title_width(title))
    total_height = head + height + foot
    figure = Figure(figsize=(total_width, total_height), dpi=_DPI, facecolor="white")
    box = (left, foot, width, height)
    axes = figure.add_axes(np.divide(box, (total_width, total_height) * 2))
    ends, lowest = [], np.inf
    looks = zip(itertools.cycle(_LINE_COLOURS), itertools.cycle(_LINE_MARKERS))
    for (label, of), (colour, marker) in zip(series.items(), looks, strict=False):
        values = [of.get(group, [np.nan]) for group in groups]
        mean = np.array([np.mean(x) for x in values])
        spread = np.array([np.std(x, ddof=1) if len(x) > 1 else 0.0 for x in values])
        axes.plot(mean, f"{marker}-", color=colour, lw=1.8, markersize=5, clip_on=False)
        if spread.any():
            axes.fill_between(
                range(len(groups)),
                mean - spread,
                mean + spread,
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        at = np.flatnonzero(np.isfinite(mean))[-1]
        ends.append((mean[at], at, label, colour))
        lowest = min(lowest, np.nanmin(mean))
    low, high = axes.get_ylim()
    low = max(low, min(lowest, 0.0))  # a band may reach below 0, the axis need not
    axes.set(xlim=(-0.3, last + 0.15), ylim=(low, high))
    _name_ends(axes, ends, 1 + 0.2 / width, _NAME / height)
    names = [f"{name}\n{notes[name]}" if name in notes else name for name in groups]
    axes.set_xticks(range(len(groups)), names)
    _dress(axes, title, axis_title, value_title, grid="y")
    return _save(figure, path)


def _figure(width: float, height: float, title: str):
    """A figure of so many inches with its title in the corner."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
    figure.text(
        0.15 / width,
        1 - 0.15 / height,
        title,
        ha="left",
        va="top",
        fontsize=12,
        fontweight="bold",
        color=_INK,
    )
    return figure


def _axes(figure, x: float, y: float, width: float, height: float):
    """Axes of so many inches, `x` from the figure's left and `y` from its top."""
    total_width, total_height = figure.get_size_inches()
    return figure.add_axes(
        (
            x / total_width,
            1 - (y + height) / total_height,
            width / total_width,
            height / total_height,
        )
    )


def _heatmap(
    axes,
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    scale: float,
    *,
    rotation: int = 90,
):
    """Draws [Q, K] from 0 to `scale`, with as many of the labels as there is room."""
    queries, keys = weights.shape
    image = axes.imshow(weights, cmap=_colours(), vmin=0, vmax=scale, aspect="auto")
    box = axes.get_window_extent()
    wide = _text_width(columns[-1:]) if rotation == 0 else _LABEL
    for axis, labels, size, room, turn in (
        (axes.xaxis, columns, box.width, wide, rotation),
        (axes.yaxis, rows, box.height, _LABEL, 0),
    ):
        every = math.ceil(room * _DPI * len(labels) / size)
        places = range(0, len(labels), every)
        axis.set_ticks(places, labels[::every], rotation=turn, fontsize=_FONT)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=3, colors=_INK)
    axes.set_xticks(np.arange(keys + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(queries + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e9e9e9", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    for spine in axes.spines.values():
        spine.set_color("#bbbbbb")
    return image


def _enlarge(weights: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """[I, J] smoothed at the size of a picture, its highest value 1."""
    from scipy.ndimage import gaussian_filter

    y, x = (
        np.arange(size) * places // size
        for size, places in zip((rows, columns), weights.shape, strict=True)
    )
    sigma = rows / weights.shape[0] / 2, columns / weights.shape[1] / 2
    smooth = gaussian_filter(weights[np.ix_(y, x)].astype(np.float32), sigma)
    return smooth / max(smooth.max(), np.finfo(np.float32).tiny)


def _bar(figure, image, x: float, y: float, height: float) -> None:
    """Draws the scale of a map, its corner at `x` and `y` inches."""
    bar = figure.colorbar(image, cax=_axes(figure, x, y, 0.12, height))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=_FONT, length=2, colors=_INK)


def _edges(polygons: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """The pairs of indices, the lower one first, that polygons join."""
    paths = ([*map(int, polygon), *map(int, polygon[:1])] for polygon in polygons)
    pairs = (tuple(sorted(pair)) for path in paths for pair in itertools.pairwise(path))
    return {(a, b) for a, b in pairs if a != b}


def _draw_sequences(
    axes,
    points: np.ndarray,
    areas: Sequence[Sequence[int]],
    edges: set[tuple[int, int]],
    true: set[tuple[int, int]],
) -> None:
    """Draws points [n, 2], the edges between them, and what is inside the areas."""
    from matplotlib.collections import LineCollection, PolyCollection

    blue = _LINE_COLOURS[0]
    areas = [points[list(area)] for area in areas if len(area) > 2]
    axes.add_collection(PolyCollection(areas, facecolors=blue, alpha=0.1))
    for colour, of in (blue, edges & true), (_MARK, edges - true):
        axes.add_collection(
            LineCollection(
                [points[list(edge)] for edge in sorted(of)],
                colors=colour,
                linewidths=1.6,
                capstyle="round",
            )
        )
    axes.scatter(*points.T, s=20, color=_INK, linewidths=0, zorder=3)
    axes.set(xlim=(-0.08, 1.08), ylim=(-0.08, 1.08), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color("#bbbbbb")


def _label_spots(
    points: np.ndarray, edges: set[tuple[int, int]], distance: float
) -> np.ndarray:
    """Where points' numbers have most room.

    Args:
        points: [n, 2].
        edges: Pairs of points that are joined.
        distance: From a point to its number.

    Returns:
        [n, 2], of the directions around each point the one that is furthest from the
        other points, all edges and the numbers so far.
    """
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    # Numbers are wider than high.
    circle = distance * np.stack([1.2 * np.cos(angles), np.sin(angles)], -1)
    along = np.linspace(0, 1, 65)[:, None]
    taken = [points, *(along * points[a] + (1 - along) * points[b] for a, b in edges)]
    spots = []
    for point in points:
        tried = point + circle  # [angles, 2]
        gaps = np.linalg.norm(tried[:, None] - np.concatenate(taken), axis=-1)
        spots.append(tried[gaps.min(1).argmax()])
        taken.append(spots[-1][None])
    return np.array(spots).reshape(-1, 2)


def _dress(
    axes,
    title: str,
    x_title: str,
    y_title: str = "",
    *,
    grid: str = "",
    pad: float = 6.0,
) -> None:
    """Gives the axes of a plot their titles, grid ("x", "y", "both") and look."""
    axes.set_xlabel(x_title, fontsize=9, color="#777777")
    axes.set_ylabel(y_title, fontsize=9, color="#777777")
    axes.set_title(
        title, fontsize=11, fontweight="bold", loc="left", color=_INK, pad=pad
    )
    axes.tick_params(length=0, labelsize=9, colors=_INK)
    if grid:
        axes.grid(axis=grid, color="#e9e9e9", linewidth=0.8)
        axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _name_ends(
    axes, ends: Sequence[tuple[float, int, str, str]], x: float, share: float
) -> None:
    """Writes names at `x`, none over another, and joins them to their lines.

    Args:
        axes: Where the lines are; its limits are set.
        ends: Value, place, name and colour of each line's last point.
        x: Where the names begin, in widths of the axes.
        share: What a name takes of the axes' height.
    """
    ends = sorted(ends)
    low, high = axes.get_ylim()
    gap = share * (high - low)
    places = _apart([end[0] for end in ends], gap, low + gap / 2, high - gap / 2)
    for place, (value, at, name, colour) in zip(places, ends, strict=True):
        axes.annotate(
            f" {name}",
            (at, value),
            (x, place),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=_INK,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "patchA": None,  # else steep lines would end below their names
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )


def _apart(
    places: Sequence[float], gap: float, low: float, high: float
) -> Sequence[float]:
    """Moves sorted places as little as can be, to be `gap` apart and within bounds.

    Least squares: the places less their gaps, made monotone (min-max of their means).
    """
    steps = gap * np.arange(len(places))
    free = np.asarray(places) - steps
    count = len(places)
    fitted = [
        max(
            min(free[i:k].mean() for k in range(j + 1, count + 1)) for i in range(j + 1)
        )
        for j in range(count)
    ]
    return np.clip(fitted, low, max(low, high - steps[-1])) + steps


def _panels_across(heads: int, queries: int, keys: int) -> int:
    """The number of panels a row that brings the figure nearest to 4:3."""

    def badness(across):
        width = across * (keys * _CELL + 0.25) + 2
        height = -(-heads // across) * (queries * _CELL + 1.2) + 0.6
        empty = across * -(-heads // across) - heads
        return abs(np.log(width / height / (4 / 3))) + 0.3 * empty

    return min(range(1, heads + 1), key=badness)


def _text_width(labels: Sequence[str]) -> float:
    """Inches that the longest label takes, by a mean glyph's width."""
    return 0.072 * max((len(label) for label in labels), default=0) + 0.05


def _title_width(title: str) -> float:
    """Inches that a figure's title takes, with its margins."""
    return 0.6 + 0.095 * len(title)


def _colours():
    """White to dark blue: zero weight is the colour of the page."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "attention", ["#ffffff", "#dbe9f6", "#9ecae1", "#4292c6", "#08519c", "#08264f"]
    )


def _save(figure, path: Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path
