"""Images, darkened at positions with low attention weights.

Axes: B images; T words; I, J rows and columns of a map or of an image.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from base.records import AttentionRecord
from figures import canvas, fonts
from figures.drawings import drawing

_PANELS = 8  # maximum number of panels side by side
_MAX_LINES = 3  # maximum number of rows of panels of a caption
_MAX_SIDE = 400  # maximum rows and columns of an image that are drawn


class Strip(NamedTuple):
    """A caption and its attention maps.

    Attributes:
        words: T words, in order.
        maps: [T, I, J] weights of each word; None to draw only the image.
        boxes: frame of each word in pixels, as first row, first column, last row + 1
            and last column + 1, or None for no frame.
        label: title of the image.
    """

    words: Sequence[str]
    maps: np.ndarray | None
    boxes: Sequence[Sequence[float] | None] | None = None
    label: str = ""


@drawing
def caption_strips(
    image: np.ndarray,
    strips: Sequence[Strip],
    title: str,
    path: Path,
    *,
    references: Sequence[str] = (),
    note: str = "",
) -> Path:
    """Draws an image and, for each word, the part of the image that it attends to.

    Follows the figures of Xu et al. (2015): maps are enlarged to the image and
    smoothed; the maximum weight has full brightness, zero is dark.

    Args:
        image: [rows, columns, 3] uint8.
        strips: captions of the image, drawn one below the other.
        title: title of the figure, followed by captions without maps.
        path: PNG file to write; its folder is created.
        references: captions by people, in the words of `strips`. The first is shown;
            words that are in none of them have another colour.
        note: meaning of the brightness, if it is not that of weights.

    Raises:
        ValueError: if the numbers of maps and words differ.
    """
    right = {word for reference in references for word in reference.split()}
    lines, limit = [], _MAX_LINES * _PANELS
    for words, maps, boxes, label in strips:
        panels, wrong = [(label, None, None, False)], []
        if maps is None:
            title = f"{title}: {' '.join(words) or '(empty)'}"
        else:
            if len(maps) != len(words):
                raise ValueError(
                    f"maps must have shape ({len(words)} words, I, J), got {maps.shape}"
                )
            wrong = [bool(right) and word not in right for word in words]
            boxes = boxes or [None] * len(words)
            panels += zip(words, maps, boxes, wrong, strict=True)
        if len(panels) > limit:
            title += f" (the first {limit - 1} of {len(words)} words)"
            panels = panels[:limit]
        lines += [panels[i : i + _PANELS] for i in range(0, len(panels), _PANELS)]
    side, between, head, foot = 1.15, 0.1, 0.45, 0.3
    names = [[fonts.wrap(x[0], side, canvas.FONT, lines=2) for x in y] for y in lines]
    word_room = 0.07 + canvas.LABEL * max(len(x) for x in itertools.chain(*names))
    pitch = word_room + side + 0.14 + between
    width = 0.3 + max(map(len, lines)) * (side + between)
    width = max(width, canvas.title_width(title))
    below = [f"reference: {references[0]}"] if references else []
    below = [x for text in below for x in fonts.wrap(text, width - 0.4, canvas.FONT)]
    foot += canvas.LABEL * len(below)
    figure = canvas.figure(width, head + len(lines) * pitch + foot, title)
    # Not more pixels than are drawn.
    rows, columns = image.shape[:2]
    image = image[:: -(-rows // _MAX_SIDE), :: -(-columns // _MAX_SIDE)]
    cells = [
        (row, column, *panel[1:])
        for row, line in enumerate(lines)
        for column, panel in enumerate(line)
    ]
    for row, column, weights, box, is_wrong in cells:
        x, y = 0.2 + column * (side + between), head + row * pitch + word_room
        axes = canvas.axes(figure, x=x, y=y, width=side, height=side)
        shaded = image
        if weights is not None:
            brightness = 0.2 + 0.8 * _enlarge(weights, *image.shape[:2])
            shaded = (image * brightness[..., None]).astype(np.uint8)
        if weights is not None and not note:
            axes.text(
                0.5,
                -0.03,
                f"max {np.max(weights):.2g}",
                transform=axes.transAxes,
                ha="center",
                va="top",
                fontsize=7,
                color=canvas.GREY,
            )
        axes.imshow(shaded, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5))
        axes.autoscale(False)  # a frame may lie partly outside of the image
        colour = canvas.MARK if is_wrong else canvas.INK
        name = "\n".join(names[row][column])
        axes.set_title(name, fontsize=canvas.FONT, color=colour, pad=3)
        if box is not None:
            top, left, bottom, right = box
            corners = [left, right, right, left, left], [top, top, bottom, bottom, top]
            outline = (np.array(c) - 0.5 for c in corners)
            axes.plot(*outline, color=canvas.MARK, linewidth=1)
        axes.set(xticks=[], yticks=[])
        axes.set_axis_off()
    notes = below
    if any(weights is not None for *_, weights, _, _ in cells):
        notes += [note or "brightness: weight / maximum weight of the panel"]
        if any(is_wrong for *_, is_wrong in cells):
            notes[-1] += "; orange: a word that is in no reference"
    if notes:
        canvas.footnote(figure, "\n".join(notes))
    return canvas.save(figure, path)


def position_strips(
    image: np.ndarray, weights: np.ndarray, margin: float, title: str, path: Path
) -> Path:
    """Draws the attention of five positions: the centre and four near the corners.

    Args:
        image: [rows, columns, 3] uint8.
        weights: [I, J, I, J], from each position to all; absolute values are drawn. I
            and J divide the size of the image.
        margin: distance of the four positions from the edges, as a fraction of the
            image's sides.
        title: title of the figure.
        path: PNG file to write; its folder is created.
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
    return caption_strips(image, [strip], title=title, path=path)


def map_attention(
    images: np.ndarray,
    records: Sequence[AttentionRecord],
    names: Mapping[str, str],
    margin: float,
    folder: Path,
) -> list[Path]:
    """Draws `position_strips` of images, one file per attention layer and image.

    The images are [B, rows, columns, 3] uint8, the weights of the records [B, I, J, I,
    J]. `names` are the suffixes of the files attention_<I>_<suffix>.png and the titles
    of the first images, in order.
    """
    paths = []
    for record in records:
        size = record.weights.shape[1]
        drawn = zip(images, record.weights, names.items(), strict=False)
        for image, weights, (suffix, name) in drawn:
            title = f"Attention in the {size} x {size} map: {name}"
            path = folder / f"attention_{size}_{suffix}.png"
            paths.append(
                position_strips(image, weights, margin=margin, title=title, path=path)
            )
    return paths


@drawing
def image_grid(
    images: np.ndarray, names: Sequence[str], title: str, path: Path
) -> Path:
    """Draws images [rows, columns, I, J, 3] uint8 in a grid, with names of the rows."""
    gap = max(1, images.shape[2] // 16)
    padding = ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0))
    images = np.pad(images, padding, constant_values=255)
    down, across, rows, columns, _ = images.shape
    left, head = 0.25 + canvas.text_width(names), 0.5
    room = (canvas.MAX_SIZE - left - 0.2) / (across * columns / rows)
    side = min(0.75, room, (canvas.MAX_SIZE - 1) / down)
    image_width = side * columns / rows
    width, height = left + across * image_width + 0.2, head + down * side + 0.15
    figure = canvas.figure(max(width, canvas.title_width(title)), height, title)
    axes = canvas.axes(
        figure, x=left, y=head, width=across * image_width, height=down * side
    )
    axes.imshow(images.swapaxes(1, 2).reshape(down * rows, across * columns, 3))
    ticks = (np.arange(down) + 0.5) * rows - 0.5 - gap / 2
    axes.set_yticks(ticks, fonts.shorten(names), fontsize=canvas.FONT, color=canvas.INK)
    axes.set_xticks([])
    axes.tick_params(length=0, pad=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return canvas.save(figure, path)


def _enlarge(weights: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Weights [I, J] enlarged to [rows, columns] and smoothed, with maximum 1."""
    from scipy.ndimage import gaussian_filter

    y, x = (
        np.arange(size) * cells // size
        for size, cells in zip((rows, columns), weights.shape, strict=True)
    )
    sigma = rows / weights.shape[0] / 2, columns / weights.shape[1] / 2
    smooth = gaussian_filter(weights[np.ix_(y, x)].astype(np.float32), sigma)
    return smooth / max(smooth.max(), np.finfo(np.float32).tiny)
