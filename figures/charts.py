"""Charts of numbers: bars, points with curves, lines with bands.

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

_NAME = 0.17  # height in inches of a name at the end of a line
# One marker fewer than colours: when colours repeat, the markers differ.
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
    """Draw one bar for each group, its value on top and a note under its name.

    Args:
        heights: value of each group, in order.
        title: one line above the figure.
        path: the PNG to write; its folder is made.
        axis_title: name of the groups' axis.
        value_title: name of the values' axis.
        notes: a second line under a group's name.

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
    _dress(axes, title, axis_title, value_title)
    figure.tight_layout()
    return canvas.save(figure, path)


def bleu_by_length(
    groups: Mapping[str, Mapping[str, float]], split: str, path: Path
) -> Path:
    """Draw BLEU by source length as bars; see `metrics.text.bleu_by_length`."""
    return bars(
        {name: group["bleu"] for name, group in groups.items()},
        f"BLEU by source length, {split}",
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
    """Draw points and curves, with a legend above.

    Args:
        points: (x, y) of a set of dots, by name.
        curves: (x, y) of a line, by name.
        title: one line above the figure.
        path: the PNG to write; its folder is made.
        axis_titles: names of x and y.

    Returns:
        `path`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), dpi=canvas.DPI)
    axes = figure.add_subplot()
    for name, (x, y) in points.items():
        axes.scatter(x, y, s=22, color="#9aa3ad", linewidths=0, label=name)
    looks = zip(itertools.cycle(canvas.LINE_COLOURS), itertools.cycle(_DASHES))
    for (name, (x, y)), (colour, dashes) in zip(curves.items(), looks, strict=False):
        axes.plot(x, y, dashes, color=colour, linewidth=1.8, label=name)
    # The legend is a row between title and axes, where it hides nothing.
    _dress(axes, title, *axis_titles, grid="both", pad=26)
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
    """Draw estimates against targets in [0, 1], with the band that counts as right.

    Args:
        target: [B].
        estimate: [B].
        tolerance: half the height of the band.
        title: one line above the figure.
        path: the PNG to write; its folder is made.

    Returns:
        `path`.
    """
    band = [tolerance, 1 + tolerance, 1 - tolerance, -tolerance, tolerance]
    return fit(
        {f"{len(target)} sequences": (target, estimate)},
        {"exact": ([0, 1], [0, 1]), f"{tolerance} off": ([0, 1, 1, 0, 0], band)},
        title,
        path,
        axis_titles=("target", "estimate"),
    )


def sequence_weights(
    weights: np.ndarray, marked: np.ndarray, title: str, path: Path
) -> Path:
    """Draw attention over a long sequence, as multiples of the mean weight 1 / T.

    Args:
        weights: [T] that sum to 1.
        marked: bool [T], the steps to draw as dots.
        title: one line above the figure.
        path: the PNG to write; its folder is made.

    Returns:
        `path`.
    """
    # Rounded: uniform weights are a flat line.
    steps, shares = np.arange(len(weights)), (weights * len(weights)).round(5)
    return fit(
        {"marked steps": (steps[marked], shares[marked])},
        {"mean": (steps[[0, -1]], [1, 1]), "weight": (steps, shares)},
        title,
        path,
        axis_titles=("step", "weight, as a multiple of the mean"),
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
    """Draw one line for each series over the same groups, its name beside its end.

    A line is the mean of a group's values, the band around it their standard
    deviation; a single value has no band.

    Args:
        series: values of each group, such as one for each seed, by series; groups in
            order. A missing group leaves a gap.
        title: one line above the figure.
        path: the PNG to write; its folder is made.
        axis_title: name of the groups' axis.
        value_title: name of the values' axis.
        notes: a second line under a group's name.

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
    ends, lowest = [], np.inf
    looks = zip(itertools.cycle(canvas.LINE_COLOURS), itertools.cycle(_MARKERS))
    for (label, values), (colour, marker) in zip(series.items(), looks, strict=False):
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
        lowest = min(lowest, np.nanmin(mean))
    low, high = axes.get_ylim()
    low = max(low, min(lowest, 0.0))  # a band may reach below 0, the axis need not
    axes.set(xlim=(-0.3, last + 0.15), ylim=(low, high))
    _name_ends(axes, ends, 1 + 0.2 / width, _NAME / height)
    axes.set_xticks(range(len(groups)), _names(groups, notes))
    _dress(axes, title, axis_title, value_title, grid="y")
    return canvas.save(figure, path)


def _names(groups: Sequence[str], notes: Mapping[str, str]) -> list[str]:
    """Groups' names with their notes in a second line."""
    return [f"{name}\n{notes[name]}" if name in notes else name for name in groups]


def _dress(
    axes: "Axes",
    title: str,
    x_title: str,
    y_title: str,
    *,
    grid: str = "",
    pad: float = 6.0,
) -> None:
    """Give the axes of a chart their titles, grid ("x", "y", "both") and look."""
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


def _name_ends(
    axes: "Axes", ends: Sequence[tuple[float, int, str, str]], x: float, share: float
) -> None:
    """Write names at `x` without overlap, joined to their lines.

    Args:
        axes: the axes of the lines; their limits are set.
        ends: value, group index, name and colour of each line's last point.
        x: left edge of the names, in widths of the axes.
        share: height of a name, in heights of the axes.
    """
    ends = sorted(ends)
    low, high = axes.get_ylim()
    gap = share * (high - low)
    heights = _apart([end[0] for end in ends], gap, low + gap / 2, high - gap / 2)
    for height, (value, group, name, colour) in zip(heights, ends, strict=True):
        axes.annotate(
            f" {name}",
            (group, value),
            (x, height),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=canvas.INK,
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
    positions: Sequence[float], gap: float, low: float, high: float
) -> np.ndarray:
    """Move sorted positions as little as possible to be `gap` apart and within bounds.

    Least squares: isotonic regression of the positions minus their gaps, by the min-max
    formula.
    """
    steps = gap * np.arange(len(positions))
    free = np.asarray(positions) - steps
    count = len(positions)
    fitted = [
        max(
            min(free[i:k].mean() for k in range(j + 1, count + 1)) for i in range(j + 1)
        )
        for j in range(count)
    ]
    return np.clip(fitted, low, max(low, high - steps[-1])) + steps
