"""Building blocks of all figures: sizes, colours, axes, heat maps, saving.

Uses matplotlib's object interface, not pyplot: no global state, no windows, and figures
can be drawn from any thread. Sizes and positions are in inches from a figure's top left
corner. Matplotlib is imported on first use, so that training runs without it.

Axes: Q queries; K keys.
"""

import importlib.util
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from base.errors import UserError
from figures import drawings, fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DPI = 150
MAX_PIXELS = 4000  # of a figure's width and of its height
MAX_SIZE = MAX_PIXELS / DPI  # inches
CELL = 0.235  # side of a heat map's cell, enough for a line of text at FONT points
FONT = 8.5  # points
LABEL = 0.15  # height of a label at FONT points
INK = "#222222"
_TITLE = 12  # points, of a figure's title
_TITLE_LINE = 0.21  # height of a line of the title
_MARGIN = 0.15  # around the title
_WIDE = 6.0  # width of a figure for a title that is wrapped
_MIN_CELL = 2  # pixels
_MIN_GRID = 8  # pixels of a cell with lines around it
_MEASURED = 200  # maximum number of labels whose widths are measured
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
    """Returns a white figure with its title, wrapped, in the top left corner.

    `axes` moves down by the height of the lines of the title after the first.
    """
    from matplotlib.figure import Figure

    lines = fonts.wrap(title, width - 2 * _MARGIN, _TITLE, bold=True)
    height += (len(lines) - 1) * _TITLE_LINE
    canvas = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    for number, line in enumerate(lines):
        canvas.text(
            _MARGIN / width,
            1 - (_MARGIN + number * _TITLE_LINE) / height,
            line,
            ha="left",
            va="top",
            fontsize=_TITLE,
            fontweight="bold",
            color=INK,
        )
    return canvas


def axes(canvas: "Figure", x: float, y: float, width: float, height: float) -> "Axes":
    """Adds axes with their top left corner at (x, y) below a title of one line."""
    total_width, total_height = canvas.get_size_inches()
    y += (len(canvas.texts) - 1) * _TITLE_LINE
    return canvas.add_axes(
        (
            x / total_width,
            1 - (y + height) / total_height,
            width / total_width,
            height / total_height,
        )
    )


def blocks(shape: tuple[int, int], width: float, height: float) -> tuple[int, int]:
    """Returns the rows and columns of weights that a cell of a heat map has to show.

    The weights have the shape [Q, K]; width and height of the map are in inches.
    """
    pixels = (height * DPI, width * DPI)
    rows, columns = (
        math.ceil(_MIN_CELL * n / size) for n, size in zip(shape, pixels, strict=True)
    )
    return max(rows, 1), max(columns, 1)


def pool(values: np.ndarray, down: int, across: int) -> np.ndarray:
    """Returns the value of largest magnitude of each block of `down` x `across`."""
    rows, columns = values.shape
    values = np.pad(values, ((0, -rows % down), (0, -columns % across)))
    parts = values.reshape(len(values) // down, down, -1, across)
    high, low = parts.max((1, 3)), parts.min((1, 3))
    return np.where(-low > high, low, high)


def extent(
    shape: tuple[int, int], down: int, across: int
) -> tuple[float, float, float, float]:
    """Returns `imshow`'s extent of a pooled map, in positions of its values."""
    rows, columns = (-(-n // b) * b for n, b in zip(shape, (down, across), strict=True))
    return -0.5, columns - 0.5, rows - 0.5, -0.5


def blocks_note(rows: int, columns: int) -> str:
    """Returns the end of a title that says what the cells of `heatmap` show, or ""."""
    if rows == columns == 1:
        return ""
    return f" (each cell: maximum of {rows} x {columns})"


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

    Large weights are drawn in `blocks`, which the caller's title states; positions on
    the axes remain those of the weights.

    Args:
        panel: axes to draw in; their size determines how many labels fit.
        weights: [Q, K] in [0, scale].
        rows: Q labels; empty for none.
        columns: K labels, drawn above the map.
        scale: weight of the darkest colour, see `weight_norm`.
        rotation: rotation of the column labels in degrees.

    Returns:
        The image, to pass to `colour_bar`.
    """
    queries, keys = weights.shape
    box = panel.get_window_extent()
    down, across = blocks(weights.shape, box.width / DPI, box.height / DPI)
    image = panel.imshow(
        pool(weights, down, across),
        cmap=colour_map(),
        norm=weight_norm(scale),
        aspect="auto",
        interpolation="nearest",
        extent=extent(weights.shape, down, across),
    )
    panel.set(xlim=(-0.5, keys - 0.5), ylim=(queries - 0.5, -0.5))
    column_room = text_width(columns[-1:]) if rotation == 0 else LABEL
    for axis, labels, size, room, degrees in (
        (panel.xaxis, columns, box.width, column_room, rotation),
        (panel.yaxis, rows, box.height, LABEL, 0),
    ):
        stride = max(1, math.ceil(room * DPI * len(labels) / size))
        positions, labels = range(0, len(labels), stride), labels[::stride]
        axis.set_ticks(
            positions, fonts.shorten(labels), rotation=degrees, fontsize=FONT
        )
    panel.xaxis.tick_top()
    panel.tick_params(length=0, pad=3, colors=INK)
    if min(box.width / keys, box.height / queries) >= _MIN_GRID:
        between_keys, between_queries = np.arange(1, keys), np.arange(1, queries)
        style = {"color": GRID, "linewidth": 0.5, "zorder": 1}
        panel.vlines(between_keys - 0.5, -0.5, queries - 0.5, **style)
        panel.hlines(between_queries - 0.5, -0.5, keys - 0.5, **style)
    for spine in panel.spines.values():
        spine.set_color(FRAME)
    return image


def colour_bar(
    canvas: "Figure",
    image: "AxesImage",
    x: float,
    y: float,
    height: float,
    *,
    name: str = "",
    uniform: float = 0.0,
) -> None:
    """Draws the colour scale of an image, from its top left corner at (x, y) in inches.

    The weight `uniform` of each key, if all have the same, is marked; 0 for no mark.
    """
    bar = canvas.colorbar(image, cax=axes(canvas, x=x, y=y, width=0.12, height=height))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=FONT, length=2, colors=INK)
    if 0 < uniform < 1 and image.norm.vmax == 1:
        at = height * image.norm(uniform)
        marked = {
            x: f"{x:g}"
            for x in (0, 0.1, 0.25, 0.5, 1)
            if abs(height * image.norm(x) - at) > LABEL
        }
        marked[uniform] = f"1/{1 / uniform:.0f} uniform"
        bar.set_ticks(list(marked), labels=list(marked.values()))
        bar.ax.get_yticklabels()[-1].set_color(MARK)
        bar.ax.axhline(uniform, color=MARK, linewidth=1.5)
    if name:
        bar.set_label(fonts.readable(name), fontsize=FONT, color=GREY, labelpad=4)


def colour_map() -> "LinearSegmentedColormap":
    """Returns a colour map from white, for zero weight, to dark blue."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "attention", ["#ffffff", "#dbe9f6", "#9ecae1", "#4292c6", "#08519c", "#08264f"]
    )


def footnote(canvas: "Figure", text: str) -> None:
    """Writes a note in the bottom left corner; call it after the last `axes`."""
    width, height = canvas.get_size_inches()
    canvas.text(
        _MARGIN / width,
        0.1 / height,
        text,
        ha="left",
        va="bottom",
        fontsize=7,
        color=GREY,
    )


def weight_norm(scale: float = 1.0) -> "PowerNorm":
    """Returns the colour scale of weights: the same colour, the same weight.

    Dark is strong in every figure: the scale ends at 1, not at the maximum. It is
    linear in the square root, so that weights of 0.01 and 0.1 are visible.
    """
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=scale)


def share_titles(panels: Sequence["Axes"], x_title: str, y_title: str) -> None:
    """Writes titles of the axes that all panels share, each once.

    They are at the figure's bottom, centred below the panels, and at its left. Call it
    when all panels have their places.
    """
    canvas = panels[0].figure
    width, height = canvas.get_size_inches()
    places = [panel.get_position() for panel in panels]
    left, right = min(x.x0 for x in places), max(x.x1 for x in places)
    room = (fonts.width(x_title, 10) / 2 + 0.1) / width
    x = max((left + right) / 2, room)
    y = (min(x.y0 for x in places) + max(x.y1 for x in places)) / 2
    style = {"fontsize": 10, "color": GREY}
    panels[0].set_xlabel(x_title, va="bottom", **style)
    panels[0].xaxis.set_label_coords(x, 0.08 / height, transform=canvas.transFigure)
    panels[0].set_ylabel(y_title, va="top", **style)
    panels[0].yaxis.set_label_coords(0.1 / width, y, transform=canvas.transFigure)


def text_width(
    labels: Iterable[str], size: float = FONT, limit: int = fonts.MAX_LABEL
) -> float:
    """Returns the width of the widest label in inches; see `fonts.shorten`."""
    longest = sorted(set(labels), key=lambda x: (len(x), x))[-_MEASURED:]
    widths = (fonts.width(x, size) for x in fonts.shorten(longest, limit))
    return max(widths, default=0.0) + 0.05


def title_width(title: str) -> float:
    """Returns the width of a figure for its title: longer titles are wrapped."""
    return min(_WIDE, fonts.width(title, _TITLE, bold=True) + 2.1 * _MARGIN)


def save(canvas: "Figure", path: Path) -> Path:
    """Saves a figure as PNG, creating its folder, and returns the path.

    All texts are drawn literally, without TeX, in fonts that have their characters. A
    figure of more than MAX_PIXELS per side is scaled down to that.
    """
    from matplotlib.text import Text

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for text in canvas.findobj(Text):
        text.set(parse_math=False, fontfamily=fonts.families())
    side = max(canvas.get_size_inches())
    dpi = min(DPI, MAX_PIXELS / side)
    canvas.savefig(path, dpi=dpi)
    if metadata := drawings.metadata(canvas):  # the labels of ticks are known now
        canvas.savefig(path, dpi=dpi, metadata=metadata)
    return path
