"""Figures: attention as labelled heat maps, and a score by group as bars.

Matplotlib's object interface only (no pyplot): nothing global is touched, no window
is opened, and figures may be drawn from any thread.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

_CELL = 0.235  # inches a token: room for one label line at _FONT points
_FONT = 8.5
_INK = "#222222"


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

    Returns:
        `path`.

    Raises:
        ValueError: if the labels do not fit `weights`.
    """
    from matplotlib.figure import Figure

    weights = np.asarray(weights, np.float32)
    if weights.ndim != 3 or weights.shape[1:] != (len(rows), len(columns)):
        raise ValueError(
            f"weights {weights.shape} must be [H, {len(rows)} rows, "
            f"{len(columns)} columns]"
        )
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
    axes.set_xticks(range(len(heights)), names, fontsize=9)
    axes.set_xlabel(axis_title, fontsize=9, color="#777777")
    axes.set_title(title, fontsize=11, fontweight="bold", loc="left", color=_INK)
    axes.margins(y=0.15)
    axes.tick_params(length=0, labelsize=9, colors=_INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    return _save(figure, path)


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
