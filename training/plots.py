"""Figures: attention as heat maps, a score by group as bars or lines, points, curves.

Matplotlib's object interface only (no pyplot): nothing global is touched, no window
is opened, and figures may be drawn from any thread.
"""

import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

_CELL = 0.235  # inches a token: room for one label line at _FONT points
_FONT = 8.5
_NAME = 0.17  # inches a name at the end of a line is high
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
    from matplotlib.figure import Figure

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
    total_width = max(total_width, 0.6 + 0.095 * len(title))

    figure = Figure(figsize=(total_width, total_height), dpi=150, facecolor="white")
    figure.text(
        0.15 / total_width,
        1 - 0.15 / total_height,
        title,
        ha="left",
        va="top",
        fontsize=12,
        fontweight="bold",
        color=_INK,
    )
    scale = max(float(weights.max(initial=0.0)), 1e-6)
    image = None
    for head in range(heads):
        row, column = divmod(head, across)
        x = left + column * (width + between)
        y = total_height - head_room - row * pitch - top - 0.3 - height
        axes = figure.add_axes(
            (
                x / total_width,
                y / total_height,
                width / total_width,
                height / total_height,
            )
        )
        image = axes.imshow(
            weights[head], cmap=_colours(), vmin=0, vmax=scale, aspect="auto"
        )
        if marks is not None:
            axes.autoscale(False)  # a mark beyond the keys is cut off
            axes.plot(
                marks[head], range(queries), ".-", color=_MARK, lw=1.0, markersize=5
            )
        axes.set_title(panels[head], fontsize=10, color=_INK, pad=5)
        axes.xaxis.tick_top()
        axes.set_xticks(range(keys), columns, rotation=90, fontsize=_FONT)
        axes.set_yticks(
            range(queries), rows if column == 0 else [""] * queries, fontsize=_FONT
        )
        axes.tick_params(length=0, pad=3, colors=_INK)
        axes.set_xticks(np.arange(keys + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(queries + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#e9e9e9", linewidth=0.5)
        axes.tick_params(which="minor", length=0)
        for spine in axes.spines.values():
            spine.set_color("#bbbbbb")
        if column == 0:
            axes.set_ylabel(row_title, fontsize=10, color="#777777", labelpad=6)
        axes.set_xlabel(column_title, fontsize=10, color="#777777", labelpad=4)
    tall = min(height, 3.0)
    x = left + across * width + (across - 1) * between + 0.15
    y = total_height - head_room - top - 0.3 - tall
    bar_axes = figure.add_axes(
        (x / total_width, y / total_height, 0.12 / total_width, tall / total_height)
    )
    colour_bar = figure.colorbar(image, cax=bar_axes)
    colour_bar.outline.set_visible(False)
    colour_bar.ax.tick_params(labelsize=_FONT, length=2, colors=_INK)
    return _save(figure, path)


def bars(
    heights: Mapping[str, float],
    title: str,
    path: Path,
    *,
    axis_title: str,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Draws one bar a group, its value on top and a note under its name.

    Args:
        heights: Value of each group, in order.
        title: One line above the figure.
        path: The PNG to write; its folder is made.
        axis_title: What the groups are.
        notes: A second line under a group's name.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    notes = notes or {}
    figure = Figure(figsize=(1.6 + 0.95 * len(heights), 3.2), dpi=150)
    axes = figure.add_subplot()
    drawn = axes.bar(range(len(heights)), list(heights.values()), color="#3b6ea8")
    axes.bar_label(drawn, fmt="%.1f", fontsize=9, padding=2, color=_INK)
    names = [f"{name}\n{notes[name]}" if name in notes else name for name in heights]
    axes.set_xticks(range(len(heights)), names)
    axes.margins(y=0.15)
    _dress(axes, title, axis_title)
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

    figure = Figure(figsize=(6.4, 4.2), dpi=150)
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
    total_width = max(left + width + right, 0.6 + 0.095 * len(title))
    total_height = head + height + foot
    figure = Figure(figsize=(total_width, total_height), dpi=150, facecolor="white")
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
