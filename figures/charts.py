"""Charts: bars, points with curves, lines with bands.

Axes: B estimates; T steps.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAME = 0.17  # height in inches of the name at the end of a line
# One fewer marker than colours, so that lines of equal colour differ in their markers.
_MARKERS = ("o", "s", "^", "D", "v")
_DASHES = ("--", "-", "-.", ":")


def bars(
    heights: Mapping[str, float],
    title: str,
    path: Path,
    *,
    axis_title: str,
    value_title: str,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Draws a bar for each group, labelled with its value.

    Args:
        heights: value of each group, in order.
        title: title of the figure, one line.
        path: PNG file to write; its folder is created.
        axis_title: title of the axis of groups.
        value_title: title of the axis of values.
        notes: notes on groups, drawn under their names.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    notes = notes or {}
    # The title starts 0.7 inches to the right, at the axes.
    width = max(1.6 + 0.95 * len(heights), canvas.title_width(title) + 0.7)
    figure = Figure(figsize=(width, 3.2), dpi=canvas.DPI)
    axes = figure.add_subplot()
    drawn = axes.bar(range(len(heights)), list(heights.values()), color="#3b6ea8")
    axes.bar_label(drawn, fmt="%.1f", fontsize=9, padding=2, color=canvas.INK)
    axes.set_xticks(range(len(heights)), _names(heights, notes))
    axes.margins(y=0.15)
    if not any(heights.values()):
        axes.set_ylim(0, 1)  # instead of a range centred at 0
    _style(axes, title, x_title=axis_title, y_title=value_title)
    figure.tight_layout()
    return canvas.save(figure, path)


def bleu_by_length(
    groups: Mapping[str, Mapping[str, float]], split: str, path: Path
) -> Path:
    """Draws BLEU by source length as bars; see `metrics.text.bleu_by_length`."""
    return bars(
        {name: group["bleu"] for name, group in groups.items()},
        f"BLEU by source length ({split} split)",
        path,
        axis_title="words in the source",
        value_title="BLEU",
        notes={name: f"n = {group['sentences']}" for name, group in groups.items()},
    )


def fit(
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str,
    path: Path,
    *,
    axis_titles: tuple[str, str],
) -> Path:
    """Draws sets of points and curves, with a legend above.

    Args:
        points: x and y of each set of points, by name.
        curves: x and y of each curve, by name.
        title: title of the figure, one line.
        path: PNG file to write; its folder is created.
        axis_titles: titles of the x and y axes.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), dpi=canvas.DPI)
    axes = figure.add_subplot()
    for name, (x, y) in points.items():
        axes.scatter(x, y, s=22, color="#9aa3ad", linewidths=0, label=name)
    styles = zip(itertools.cycle(canvas.LINE_COLOURS), itertools.cycle(_DASHES))
    for (name, (x, y)), (colour, dashes) in zip(curves.items(), styles, strict=False):
        axes.plot(x, y, dashes, color=colour, linewidth=1.8, label=name)
    # The legend is a row between title and axes, where it covers nothing.
    x_title, y_title = axis_titles
    _style(axes, title, x_title=x_title, y_title=y_title, grid="both", pad=26)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=len(points) + len(curves),
        frameon=False,
        fontsize=9,
        labelcolor=canvas.INK,
        borderaxespad=0.2,
        handlelength=1.8,
        columnspacing=1.6,
    )
    figure.tight_layout()
    return canvas.save(figure, path)


def estimates(
    target: np.ndarray, estimate: np.ndarray, tolerance: float, title: str, path: Path
) -> Path:
    """Draws estimates against targets, with the band that counts as correct.

    Args:
        target: [B] in [0, 1].
        estimate: [B].
        tolerance: maximum error of a correct estimate.
        title: title of the figure, one line.
        path: PNG file to write; its folder is created.

    Returns:
        `path`.
    """
    band = [tolerance, 1 + tolerance, 1 - tolerance, -tolerance, tolerance]
    return fit(
        {f"{len(target)} sequences": (target, estimate)},
        {"exact": ([0, 1], [0, 1]), f"error of {tolerance}": ([0, 1, 1, 0, 0], band)},
        title=title,
        path=path,
        axis_titles=("target", "estimate"),
    )


def sequence_weights(
    weights: np.ndarray, marked: np.ndarray, title: str, path: Path
) -> Path:
    """Draws attention over a long sequence, in multiples of the mean weight 1 / T.

    Args:
        weights: [T], with sum 1.
        marked: [T] bool, the steps to draw as dots.
        title: title of the figure, one line.
        path: PNG file to write; its folder is created.

    Returns:
        `path`.
    """
    # Rounded, so that uniform weights are a straight line.
    steps, multiples = np.arange(len(weights)), (weights * len(weights)).round(5)
    return fit(
        {"marked steps": (steps[marked], multiples[marked])},
        {"mean": (steps[[0, -1]], [1, 1]), "weight": (steps, multiples)},
        title=title,
        path=path,
        axis_titles=("step", "weight / mean weight"),
    )


def lines(
    series: Mapping[str, Mapping[str, Sequence[float]]],
    title: str,
    path: Path,
    *,
    axis_title: str,
    value_title: str,
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Draws a line for each series over the same groups, with its name at the end.

    The line is the mean of each group's values, such as those of several seeds; the
    band is their standard deviation. A single value has no band.

    Args:
        series: name of a series -> group -> values; groups in order. A group that is
            missing from a series leaves a gap in its line.
        title: title of the figure, one line.
        path: PNG file to write; its folder is created.
        axis_title: title of the axis of groups.
        value_title: title of the axis of values.
        notes: notes on groups, drawn under their names.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    notes = notes or {}
    groups = list(dict.fromkeys(name for values in series.values() for name in values))
    last = len(groups) - 1
    # In inches.
    width, height = max(3.6, 0.95 * len(groups)), max(2.6, 1.1 * _NAME * len(series))
    left, right = 0.6, 0.3 + canvas.text_width(list(series))
    head, foot = 0.45, 0.75
    total_width = max(left + width + right, canvas.title_width(title))
    total_height = head + height + foot
    size = (total_width, total_height)
    figure = Figure(figsize=size, dpi=canvas.DPI, facecolor="white")
    axes = figure.add_axes(np.divide((left, foot, width, height), size * 2))
    ends, min_mean = [], np.inf
    styles = zip(itertools.cycle(canvas.LINE_COLOURS), itertools.cycle(_MARKERS))
    for (label, values), (colour, marker) in zip(series.items(), styles, strict=False):
        samples = [values.get(group, [np.nan]) for group in groups]
        mean = np.array([np.mean(x) for x in samples])
        spread = np.array([np.std(x, ddof=1) if len(x) > 1 else 0.0 for x in samples])
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
        end = np.flatnonzero(np.isfinite(mean))[-1]
        ends.append((mean[end], end, label, colour))
        min_mean = min(min_mean, np.nanmin(mean))
    low, high = axes.get_ylim()
    low = max(low, min(min_mean, 0.0))  # cuts bands at 0 if all means are above
    axes.set(xlim=(-0.3, last + 0.15), ylim=(low, high))
    _name_lines(axes, ends, x=1 + 0.2 / width, height=_NAME / height)
    axes.set_xticks(range(len(groups)), _names(groups, notes))
    _style(axes, title, x_title=axis_title, y_title=value_title, grid="y")
    return canvas.save(figure, path)


def _names(groups: Sequence[str], notes: Mapping[str, str]) -> list[str]:
    """Names of groups, with their notes in a second line."""
    return [f"{name}\n{notes[name]}" if name in notes else name for name in groups]


def _style(
    axes: "Axes",
    title: str,
    *,
    x_title: str,
    y_title: str,
    grid: str = "",
    pad: float = 6.0,
) -> None:
    """Sets the titles and style of a chart's axes, and a grid "x", "y" or "both"."""
    axes.set_xlabel(x_title, fontsize=9, color=canvas.GREY)
    axes.set_ylabel(y_title, fontsize=9, color=canvas.GREY)
    axes.set_title(
        title, fontsize=11, fontweight="bold", loc="left", color=canvas.INK, pad=pad
    )
    axes.tick_params(length=0, labelsize=9, colors=canvas.INK)
    if grid:
        axes.grid(axis=grid, color=canvas.GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _name_lines(
    axes: "Axes",
    ends: Sequence[tuple[float, int, str, str]],
    *,
    x: float,
    height: float,
) -> None:
    """Writes the names of lines at `x` without overlap, connected to their lines.

    Args:
        axes: axes of the lines, with their final limits.
        ends: value, group index, name and colour of each line's last point.
        x: left edge of the names, as a fraction of the axes' width.
        height: height of a name, as a fraction of the axes' height.
    """
    ends = sorted(ends)
    low, high = axes.get_ylim()
    gap = height * (high - low)
    values = [end[0] for end in ends]
    spaced = _space(values, gap, low=low + gap / 2, high=high - gap / 2)
    for y, (value, group, name, colour) in zip(spaced, ends, strict=True):
        axes.annotate(
            f" {name}",
            (group, value),
            (x, y),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=canvas.INK,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "patchA": None,  # else steep connections end below the names
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )


def _space(
    positions: Sequence[float], gap: float, low: float, high: float
) -> np.ndarray:
    """Spaces sorted positions at least `gap` apart within bounds, by least squares.

    Isotonic regression of the positions minus their gaps, by the min-max formula.
    """
    offsets = gap * np.arange(len(positions))
    targets = np.asarray(positions) - offsets
    count = len(positions)
    fitted = [
        max(
            min(targets[i:k].mean() for k in range(j + 1, count + 1))
            for i in range(j + 1)
        )
        for j in range(count)
    ]
    return np.clip(fitted, low, max(low, high - offsets[-1])) + offsets
