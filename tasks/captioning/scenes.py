"""Composed scenes: a few drawings on a canvas, and captions with their cells.

A canvas has a light background and 3 x 3 cells. Each drawing is in its own cell; sizes
and positions within the cells vary slightly. A caption names the drawings and their
cells: "mouse at the top, taco on the right and bee in the middle". The references of a
scene differ in the order of the drawings.

Every pair of drawings belongs to training, validation or test, depending only on its
names. A training scene has only training pairs. A validation scene has at least
one validation pair and no test pair; a test scene has at least one test pair and no
validation pair. So no training scene has the captions or the combination of drawings of
a held-out scene. In addition, some drawings are only in scenes of the
split "novel", one or two in each; every word of their names occurs in the names of
other drawings ("woman farmer": "woman cook" and "man farmer").

Axes: I, J rows and columns of a canvas; N drawings of a scene.
"""

import collections
import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from base.errors import FieldError, UserError
from tasks.captioning.drawings import Drawing, draw
from tasks.common.splits import SPLITS

CELLS = (
    "in the top left corner",
    "at the top",
    "in the top right corner",
    "on the left",
    "in the middle",
    "on the right",
    "in the bottom left corner",
    "at the bottom",
    "in the bottom right corner",
)
_SPLITS = (*SPLITS, "novel")
_PARTS = 10  # a tenth of all pairs is for validation and a tenth for test
_NOVEL = 3  # one in three eligible drawings is novel
_MAX_SIZE = 1024  # pixels
_MIN_SCALE = 0.8  # minimum side of a drawing relative to its cell's
_MIN_BACKGROUND = 200  # minimum brightness of the background


@dataclasses.dataclass(frozen=True)
class Scene:
    """An image of N drawings, and its captions."""

    compose: Callable[[], np.ndarray]  # returns the image, uint8 [I, J, 3]
    names: tuple[str, ...]  # names of the drawings
    cells: tuple[str, ...]  # their cells, in `CELLS`
    # int [N, 4], in pixels: top row, left column, bottom row + 1, right column + 1
    boxes: np.ndarray
    # reference captions, which differ in the order of the drawings
    captions: tuple[str, ...]

    @functools.cached_property
    def image(self) -> np.ndarray:
        """The image, composed on first use."""
        return self.compose()

    def identity(self) -> bytes:
        """Returns a cache key of the image."""
        return self.image.tobytes()


@dataclasses.dataclass
class Scenes:
    """Endless random access to scenes; scene i depends on (seed, split, i) only.

    Raises:
        UserError: if the size is too large or there are too few drawings.
    """

    drawings: Sequence[Drawing]  # to compose scenes of
    split: str  # "train", "validation", "test" or "novel"
    _: dataclasses.KW_ONLY
    size: int  # I = J, in pixels
    min_objects: int = 2  # minimum number of drawings of a scene
    max_objects: int = 4
    references: int = 4  # captions of a scene; at most N!, the number of orders
    seed: int = 0

    def __post_init__(self):
        if self.size > _MAX_SIZE:
            accepted = f"at most {_MAX_SIZE} for scenes"
            raise FieldError("config.data.size", self.size, accepted)
        held_out = novel(self.drawings)
        self._common = [d for d in self.drawings if d not in held_out]
        self._novel = [d for d in self.drawings if d in held_out]
        if len(self._common) < 2 * _PARTS:
            raise UserError(
                f"config.data.groups has {len(self._common)} drawings that are not "
                f"novel: must be at least {2 * _PARTS}"
            )
        if self.split == "novel" and not self._novel:
            raise UserError("config.data.groups has no novel drawings")
        self._counts = range(self.min_objects, self.max_objects + 1)
        cell = self.size // 3
        self._sizes = np.unique(np.linspace(_MIN_SCALE * cell, cell, 3).astype(int))

    def __getitem__(self, index: int) -> Scene:
        """Returns scene `index`, for any index from 0."""
        key = (self.seed, _SPLITS.index(self.split), index, 1)
        rng = np.random.default_rng(key)
        drawings = self._draw(rng)
        cells = rng.permutation(len(CELLS))[: len(drawings)]
        background = rng.integers(_MIN_BACKGROUND, 256, 3)
        boxes, sprites = np.zeros((len(drawings), 4), int), []
        for drawing, cell, box in zip(drawings, cells, boxes, strict=True):
            side = int(rng.choice(self._sizes))
            margin = self.size // 3 - side
            corner = np.array(divmod(int(cell), 3)) * (self.size // 3)
            top, left = corner + rng.integers(0, margin + 1, 2)
            box[:] = top, left, top + side, left + side
            sprites.append(_sprites(tuple(self.drawings), side)[drawing])
        return Scene(
            functools.partial(_compose, self.size, background, sprites, boxes),
            tuple(drawing.name for drawing in drawings),
            tuple(CELLS[cell] for cell in cells),
            boxes,
            self._captions(rng, drawings, cells),
        )

    def _draw(self, rng: np.random.Generator) -> list[Drawing]:
        """Draws the drawings of a scene until they belong to the split."""
        count = int(rng.choice(self._counts))
        if self.split == "novel":
            novel_count = min(int(rng.integers(1, 3)), len(self._novel), count)
            drawings = _choose(rng, self._novel, novel_count)
            drawings += _choose(rng, self._common, count - novel_count)
            return [drawings[i] for i in rng.permutation(count)]
        while True:
            drawings = _choose(rng, self._common, count)
            if split_of([drawing.name for drawing in drawings]) == self.split:
                return drawings

    def _captions(self, rng, drawings, cells) -> tuple[str, ...]:
        parts = [f"{d.name} {CELLS[c]}" for d, c in zip(drawings, cells, strict=True)]
        captions = []
        while len(captions) < min(self.references, math.factorial(len(parts))):
            order = [parts[i] for i in rng.permutation(len(parts))]
            caption = f"{', '.join(order[:-1])} and {order[-1]}"
            if caption not in captions:
                captions.append(caption)
        return tuple(captions)


class Mention(NamedTuple):
    """An object that a caption mentions, and its cell."""

    name: str  # name of the object
    cell: str  # its cell according to the caption, in `CELLS`
    first: int  # index of the first word of the name in the caption
    last: int  # index after the last word of the name


def mentions(words: Sequence[str]) -> list[Mention]:
    """Returns the objects and cells in a caption; ignores words after the last cell."""
    objects, first = [], 0
    for i in range(len(words)):
        for cell in CELLS:
            phrase = cell.split()
            if first < i and list(words[i : i + len(phrase)]) == phrase:
                objects.append(Mention(" ".join(words[first:i]), cell, first, i))
                first = i + len(phrase)
                first += list(words[first : first + 1]) == ["and"]
    return objects


def split_of(names: Sequence[str]) -> str:
    """Returns the split of two or more names of common drawings; "" for none."""
    parts = set()  # 0 for validation, 1 for test, 2 for training
    for i, first in enumerate(names):
        for second in names[:i]:
            pair = "+".join(sorted((first, second)))
            parts.add(min(zlib.crc32(pair.encode()) % _PARTS, 2))
    if parts == {2}:
        return "train"
    return ("validation", "test")[min(parts)] if not {0, 1} <= parts else ""


def novel(drawings: Sequence[Drawing]) -> set[Drawing]:
    """Returns the drawings of the split "novel".

    Every word of their names is in the names of at least two other drawings.
    """
    count = collections.Counter(w for d in drawings for w in set(d.name.split()))
    selected = set()
    for drawing in sorted(drawings, key=lambda d: zlib.crc32(d.name.encode())):
        words = set(drawing.name.split())
        chosen = zlib.crc32(b"novel " + drawing.name.encode()) % _NOVEL == 0
        # Two or more of the remaining drawings must have each word.
        if chosen and len(words) > 1 and all(count[word] > 2 for word in words):
            selected.add(drawing)
            count.subtract(words)
    return selected


def _compose(size, background, sprites, boxes) -> np.ndarray:
    image = np.empty((size, size, 3), np.uint8)
    image[:] = background
    for sprite, (top, left, bottom, right) in zip(sprites, boxes, strict=True):
        colours, alpha = np.split(sprite.astype(np.float32), [3], -1)
        region = image[top:bottom, left:right]
        region[:] = (region + alpha / 255 * (colours - region)).round()
    return image


@functools.lru_cache(16)
def _sprites(drawings: tuple[Drawing, ...], side: int) -> dict[Drawing, np.ndarray]:
    """Drawings as uint8 [side, side, 4]; rendered together, to open the file once."""
    return dict(zip(drawings, draw(drawings, side), strict=True))


def _choose(rng, drawings: Sequence[Drawing], count: int) -> list[Drawing]:
    indices = rng.choice(len(drawings), count, replace=False)
    return [drawings[i] for i in indices]
