"""Images darkened where attention weights are low.

Axes: T words; I, J rows and columns of a map or of an image.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from figures import canvas

_PANELS = 8  # side by side


class Strip(NamedTuple):
    """A caption and its attention maps.

    Attributes:
        words: T words, in order.
        maps: [T, I, J] weights at each word; None draws the image alone.
        boxes: a frame for each word, or None, in pixels: first row, first column, last
            row + 1 and last column + 1; no frames by default.
        label: title over the image.
    """

    words: Sequence[str]
    maps: np.ndarray | None
    boxes: Sequence[Sequence[float] | None] | None = None
    label: str = ""


def caption_strips(
    image: np.ndarray, strips: Sequence[Strip], title: str, path: Path
) -> Path:
    """Draw an image and, for each word, the part of the image that it attends to.

    Follows the figures of Xu et al. (2015): maps are enlarged to the image and
    smoothed; the highest weight has full brightness, zero is dark.

    Args:
        image: uint8 [rows, columns, 3].
        strips: captions of the image, one below the other, wrapped to full lines.
        title: one line above the figure, followed by captions without maps.
        path: the PNG to write; its folder is made.

    Returns:
        `path`.

    Raises:
        ValueError: if there are not as many maps as words.
    """
    lines = []
    for words, maps, boxes, label in strips:
        panels = [(label, None, None)]
        if maps is None:
            title = f"{title}: {' '.join(words)}"
        else:
            if len(maps) != len(words):
                raise ValueError(
                    f"maps {maps.shape} must be [{len(words)} words, I, J]"
                )
            panels += zip(words, maps, boxes or [None] * len(words), strict=True)
        lines += [panels[i : i + _PANELS] for i in range(0, len(panels), _PANELS)]
    side, between, head = 1.15, 0.1, 0.45
    width = 0.3 + max(map(len, lines)) * (side + between)
    height = head + len(lines) * (side + between + 0.22) + 0.1
    figure = canvas.figure(max(width, canvas.title_width(title)), height, title)
    rows, columns = image.shape[:2]
    cells = [
        (row, column, *panel)
        for row, line in enumerate(lines)
        for column, panel in enumerate(line)
    ]
    for row, column, word, weights, box in cells:
        x = 0.2 + column * (side + between)
        y = head + row * (side + between + 0.22) + 0.22
        axes = canvas.axes(figure, x, y, side, side)
        lit = image
        if weights is not None:
            light = _enlarge(weights, rows, columns)[..., None]
            lit = (image * (0.2 + 0.8 * light)).astype(np.uint8)
        axes.imshow(lit)
        axes.set_title(word, fontsize=canvas.FONT, color=canvas.INK, pad=3)
        if box is not None:
            top, left, bottom, right = box
            corners = [left, right, right, left, left], [top, top, bottom, bottom, top]
            outline = (np.array(c) - 0.5 for c in corners)
            axes.plot(*outline, color=canvas.MARK, linewidth=1)
        axes.set_axis_off()
    return canvas.save(figure, path)


def position_strips(
    image: np.ndarray, weights: np.ndarray, margin: float, title: str, path: Path
) -> Path:
    """Draw the attention of five positions: the middle and four near the corners.

    Args:
        image: uint8 [rows, columns, 3].
        weights: [I, J, I, J], from each position to all; absolute values are drawn. I
            and J divide the size of the image.
        margin: distance of the four positions from the edges, as a share of the image's
            sides.
        title: one line above the figure.
        path: the PNG to write; its folder is made.

    Returns:
        `path`.
    """
    rows, columns = weights.shape[:2]
    cell = np.array([len(image) // rows, image.shape[1] // columns])
    centres = [(0.5, 0.5), *itertools.product((margin, 1 - margin), repeat=2)]
    positions = [(int(y * rows), int(x * columns)) for y, x in centres]
    corners = [cell * position for position in positions]
    strip = Strip(
        [f"row {row + 1}, column {column + 1}" for row, column in positions],
        np.stack([np.abs(weights[position]) for position in positions]),
        [(*corner, *(corner + cell)) for corner in corners],
    )
    return caption_strips(image, [strip], title, path)


class MapRecord(Protocol):
    """Attention of one layer over maps; see `models.records.AttentionRecord`."""

    weights: Any


def map_attention(
    images: np.ndarray,
    records: Sequence[MapRecord],
    names: Mapping[str, str],
    margin: float,
    folder: Path,
) -> list[Path]:
    """Draw `position_strips` of images, one file per attention layer and image.

    Args:
        images: uint8 [B, rows, columns, 3].
        records: weights [B, I, J, I, J].
        names: names of the first images in titles, by their suffix in file names.
        margin: see `position_strips`.
        folder: folder of the files, attention_<I>_<suffix>.png.
    """
    paths = []
    for record in records:
        size = record.weights.shape[1]
        rows = zip(images, record.weights, names.items(), strict=False)
        for image, weights, (suffix, name) in rows:
            title = f"Attention of positions of {size} x {size}: {name}"
            path = folder / f"attention_{size}_{suffix}.png"
            paths.append(position_strips(image, weights, margin, title, path))
    return paths


def image_grid(
    images: np.ndarray, names: Sequence[str], title: str, path: Path
) -> Path:
    """Draw a grid of images, with the name of each row at its left.

    Args:
        images: uint8 [rows, columns, I, J, 3].
        names: names of the rows.
        title: one line above the figure.
        path: the PNG to write; its folder is made.

    Returns:
        `path`.
    """
    gap = max(1, images.shape[2] // 16)
    padding = ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0))
    images = np.pad(images, padding, constant_values=255)
    down, across, rows, columns, _ = images.shape
    side, left, head = 0.75, 0.25 + canvas.text_width(names), 0.5
    image_width = side * columns / rows
    width, height = left + across * image_width + 0.2, head + down * side + 0.15
    figure = canvas.figure(max(width, canvas.title_width(title)), height, title)
    axes = canvas.axes(figure, left, head, across * image_width, down * side)
    axes.imshow(images.swapaxes(1, 2).reshape(down * rows, across * columns, 3))
    ticks = (np.arange(down) + 0.5) * rows - 0.5 - gap / 2
    axes.set_yticks(ticks, names, fontsize=canvas.FONT, color=canvas.INK)
    axes.set_xticks([])
    axes.tick_params(length=0, pad=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return canvas.save(figure, path)


def _enlarge(weights: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Weights [I, J] enlarged to an image and smoothed, their maximum 1."""
    from scipy.ndimage import gaussian_filter

    y, x = (
        np.arange(size) * cells // size
        for size, cells in zip((rows, columns), weights.shape, strict=True)
    )
    sigma = rows / weights.shape[0] / 2, columns / weights.shape[1] / 2
    smooth = gaussian_filter(weights[np.ix_(y, x)].astype(np.float32), sigma)
    return smooth / max(smooth.max(), np.finfo(np.float32).tiny)
