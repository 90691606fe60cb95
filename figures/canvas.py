"""Building blocks of all figures: sizes, colours, axes, heat maps, saving.

Uses matplotlib's object interface, not pyplot: no global state, no windows, and figures
can be drawn from any thread. Sizes and positions are in inches from a figure's top left
corner. Matplotlib is imported on first use, so that training runs without it.

Axes: Q queries; K keys.
"""

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DPI = 150
CELL = 0.235  # side of a heat map's cell, enough for a line of text at FONT points
FONT = 8.5  # points
LABEL = 0.15  # height of a label at FONT points
INK = "#222222"
GREY = "#777777"
FRAME = "#bbbbbb"
GRID = "#e9e9e9"
MARK = "#e66100"  # stands out on every blue of `colour_map`; colour-blind safe
# Okabe and Ito (2008), colour-blind safe.
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00")


def available() -> bool:
    """Returns True if matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def require() -> None:
    """Checks that figures can be drawn.

    Raises:
        UserError: if matplotlib is not installed.
    """
    if not available():
        raise UserError("figures need matplotlib, which is not installed")


def figure(width: float, height: float, title: str) -> "Figure":
    """Returns a white figure with its title in the top left corner."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    canvas.text(
        0.15 / width,
        1 - 0.15 / height,
        title,
        ha="left",
        va="top",
        fontsize=12,
        fontweight="bold",
        color=INK,
    )
    return canvas


def axes(canvas: "Figure", x: float, y: float, width: float, height: float) -> "Axes":
    """Adds axes with their top left corner at (x, y)."""
    total_width, total_height = canvas.get_size_inches()
    return canvas.add_axes(
        (
            x / total_width,
            1 - (y + height) / total_height,
            width / total_width,
            height / total_height,
        )
    )


def heatmap(
    panel: "Axes",
    weights: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    scale: float,
    *,
    rotation: int = 90,
) -> "AxesImage":
    """Draws a heat map with as many labels as fit.

    Args:
        panel: axes to draw in; their size determines how many labels fit.
        weights: [Q, K] in [0, scale].
        rows: Q labels.
        columns: K labels, drawn above the map.
        scale: weight of the darkest colour.
        rotation: rotation of the column labels in degrees.

    Returns:
        The image, to pass to `colour_bar`.
    """
    queries, keys = weights.shape
    image = panel.imshow(weights, cmap=colour_map(), vmin=0, vmax=scale, aspect="auto")
    box = panel.get_window_extent()
    column_room = text_width(columns[-1:]) if rotation == 0 else LABEL
    for axis, labels, size, room, degrees in (
        (panel.xaxis, columns, box.width, column_room, rotation),
        (panel.yaxis, rows, box.height, LABEL, 0),
    ):
        stride = math.ceil(room * DPI * len(labels) / size)
        ticks = range(0, len(labels), stride)
        axis.set_ticks(ticks, labels[::stride], rotation=degrees, fontsize=FONT)
    panel.xaxis.tick_top()
    panel.tick_params(length=0, pad=3, colors=INK)
    panel.set_xticks(np.arange(keys + 1) - 0.5, minor=True)
    panel.set_yticks(np.arange(queries + 1) - 0.5, minor=True)
    panel.grid(which="minor", color=GRID, linewidth=0.5)
    panel.tick_params(which="minor", length=0)
    for spine in panel.spines.values():
        spine.set_color(FRAME)
    return image


def colour_bar(
    canvas: "Figure", image: "AxesImage", x: float, y: float, height: float
) -> None:
    """Draws the colour scale of an image with its top left corner at (x, y)."""
    bar = canvas.colorbar(image, cax=axes(canvas, x=x, y=y, width=0.12, height=height))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=FONT, length=2, colors=INK)


def colour_map() -> "LinearSegmentedColormap":
    """Returns a colour map from white, for zero weight, to dark blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "attention", ["#ffffff", "#dbe9f6", "#9ecae1", "#4292c6", "#08519c", "#08264f"]
    )


def text_width(labels: Sequence[str]) -> float:
    """Estimates the width of the longest label at FONT points."""
    return 0.072 * max((len(label) for label in labels), default=0) + 0.05


def title_width(title: str) -> float:
    """Estimates the width of a figure's title with its margins."""
    return 0.6 + 0.095 * len(title)


def save(canvas: "Figure", path: Path) -> Path:
    """Saves a figure as PNG, creating its folder, and returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path)
    return path
