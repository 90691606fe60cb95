"""Images by class, for networks that make images.

*   `openmoji`: OpenMoji's drawings on white, their classes its groups. In training each
    is turned round and moved by a few pixels at random.
*   `corners`: images of 8 x 8 squares of greys, but for four in each of two corners,
    across from each other, of the same colour from blue to red. A small test of what is
    far apart: whether a image is right is told from its corners alone.
*   `folder`: a folder of folders, one a class, of image files.

Axes: B images; I = J rows and columns of one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import drawings
from data.captions import Photo, read_images
from data.endless import Batch, EndlessBatches
from errors import UserError

SOURCES = ("openmoji", "corners", "folder")
_MOVED = 16  # a drawing moves by at most this part of a side
_KEPT = 2**30  # bytes; more than these are read when they are asked for
_FILES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")


class Files:
    """Images in files, which are read when they are asked for.

    Args:
        paths: N of them.
        size: I; images are scaled to it, and cut where they are longer.
    """

    def __init__(self, paths: Sequence[Path], size: int):
        self._paths, self._size = np.array(paths, object), size

    def __len__(self) -> int:
        """N."""
        return len(self._paths)

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        """Reads the images of a slice or of numbers [B]: uint8 [B, I, I, 3].

        Raises:
            UserError: if one cannot be read.
        """
        photos = [Photo(path, (), self._size) for path in self._paths[which]]
        return np.stack(read_images(photos))


class LabelledImages(NamedTuple):
    """Images of classes.

    Attributes:
        values: uint8 [N, I, J, 3].
        labels: int32 [N].
        names: of the classes.
        moved: whether they are moved and turned round in training.
    """

    values: np.ndarray | Files
    labels: np.ndarray
    names: tuple[str, ...]
    moved: bool = False


def read(
    source: str, size: int, groups: tuple[str, ...], path: str
) -> LabelledImages | None:
    """Returns the images of a source; None of "corners", which are drawn as needed.

    Args:
        source: one of `SOURCES`.
        size: I.
        groups: of OpenMoji; see `openmoji`.
        path: of a folder; see `folder`.

    Raises:
        UserError: for what cannot be downloaded or read.
    """
    if source == "corners":
        return None
    if source == "openmoji":
        return openmoji(size, groups)
    if not path:
        raise UserError(
            "config.data.folder is missing: a folder of folders of images, one a class"
        )
    return folder(Path(path), size)


def openmoji(size: int, groups: tuple[str, ...]) -> LabelledImages:
    """Draws OpenMoji's drawings without those that differ in a skin's tone alone.

    Args:
        size: I.
        groups: see `drawings.select`; each is a class, or all of OpenMoji's groups are.

    Raises:
        UserError: if they cannot be downloaded, or for a group that there is not.
    """
    groups = groups or tuple(sorted({d.group for d in drawings.select(())}))
    chosen = [
        (label, d) for label, g in enumerate(groups) for d in drawings.select([g])
    ]
    labels, found = zip(*chosen, strict=True)
    drawn = drawings.draw(found, size).astype(np.float32)
    opacity = drawn[..., 3:] / 255
    values = opacity * drawn[..., :3] + 255 * (1 - opacity)
    return LabelledImages(
        values.round().astype(np.uint8), np.array(labels, np.int32), groups, True
    )


def folder(path: Path, size: int) -> LabelledImages:
    """Reads a folder of folders of images.

    Args:
        path: of it; the classes are named as its folders.
        size: I; images are scaled to it, and cut where they are longer.

    Returns:
        Them, read already unless they are too many to keep.

    Raises:
        UserError: if there are no classes, a class has no image, or one cannot be
            read.
    """
    found = path.iterdir() if path.is_dir() else ()
    classes = sorted(p for p in found if p.is_dir() and not p.name.startswith("."))
    if not classes:
        raise UserError(
            f"config.data.folder is {str(path)!r}: must be a folder of folders of "
            "images, one a class"
        )
    paths, labels = [], []
    for label, place in enumerate(classes):
        files = sorted(p for p in place.iterdir() if p.suffix.lower() in _FILES)
        if not files:
            raise UserError(f"{place} has no images ({', '.join(_FILES)})")
        paths += files
        labels += [label] * len(files)
    names = tuple(place.name for place in classes)
    values = Files(paths, size)
    if 3 * size**2 * len(values) <= _KEPT:
        values = values[:]
    return LabelledImages(values, np.array(labels, np.int32), names)


def corners(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Draws images whose first and last corner have the same colour.

    Args:
        rng: what they are drawn from.
        count: B.
        size: I, a multiple of 8.

    Returns:
        uint8 [B, I, I, 3].
    """
    values = np.repeat(rng.integers(96, 160, (count, 8, 8, 1)), 3, axis=-1)
    red = rng.integers(0, 256, (count, 1, 1))
    colours = np.stack([red, np.full_like(red, 40), 255 - red], -1)
    values[:, :2, :2] = values[:, -2:, -2:] = colours
    return values.repeat(size // 8, 1).repeat(size // 8, 2).astype(np.uint8)


class Batches(EndlessBatches):
    """Endless batches {"image": uint8 [B, I, I, 3], "label": int32 [B]}.

    Batch i depends on (seed, i) only.

    Args:
        images: what they are drawn from; None for `corners`, which have one class.
        size: I.
        batch_size: B.
        seed: of what is drawn.
    """

    def __init__(
        self, images: LabelledImages | None, size: int, batch_size: int, seed: int
    ):
        super().__init__(seed)
        self._images, self._size = images, size
        self._batch_size = batch_size

    def _batch(self, rng: np.random.Generator, index: int) -> Batch:
        if self._images is None:
            values = corners(rng, self._batch_size, self._size)
            return {"image": values, "label": np.zeros(self._batch_size, np.int32)}
        chosen = rng.integers(0, len(self._images.labels), self._batch_size)
        values = self._images.values[chosen]
        if self._images.moved:
            values = np.stack([_move(rng, value) for value in values])
        return {"image": values, "label": self._images.labels[chosen]}


def _move(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    """A image on white moved, and turned round half of the times."""
    most = len(value) // _MOVED
    up, left = rng.integers(0, 2 * most + 1, 2)
    padding = (most, most), (most, most), (0, 0)
    wide = np.pad(value, padding, constant_values=255)
    moved = wide[up : up + len(value), left : left + len(value)]
    return moved[:, ::-1] if rng.random() < 0.5 else moved
