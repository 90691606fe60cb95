"""Figures of a search over settings: by trial, by field, and by all fields at once.

Axes: N trials.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from figures import canvas, fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DECADES = 30  # ratio of numbers that get a logarithmic axis
_TICKS = 6  # maximum number of values that are all ticks
_PANELS = 4  # panels of `slices` in a row
_MISSING = "not set"  # label of a field that a trial does not set
_HEIGHT = 3.0  # inches of an axis


class Column(NamedTuple):
    """The values of a field as positions on an axis.

    Attributes:
        name: name of the field.
        positions: [N] positions in [0, 1].
        ticks: label by position.
    """

    name: str
    positions: np.ndarray
    ticks: Mapping[float, str]


def column(name: str, values: Sequence[Any]) -> Column:
    """Places the values of a field, None where it is missing, on an axis."""
    present = [x for x in values if x is not None]
    numeric = all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in present
    )
    if not numeric or len(present) < len(values):
        texts = [_MISSING if x is None else str(x) for x in values]
        labels = list(dict.fromkeys(texts))
        places = np.linspace(0, 1, len(labels)) if len(labels) > 1 else [0.5]
        ticks = dict(zip(labels, map(float, places), strict=True))
        positions = np.array([ticks[x] for x in texts])
        return Column(name, positions, {place: x for x, place in ticks.items()})
    numbers = np.array(values, float)
    log = numbers.min() > 0 and numbers.max() / numbers.min() >= _DECADES
    scaled = np.log(numbers) if log else numbers
    low, span = scaled.min(), float(np.ptp(scaled))
    if span == 0:
        return Column(name, np.full(len(numbers), 0.5), {0.5: f"{numbers[0]:.4g}"})
    positions = (scaled - low) / span
    distinct = np.unique(numbers)
    if len(distinct) <= _TICKS:
        places = np.unique(positions)
        ticks = dict(zip(places.tolist(), distinct.tolist(), strict=True))
    else:
        places = np.linspace(0, 1, 5)
        scale = np.exp if log else np.asarray
        ticks = dict(
            zip(places.tolist(), scale(low + places * span).tolist(), strict=True)
        )
    return Column(name, positions, {k: f"{v:.3g}" for k, v in ticks.items()})


def metric_by_trial(
    scores: Mapping[int, float], path: Path, *, metric: str, goal: str
) -> Path:
    """Draws the score of each trial, and the best so far as a line.

    Args:
        scores: score by number of the trial.
        path: PNG file to write; its folder is created.
        metric: name of the metric.
        goal: "max" or "min".

    Returns:
        `path`.
    """
    numbers = sorted(scores)
    values = np.array([scores[number] for number in numbers])
    best = (np.maximum if goal == "max" else np.minimum).accumulate(values)
    drawing = canvas.figure(6.0, 3.9, f"{metric} by trial, and the best so far")
    axes = canvas.axes(drawing, 0.8, 0.5, 5.0, _HEIGHT - 0.2)
    axes.step(numbers, best, where="post", color=canvas.MARK, linewidth=1.2)
    axes.plot(numbers, values, "o", color=canvas.LINE_COLOURS[0], markersize=4)
    axes.set_xlabel("trial", fontsize=canvas.FONT, color=canvas.GREY)
    axes.set_ylabel(fonts.readable(metric), fontsize=canvas.FONT, color=canvas.GREY)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _style(axes)
    return canvas.save(drawing, path)


def slices(
    fields: Mapping[str, Sequence[Any]],
    scores: Sequence[float],
    path: Path,
    *,
    metric: str,
    goal: str,
) -> Path:
    """Draws the scores by the values of each field, one panel per field.

    Args:
        fields: values of the trials by field; None where a trial does not set it.
        scores: [N].
        path: PNG file to write; its folder is created.
        metric: name of the metric.
        goal: "max" or "min"; the best trial is marked.

    Returns:
        `path`.
    """
    columns = [column(name, values) for name, values in fields.items()]
    height, width = _HEIGHT * 0.75, 2.3  # of a panel
    rows = [columns[i : i + _PANELS] for i in range(0, len(columns), _PANELS)]
    # Labels are turned, so that they need the height of their width.
    depths = [
        max(canvas.text_width(part.ticks.values()) for part in row) for row in rows
    ]
    tops = 0.65 + np.cumsum([0.0, *(height + depth + 0.5 for depth in depths)])
    title = f"{metric} by setting; orange: the best trial"
    drawing = canvas.figure(
        max(0.8 + len(rows[0]) * width, canvas.title_width(title)), tops[-1], title
    )
    best = int((np.argmax if goal == "max" else np.argmin)(scores))
    for number, part in enumerate(columns):
        row, place = divmod(number, _PANELS)
        axes = canvas.axes(
            drawing, 0.8 + place * width, tops[row], width - 0.25, height
        )
        axes.plot(part.positions, scores, "o", color=canvas.LINE_COLOURS[0], alpha=0.6)
        axes.plot(part.positions[best], scores[best], "o", color=canvas.MARK)
        axes.set_xlim(-0.1, 1.1)
        axes.set_xticks(
            list(part.ticks), fonts.shorten(part.ticks.values()), rotation=90
        )
        _style(axes)
        axes.grid(axis="y", color=canvas.GRID, linewidth=0.8)
        axes.set_title(
            fonts.readable(part.name), fontsize=canvas.FONT, color=canvas.INK, pad=4
        )
        if place:
            axes.tick_params(labelleft=False)
        else:
            label = fonts.readable(metric)
            axes.set_ylabel(label, fontsize=canvas.FONT, color=canvas.GREY)
    return canvas.save(drawing, path)


def parallel_coordinates(
    fields: Mapping[str, Sequence[Any]],
    scores: Sequence[float],
    path: Path,
    *,
    metric: str,
    goal: str,
) -> Path:
    """Draws each trial as a line through its values, to its score at the right.

    Better trials are darker. Arguments as in `slices`.
    """
    columns = [column(name, values) for name, values in fields.items()]
    columns.append(column(metric, list(scores)))
    labels = [canvas.text_width(x.ticks.values()) for x in columns]
    names = [canvas.text_width([x.name]) for x in columns]
    # An axis has its labels at its right; a gap holds them and some line.
    gaps = [
        max(width + 0.7, (name + following) / 2 + 0.2)
        for width, name, following in zip(labels, names, names[1:], strict=False)
    ]
    left = max(0.4, names[0] / 2 + 0.1)
    width = left + sum(gaps) + max(labels[-1] + 0.3, names[-1] / 2 + 0.2)
    title = f"{metric} of all trials; orange: the best"
    width = max(width, canvas.title_width(title))
    drawing = canvas.figure(width, _HEIGHT + 1.1, title)
    axes = canvas.axes(drawing, 0, 0.8, width, _HEIGHT)
    axes.set_xlim(0, width)
    axes.set_ylim(-0.03, 1.03)
    axes.axis("off")
    places = left + np.cumsum([0.0, *gaps])
    order = np.argsort(scores) if goal == "max" else np.argsort(scores)[::-1]
    colours = canvas.colour_map()
    for rank, trial in enumerate(order):
        best = rank == len(order) - 1
        shade = 0.25 + 0.7 * rank / max(len(order) - 1, 1)
        axes.plot(
            places,
            [x.positions[trial] for x in columns],
            color=canvas.MARK if best else colours(shade),
            linewidth=2.2 if best else 1.2,
        )
    for place, part in zip(places, columns, strict=True):
        axes.axvline(place, color=canvas.INK, linewidth=0.9)
        axes.text(
            place,
            1.06,
            fonts.readable(part.name),
            ha="center",
            va="bottom",
            fontsize=canvas.FONT,
            color=canvas.INK,
        )
        for position, label in part.ticks.items():
            axes.text(
                place + 0.05,
                position,
                "".join(fonts.shorten([label])),
                va="center",
                fontsize=canvas.FONT,
                color=canvas.INK,
                bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
            )
    return canvas.save(drawing, path)


def _style(axes: "Axes") -> None:
    axes.tick_params(length=0, labelsize=canvas.FONT, colors=canvas.INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
