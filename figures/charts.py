"""Charts: bars, points with curves, lines with bands.

Axes: B estimates; T steps.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from figures import canvas, fonts
from figures.drawings import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_NAME = 48  # characters of the name of a line
_NAME = 0.17  # height in inches of the name at the end of a line
# One fewer marker than colours, so that lines of equal colour differ in their markers.
_MARKERS = ("o", "s", "^", "D", "v")
_BAR = "#3b6ea8"  # colour
_GROUP = 0.95  # width in inches of a group with its labels
_DECADES = 1000  # ratio of values that get a logarithmic axis
_DASHES = ("--", "-", "-.", ":")


def accuracies(
    scores: Mapping[str, float], group: str, split: str, folder: Path
) -> list[Path]:
    """Draws the scores `accuracy_NAME` as bars, in per cent; nothing without any.

    `group` is what a NAME is, such as "label".
    """
    start = "accuracy_"
    heights = {x.removeprefix(start): scores[x] for x in scores if x.startswith(start)}
    if not heights:
        return []
    path, title = folder / f"accuracy_{split}.png", f"Accuracy by {group} ({split})"
    names = {"axis_title": group, "value_title": "% correct"}
    return [bars(heights, title, path, maximum=100, **names)]


def bars(
    heights: Mapping[str, float],
    title: str,
    path: Path,
    *,
    axis_title: str,
    value_title: str,
    notes: Mapping[str, str] | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
    maximum: float | None = None,
) -> Path:
    """Draws a bar for each group, labelled with its value if there is room.

    Args:
        heights: value of each group, in order, at least 0.
        title: title of the figure.
        path: PNG file to write; its folder is created.
        axis_title: title of the axis of groups.
        value_title: title of the axis of values.
        notes: notes on groups, drawn under their names.
        intervals: lower and upper bounds of groups, drawn as error bars.
        maximum: end of the axis of values, such as 100 for percentages; None to fit it
            to the values.
    """
    from matplotlib.figure import Figure

    notes, intervals = notes or {}, intervals or {}
    # The title starts 0.7 inches to the right, at the axes.
    width = max(1.6 + _GROUP * len(heights), canvas.title_width(title) + 0.7)
    width = min(width, canvas.MAX_SIZE)
    # Every n-th bar has labels, if the labels of all would overlap.
    stride = math.ceil((1.6 + _GROUP * len(heights)) / width)
    figure = Figure(figsize=(width, 3.2), dpi=canvas.DPI, layout="tight")
    axes = figure.add_subplot()
    tops = {x: max([height, *intervals.get(x, ())]) for x, height in heights.items()}
    axes.bar(range(len(heights)), list(heights.values()), color=_BAR)
    for x, (name, height) in enumerate(heights.items()):
        if name in intervals:
            low, high = intervals[name]
            errors = [[max(0, height - low)], [max(0, high - height)]]
            axes.errorbar(x, height, errors, color=canvas.INK, capsize=3, lw=1)
        if x % stride:
            continue
        axes.annotate(
            f"{height:.1f}",
            (x, tops[name]),
            (0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=9,
            color=canvas.INK,
        )
    labelled = range(0, len(heights), stride)
    axes.set_xticks(labelled, _names(list(heights)[::stride], notes))
    # Not centred at 0 if all values are 0; room for the number above the highest bar.
    axes.set_ylim(0, maximum or 1.15 * max(tops.values(), default=0) or 1)
    pad = 18.0 if maximum else 6.0
    _style(axes, title, x_title=axis_title, y_title=value_title, pad=pad)
    return canvas.save(figure, path)


def bleu_by_length(
    groups: Mapping[str, Mapping[str, float]], split: str, path: Path
) -> Path:
    """Draws BLEU by source length as bars; see `tasks.common.text_metrics`."""
    intervals = {
        name: (group["bleu_low"], group["bleu_high"])
        for name, group in groups.items()
        if "bleu_low" in group
    }
    note = ", 95% bootstrap intervals" if intervals else ""
    return bars(
        {name: group["bleu"] for name, group in groups.items()},
        f"BLEU by source length ({split} split{note})",
        path,
        axis_title="words in the source",
        value_title="BLEU",
        notes={name: f"n = {group['sentences']:,}" for name, group in groups.items()},
        intervals=intervals,
    )


@drawing
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
        title: title of the figure.
        path: PNG file to write; its folder is created.
        axis_titles: titles of the x and y axes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), dpi=canvas.DPI, layout="tight")
    axes = figure.add_subplot()
    for name, (x, y) in points.items():
        edge = {"linewidths": 0.7, "edgecolors": canvas.INK} if len(x) < 20 else {}
        style = {"s": 22, "color": "#9aa3ad", "linewidths": 0, "zorder": 3} | edge
        axes.scatter(x, y, label=name, **style)
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
    return canvas.save(figure, path)


def estimates(
    target: np.ndarray, estimate: np.ndarray, tolerance: float, title: str, path: Path
) -> Path:
    """Draws estimates [B] against targets [B], with the band that counts as correct."""
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
        weights: [T], with sum 1; the steps beyond the sequence are padding, which is
            not drawn: the title gives its total weight.
        marked: bool, for each step of the sequence: at most T. True to draw a dot.
        title: title of the figure.
        path: PNG file to write; its folder is created.
    """
    if len(marked) < len(weights):
        title += f" ({weights[len(marked) :].sum():.1%} of the weight on padding)"
    # Rounded, so that uniform weights are a straight line.
    multiples = (weights * len(weights)).round(5)[: len(marked)]
    steps = np.arange(len(marked))
    return fit(
        {"marked steps": (steps[marked], multiples[marked])},
        {"mean": (steps[[0, -1]], [1, 1]), "weight": (steps, multiples)},
        title=title,
        path=path,
        axis_titles=("step", "weight / mean weight"),
    )


@drawing
def lines(
    series: Mapping[str, Mapping[str, Sequence[float]]],
    title: str,
    path: Path,
    *,
    axis_title: str,
    value_title: str,
    notes: Mapping[str, str] | None = None,
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> Path:
    """Draws a line for each series over the same groups, with its name at the end.

    The line is the mean of each group's values, such as those of several seeds; the
    band is their standard deviation. A single value has no band. If the names of all
    groups are numbers, they are positions on the axis, and means that span decades have
    a logarithmic scale, with bands from the minimum to the maximum.

    Args:
        series: name of a series -> group -> values; groups in order. A group that is
            missing from a series leaves a gap in its line.
        title: title of the figure.
        path: PNG file to write; its folder is created.
        axis_title: title of the axis of groups.
        value_title: title of the axis of values.
        notes: notes on groups, drawn under their names.
        intervals: 95 % bootstrap interval of each group of a series, drawn as a line.
    """
    notes, intervals = notes or {}, intervals or {}
    groups = list(dict.fromkeys(name for values in series.values() for name in values))
    numbers, places = _numbers(groups), np.arange(len(groups), dtype=float)
    numeric, positions = numbers is not None, places if numbers is None else numbers
    width = 5.2 if numeric else np.clip(0.95 * len(groups), 3.6, 18)  # inches
    height = np.clip(1.1 * _NAME * len(series), 3.2 if numeric else 2.6, 20)
    left, right = 0.8, 0.3 + canvas.text_width(series, 9, _MAX_NAME)
    head, foot = 0.5, 0.75
    total_width = max(left + width + right, canvas.title_width(title))
    figure = canvas.figure(total_width, head + height + foot, title)
    axes = canvas.axes(figure, x=left, y=head, width=width, height=height)
    samples = [[line.get(x, [np.nan]) for x in groups] for line in series.values()]
    means = np.array([[np.mean(values) for values in line] for line in samples])
    linear = _linear_below(means) if numeric else math.inf
    ends, counts = [], {len(x) for line in samples for x in line if len(x) > 1}
    styles = zip(itertools.cycle(canvas.LINE_COLOURS), itertools.cycle(_MARKERS))
    for label, line, mean, style in zip(series, samples, means, styles, strict=False):
        finite = np.isfinite(mean)
        has_value = finite if numeric else slice(None)
        x, y, (colour, marker) = positions[has_value], mean[has_value], style
        axes.plot(x, y, f"{marker}-", color=colour, lw=1.8, markersize=5, clip_on=False)
        if max(map(len, line)) > 1:
            low, high = np.transpose([_band(x, linear) for x in line])
            band = low[has_value], high[has_value]
            axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)
        for group, interval in intervals.get(label, {}).items():
            at = positions[groups.index(group)] + 0.02 * len(ends)  # side by side
            axes.vlines(at, *interval, color=colour, lw=1, alpha=0.6)
        end = np.flatnonzero(finite)[-1]
        ends.append((mean[end], positions[end], label, colour))
    if counts:
        runs = "-".join(map(str, sorted({min(counts), max(counts)})))
        kind = "standard deviation" if linear == math.inf else "minimum and maximum"
        canvas.footnote(figure, f"band: {kind} of {runs} runs")
    elif intervals:
        canvas.footnote(figure, "vertical lines: 95 % bootstrap intervals")
    value_title += _scale(axes, means[np.isfinite(means)], linear)
    if numeric:
        room = 0.02 * (positions.max() - positions.min()) or 1
        axes.set_xlim(positions.min() - room, positions.max() + room)
    else:
        axes.set_xlim(-0.3, len(groups) - 0.85)
        axes.set_xticks(positions, _names(groups, notes))
    _name_lines(axes, ends, x=1 + 0.2 / width, height=_NAME / height)
    _style(axes, "", x_title=axis_title, y_title=value_title, grid="y")
    return canvas.save(figure, path)


def _numbers(groups: Sequence[str]) -> np.ndarray | None:
    """The groups as numbers; None if not all are."""
    try:
        return np.array([float(name) for name in groups])
    except ValueError:
        return None


def _band(values: Sequence[float], linear: float) -> tuple[float, float]:
    """Ends of the band of a mean; see `_linear_below`."""
    if linear < math.inf:  # below a mean, the deviation would end at 0
        return np.min(values), np.max(values)
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return np.mean(values) - spread, np.mean(values) + spread


def _linear_below(means: np.ndarray) -> float:
    """The value below which an axis is linear: inf for all values, 0 for none.

    Means that span decades get a logarithmic axis, with a linear part if there are
    zeros.
    """
    means = means[np.isfinite(means)]
    positive = means[means > 0]
    if means.min() < 0 or not positive.size:
        return math.inf
    if positive.max() < _DECADES * positive.min():
        return math.inf
    return 0.0 if means.min() > 0 else 10 ** np.floor(np.log10(positive.min()))


def _scale(axes: "Axes", means: np.ndarray, linear: float) -> str:
    """Sets the limits and the scale of the axis of values; see `_linear_below`.

    Bands on a linear axis end at 0 if all means are at least 0.

    Returns:
        A note for the title of the axis.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter

    low, high = axes.get_ylim()
    if linear == math.inf:
        axes.set_ylim(max(low, min(means.min(), 0.0)), high)
        return ""
    if linear:
        axes.set_yscale("symlog", linthresh=linear)
        axes.set_ylim(0, 1.5 * high)
    else:
        axes.set_yscale("log")
        axes.set_ylim(means.min() / 1.5, 1.5 * high)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return f", log scale, linear below {linear:g}" if linear else ", log scale"


def _names(groups: Sequence[str], notes: Mapping[str, str]) -> list[str]:
    """Names of groups, with their notes in a second line."""
    labels = zip(groups, fonts.shorten(groups), strict=True)
    return [
        f"{label}\n{notes[name]}" if name in notes else label for name, label in labels
    ]


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
    width = axes.figure.get_size_inches()[0] - 1.0
    axes.set_title(
        "\n".join(fonts.wrap(title, width, 11, bold=True)),
        fontsize=11,
        fontweight="bold",
        loc="left",
        color=canvas.INK,
        pad=pad,
    )
    axes.tick_params(length=0, labelsize=9, colors=canvas.INK)
    if grid:
        axes.grid(axis=grid, color=canvas.GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _name_lines(
    axes: "Axes",
    ends: Sequence[tuple[float, float, str, str]],
    *,
    x: float,
    height: float,
) -> None:
    """Writes the names of lines at `x` without overlap, connected to their lines.

    `ends` are value, position, name and colour of the last point of each line. `x` and
    the height of a name are fractions of the size of the axes, whose limits are final.
    """
    ends = sorted(ends)
    # In fractions of the axes' height, whatever the scale.
    points = [(0.0, value) for value, *_ in ends]
    pixels = axes.transData.transform(points)
    values = axes.transAxes.inverted().transform(pixels)[:, 1]
    spaced = _space(values, height, low=height / 2, high=1 - height / 2)
    for y, (value, group, name, colour) in zip(spaced, ends, strict=True):
        axes.annotate(
            " " + "".join(fonts.shorten([name], _MAX_NAME)),
            (group, value),
            (x, y),
            textcoords=axes.transAxes,
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
    """Spaces sorted positions at least `gap` apart within bounds, by least squares."""
    from scipy.optimize import isotonic_regression

    offsets = gap * np.arange(len(positions))
    fitted = isotonic_regression(np.asarray(positions) - offsets).x
    return np.clip(fitted, low, max(low, high - offsets[-1])) + offsets
