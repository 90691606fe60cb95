"""Composed scenes: two to four drawings on a canvas, and captions of what is where.

A canvas has 3 x 3 cells. Each drawing has a cell of its own, in which its size and its
place vary a little, on a ground of a light colour. A caption names drawings and cells:
"mouse at the top, taco on the right and bee in the middle"; the references of a scene
differ in the order in which they do.

What is held out: every pair of drawings belongs to training, validation or test, by its
names alone. A scene of training has pairs of training only; one of another split has a
pair of it and none of the third, so that no caption of it is ever seen in training, and
neither are all its drawings together. Besides, some drawings are in no scene but those
of the split "novel", which has one or two each: every word of their names is known from
others ("woman farmer" from "woman cook" and "man farmer").

Axes: B scenes; I, J rows and columns of a canvas; N drawings of a scene.
"""

import collections
import functools
import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data.drawings import Drawing, draw
from data.splits import SPLITS
from errors import UserError

CELLS = (
    *("in the top left corner", "at the top", "in the top right corner"),
    *("on the left", "in the middle", "on the right"),
    *("in the bottom left corner", "at the bottom", "in the bottom right corner"),
)
_SPLITS = (*SPLITS, "novel")
_PARTS = 10  # of the pairs, one is for validation and one for test
_NOVEL = 3  # of the names that others explain, one is held out
_SHRINK = 0.8  # the smallest drawing, of the largest
_LIGHT = 200  # the darkest ground


class Scene(NamedTuple):
    """A image and what is in it.

    Attributes:
        image: uint8 [I, J, 3].
        names: of the N drawings.
        cells: where they are, of `CELLS`.
        boxes: int [N, 4]: first row, first column, last row + 1, last column + 1.
        captions: one in each order.
    """

    image: np.ndarray
    names: tuple[str, ...]
    cells: tuple[str, ...]
    boxes: np.ndarray
    captions: tuple[str, ...]

    def identity(self) -> bytes:
        """Tells it from others."""
        return self.image.tobytes()


class Scenes:
    """Endless random access to the scenes of a split: i depends on (seed, split, i).

    Args:
        drawings: what may be in a scene.
        split: "train", "validation", "test" or "novel".
        size: I = J, pixels.
        min_objects, max_objects: drawings per scene, N.
        references: captions of a scene, at most N!.
        seed: of what is drawn.

    Raises:
        UserError: for a number out of its range, or too few drawings.
    """

    def __init__(
        self,
        drawings: Sequence[Drawing],
        split: str,
        *,
        size: int,
        min_objects: int = 2,
        max_objects: int = 4,
        references: int = 4,
        seed: int = 0,
    ):
        if split not in _SPLITS:
            raise UserError(f"split is {split}: must be one of {', '.join(_SPLITS)}")
        ranges = {
            "size": (size, 24, 1024),
            "min_objects": (min_objects, 2, len(CELLS)),
            "max_objects": (max_objects, min_objects, len(CELLS)),
            "references": (references, 1, 24),
        }
        for name, (value, low, high) in ranges.items():
            if not low <= value <= high:
                raise UserError(f"config.data.{name} is {value}: must be {low}..{high}")
        self._drawings = tuple(drawings)
        held_out = novel(drawings)
        self._known = [d for d in drawings if d not in held_out]
        self._novel = [d for d in drawings if d in held_out]
        if len(self._known) < 2 * _PARTS:
            raise UserError(
                f"config.data.groups has {len(drawings)} drawings: too few for scenes"
            )
        if split == "novel" and not self._novel:
            raise UserError("the drawings of config.data.groups have no novel names")
        self._split, self._size = split, size
        self._counts = range(min_objects, max_objects + 1)
        self._references, self._seed = references, seed
        cell = size // 3
        self._sizes = np.unique(np.linspace(_SHRINK * cell, cell, 3).astype(int))

    def __getitem__(self, index: int) -> Scene:
        """Scene `index`, for any index from 0."""
        if index < 0:
            raise IndexError(index)
        key = (self._seed, _SPLITS.index(self._split), index, 1)
        rng = np.random.default_rng(key)
        drawings = self._draw(rng)
        cells = rng.permutation(len(CELLS))[: len(drawings)]
        image = np.empty((self._size, self._size, 3), np.uint8)
        image[:] = rng.integers(_LIGHT, 256, 3)
        boxes = np.zeros((len(drawings), 4), int)
        for drawing, cell, box in zip(drawings, cells, boxes, strict=True):
            side = int(rng.choice(self._sizes))
            free = self._size // 3 - side
            corner = np.array(divmod(int(cell), 3)) * (self._size // 3)
            top, left = corner + rng.integers(0, free + 1, 2)
            box[:] = top, left, top + side, left + side
            sprite = _sprites(self._drawings, side)[drawing].astype(np.float32)
            part = image[top : top + side, left : left + side]
            blend = part + sprite[..., 3:] / 255 * (sprite[..., :3] - part)
            part[:] = blend.round()
        return Scene(
            image,
            tuple(drawing.name for drawing in drawings),
            tuple(CELLS[cell] for cell in cells),
            boxes,
            self._captions(rng, drawings, cells),
        )

    def _draw(self, rng: np.random.Generator) -> list[Drawing]:
        """Draws how many are in a scene, and which until it is one of this split."""
        count = int(rng.choice(self._counts))
        if self._split == "novel":
            fresh = min(int(rng.integers(1, 3)), len(self._novel), count)
            found = _choose(rng, self._novel, fresh)
            found += _choose(rng, self._known, count - fresh)
            return [found[i] for i in rng.permutation(count)]
        while True:
            found = _choose(rng, self._known, count)
            if split_of([drawing.name for drawing in found]) == self._split:
                return found

    def _captions(self, rng, drawings, cells) -> tuple[str, ...]:
        parts = [f"{d.name} {CELLS[c]}" for d, c in zip(drawings, cells, strict=True)]
        captions = []
        while len(captions) < min(self._references, math.factorial(len(parts))):
            order = [parts[i] for i in rng.permutation(len(parts))]
            caption = f"{', '.join(order[:-1])} and {order[-1]}"
            if caption not in captions:
                captions.append(caption)
        return tuple(captions)


class Mention(NamedTuple):
    """An object that a caption mentions, and its position.

    Attributes:
        name: of a thing.
        cell: where it is said to be.
        first, last: the words of the name are first..last - 1 of the caption's.
    """

    name: str
    cell: str
    first: int
    last: int


def mentions(words: Sequence[str]) -> list[Mention]:
    """Returns what the words of a caption say to be where; the rest is left over."""
    found, first = [], 0
    for place in range(len(words)):
        for cell in CELLS:
            phrase = cell.split()
            if first < place and list(words[place : place + len(phrase)]) == phrase:
                name = " ".join(words[first:place])
                found.append(Mention(name, cell, first, place))
                first = place + len(phrase)
                first += list(words[first : first + 1]) == ["and"]
    return found


def split_of(names: Sequence[str]) -> str:
    """Returns the split to which a scene of known drawings belongs; "" for none."""
    found = set()
    for i, one in enumerate(names):
        for other in names[:i]:
            pair = "+".join(sorted((one, other)))
            found.add(min(zlib.crc32(pair.encode()) % _PARTS, 2))
    if found == {2}:
        return "train"
    return ("validation", "test")[min(found)] if not {0, 1} <= found else ""


def novel(drawings: Sequence[Drawing]) -> set[Drawing]:
    """Returns the drawings that are held out: others have every word of their names."""
    count = collections.Counter(w for d in drawings for w in set(d.name.split()))
    found = set()
    for drawing in sorted(drawings, key=lambda d: zlib.crc32(d.name.encode())):
        words = set(drawing.name.split())
        chosen = zlib.crc32(b"novel " + drawing.name.encode()) % _NOVEL == 0
        # Those that stay have each word twice at least.
        if chosen and len(words) > 1 and all(count[word] > 2 for word in words):
            found.add(drawing)
            count.subtract(words)
    return found


@functools.lru_cache(16)
def _sprites(drawings: tuple[Drawing, ...], side: int) -> dict[Drawing, np.ndarray]:
    """Drawings at a size, uint8 [side, side, 4] each; all at once, for the reader."""
    return dict(zip(drawings, draw(drawings, side), strict=True))


def _choose(rng, drawings: Sequence[Drawing], count: int) -> list[Drawing]:
    places = rng.choice(len(drawings), count, replace=False)
    return [drawings[place] for place in places]
