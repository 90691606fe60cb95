"""Class-labelled images for generative models.

*   `openmoji`: OpenMoji's drawings on white; their classes are OpenMoji's groups. In
    training they are mirrored and shifted by a few pixels at random.
*   `corners`: 8 x 8 squares of random greys, except 2 x 2 squares in each of two
    opposite corners, which share a colour between blue and red. A toy data set with a
    long-range dependency: only the two corners show whether an image is correct.
*   `folder`: a folder with one subfolder of image files per class.

Axes: B images of a batch; N images of a data set; I = J rows and columns of an image.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks.captioning import drawings
from tasks.common.batches import ALL, Batch, EndlessBatches, Rows
from tasks.common.images import Photos, image_files, load, read_classes
from tasks.common.user_files import UserFiles

SOURCES = ("openmoji", "corners", "folder")
_SHIFT_PART = 16  # the maximum shift is 1/16 of a side


class LabelledImages(NamedTuple):
    """Images with class labels."""

    values: np.ndarray | Photos  # uint8 [N, I, J, 3]
    labels: np.ndarray  # int32 [N]
    names: tuple[str, ...]  # names of the classes
    augmented: bool = False  # whether training shifts and mirrors the images at random
    paths: tuple[Path, ...] = ()  # the N files of a folder


def openmoji(size: int, groups: tuple[str, ...]) -> LabelledImages:
    """Renders OpenMoji's drawings, without variants that differ only in skin tone.

    Each of the groups is a class, see `drawings.select`; by default OpenMoji's groups.

    Raises:
        UserError: if the drawings cannot be downloaded or a group is unknown.
    """
    groups = groups or tuple(sorted({d.group for d in drawings.select(())}))
    chosen = [
        (label, d) for label, g in enumerate(groups) for d in drawings.select([g])
    ]
    labels, selected = zip(*chosen, strict=True)
    rgba = drawings.draw(selected, size).astype(np.float32)
    opacity = rgba[..., 3:] / 255
    values = opacity * rgba[..., :3] + 255 * (1 - opacity)
    return LabelledImages(
        values.round().astype(np.uint8),
        np.array(labels, np.int32),
        groups,
        augmented=True,
    )


def folder(path: Path, size: int, files: UserFiles | None = None) -> LabelledImages:
    """Reads a folder with one subfolder of images per class.

    Args:
        path: path of the folder; the classes are named after its subfolders.
        size: I; images are scaled and cropped to a square of this side.
        files: those that are left out; by default none are.

    Raises:
        UserError: see `tasks.common.images.read_classes`.
    """
    name = f"config.data.folder is {str(path)!r}"
    paths, classes = zip(*read_classes(path, name, files or image_files()), strict=True)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(classes))}
    labels = np.array([numbers[x] for x in classes], np.int32)
    return LabelledImages(load(paths, size), labels, tuple(numbers), paths=paths)


def corners(
    rng: np.random.Generator, count: int, size: int, rows: Rows = ALL
) -> np.ndarray:
    """Draws images whose top left and bottom right corner have the same colour.

    Args:
        rng: random generator.
        count: B.
        size: I, a multiple of 8.
        rows: images to return, uint8 [B, I, I, 3].
    """
    greys = rng.integers(96, 160, (count, 8, 8, 1))[rows]
    red = rng.integers(0, 256, (count, 1, 1))[rows]
    values = np.repeat(greys, 3, axis=-1)
    colours = np.stack([red, np.full_like(red, 40), 255 - red], -1)
    values[:, :2, :2] = values[:, -2:, -2:] = colours
    return values.repeat(size // 8, 1).repeat(size // 8, 2).astype(np.uint8)


def batches(
    images: LabelledImages | None, size: int, *, batch_size: int, seed: int
) -> EndlessBatches:
    """Returns training batches {"image": uint8 [B, I, I, 3], "label": int32 [B]}.

    Args:
        images: data set; None for `corners`, which have one class.
        size: I.
        batch_size: B.
        seed: seed of the batches.
    """

    def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        if images is None:
            values = corners(rng, batch_size, size, rows)
            return {"image": values, "label": np.zeros(len(rows), np.int32)}
        chosen = rng.integers(0, len(images.labels), batch_size)
        values = images.values[chosen[rows]]
        if images.augmented:
            shift = values.shape[1] // _SHIFT_PART
            draws = [_draw_shift(rng, shift) for _ in chosen]
            values = np.stack(
                [_shift(values[i], shift, *draws[row]) for i, row in enumerate(rows)]
            )
        return {"image": values, "label": images.labels[chosen[rows]]}

    return EndlessBatches(make, batch_size, seed)


def _draw_shift(rng: np.random.Generator, shift: int) -> tuple[int, int, bool]:
    """Draws an offset of at most 2 `shift` on each axis, and whether to mirror."""
    top, left = rng.integers(0, 2 * shift + 1, 2)
    return top, left, rng.random() < 0.5


def _shift(
    value: np.ndarray, shift: int, top: int, left: int, mirror: bool
) -> np.ndarray:
    """Shifts an image on white, and mirrors it."""
    padding = (shift, shift), (shift, shift), (0, 0)
    padded = np.pad(value, padding, constant_values=255)
    shifted = padded[top : top + len(value), left : left + len(value)]
    return shifted[:, ::-1] if mirror else shifted
