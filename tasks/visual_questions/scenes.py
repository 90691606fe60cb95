"""Scenes of coloured shapes, and questions with balanced answers.

A canvas has 3 x 3 cells; four to six of them have a shape, of varying size and place
within its cell.

| type | question | answers |
|---|---|---|
| colour | what colour is the SHAPE | six colours |
| left | what shape is left of the COLOUR SHAPE | six shapes |
| above | what shape is above the COLOUR SHAPE | six shapes |
| count | how many SHAPEs are there | 0 to 3 |
| exists | is there a COLOUR SHAPE | yes, no |
| same | is the COLOUR shape the same shape as the COLOUR shape | yes, no |

The type, the question and the answer are drawn first, each uniformly and independently
of the others, then a scene in which the answer is correct. So the question only tells
which answers are possible: `CHANCE` is the maximum expected accuracy without the image.
If the answer of "exists" is no, the scene still has another shape of this colour, and
this shape in another colour.

Axes: N scenes; M boxes of a scene; I rows and columns of a canvas.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tasks.common.shapes import COLOURS, SHAPES, mask

_NAMES, _PALETTE = tuple(COLOURS), np.array([*COLOURS.values()])
_MAX_COUNT = 3
NUMBERS = tuple(map(str, range(_MAX_COUNT + 1)))
ANSWERS = (*SHAPES, *_NAMES, *NUMBERS, "yes", "no")
_TEXTS = {
    "colour": "what colour is the {}",
    "left": "what shape is left of the {}",
    "above": "what shape is above the {}",
    "count": "how many {} are there",
    "exists": "is there a {}",
    "same": "is the {} shape the same shape as the {} shape",
}
TYPES = tuple(_TEXTS)
PLURALS = dict(zip(SHAPES, [f"{x}s" for x in SHAPES], strict=True)) | {
    "cross": "crosses"
}
_TEMPLATES = {word for text in _TEXTS.values() for word in text.split()} - {"{}"}
WORDS = tuple(sorted({*_TEMPLATES, *_NAMES, *SHAPES, *PLURALS.values()}))
# Mean over the types of 1 / number of answers.
CHANCE = (3 / len(SHAPES) + 1 / len(NUMBERS) + 2 / 2) / len(TYPES)
OBJECTS = 1 + len(SHAPES) * len(COLOURS)  # none, then each shape in each colour
_CELLS = 3  # rows and columns of cells
BOXES = max(2, _MAX_COUNT)  # M, maximum number of objects that a question is about
_MIN_SCALE = 0.6  # minimum side of a shape relative to its cell's

Object = tuple[int, int]  # numbers of its shape and its colour


class Scene(NamedTuple):
    """An image, and a question about it."""

    image: np.ndarray  # uint8 [I, I, 3]
    question: str  # the question, without punctuation
    answer: str  # its answer
    type: str  # one of `TYPES`
    # int [M, 4]: top row, left column, bottom row + 1 and right column + 1 of the
    # objects that the question is about, the one asked for first; then rows of 0
    boxes: np.ndarray
    # uint8 [I, I]: the number of the object in whose box a pixel is, 0 to
    # `OBJECTS` - 1, 0 outside of all boxes
    objects: np.ndarray


class _Plan(NamedTuple):
    """A question, its answer, and the objects that make it correct."""

    question: tuple[str, ...]  # words for the template
    answer: str
    about: Sequence[Object]  # objects that the question is about
    allowed: Callable[[Object], bool]  # whether the scene may have a further object
    others: Sequence[Object] = ()  # other objects of the scene
    step: tuple[int, int] = (0, 0)  # cells from the second object to the first


def draw(rng: np.random.Generator, size: int) -> Scene:
    """Draws a scene of `size` rows and columns."""
    kind = TYPES[rng.integers(len(TYPES))]
    plan = _PLANS[kind](rng)
    objects = [*plan.about, *plan.others]
    count = max(len(objects), int(rng.integers(4, 7)))
    while len(objects) < count:
        further = _pick(rng, SHAPES), _pick(rng, COLOURS)
        if plan.allowed(further):
            objects.append(further)
    image = np.empty((size, size, 3), np.uint8)
    image[:] = rng.integers(200, 256)
    boxes = _paint(rng, image, objects, _place(rng, count, plan.step))
    about = np.zeros((BOXES, 4), np.int32)
    about[: len(plan.about)] = boxes[: len(plan.about)]
    text = _TEXTS[kind].format(*plan.question)
    numbers = np.zeros((size, size), np.uint8)
    for (shape, colour), (top, left, bottom, right) in zip(objects, boxes, strict=True):
        numbers[top:bottom, left:right] = 1 + shape * len(COLOURS) + colour
    return Scene(image, text, plan.answer, kind, about, numbers)


def _pick(rng: np.random.Generator, values: Sequence | dict) -> int:
    return int(rng.integers(len(values)))


def _other(rng: np.random.Generator, values: Sequence | dict, number: int) -> int:
    """A number that differs from the given one."""
    return (number + 1 + int(rng.integers(len(values) - 1))) % len(values)


def _colour(rng: np.random.Generator) -> _Plan:
    shape, colour = _pick(rng, SHAPES), _pick(rng, COLOURS)
    about = [(shape, colour)]
    return _Plan((SHAPES[shape],), _NAMES[colour], about, lambda x: x[0] != shape)


def _beside(step: tuple[int, int], rng: np.random.Generator) -> _Plan:
    named = shape, colour = _pick(rng, SHAPES), _pick(rng, COLOURS)
    asked_for = answer, other = _pick(rng, SHAPES), _pick(rng, COLOURS)
    if asked_for == named:
        asked_for = answer, _other(rng, COLOURS, other)
    question = (f"{_NAMES[colour]} {SHAPES[shape]}",)
    about = [asked_for, named]
    return _Plan(question, SHAPES[answer], about, lambda x: x != named, step=step)


def _count(rng: np.random.Generator) -> _Plan:
    shape, number = _pick(rng, SHAPES), _pick(rng, NUMBERS)
    about = [(shape, _pick(rng, COLOURS)) for _ in range(number)]
    question = (PLURALS[SHAPES[shape]],)
    return _Plan(question, NUMBERS[number], about, lambda x: x[0] != shape)


def _exists(rng: np.random.Generator) -> _Plan:
    named = shape, colour = _pick(rng, SHAPES), _pick(rng, COLOURS)
    yes = bool(rng.integers(2))
    others = [
        (shape, _other(rng, COLOURS, colour)),
        (_other(rng, SHAPES, shape), colour),
    ]
    question = (f"{_NAMES[colour]} {SHAPES[shape]}",)
    answer = "yes" if yes else "no"
    return _Plan(question, answer, [named] * yes, lambda x: x != named, others)


def _same(rng: np.random.Generator) -> _Plan:
    first = _pick(rng, COLOURS)
    second, shape = _other(rng, COLOURS, first), _pick(rng, SHAPES)
    yes = bool(rng.integers(2))
    about = [(shape, first), (shape if yes else _other(rng, SHAPES, shape), second)]
    question = _NAMES[first], _NAMES[second]
    answer = "yes" if yes else "no"
    return _Plan(question, answer, about, lambda x: x[1] not in (first, second))


_PLANS: dict[str, Callable[[np.random.Generator], _Plan]] = {
    "colour": _colour,
    "left": functools.partial(_beside, (0, -1)),
    "above": functools.partial(_beside, (-1, 0)),
    "count": _count,
    "exists": _exists,
    "same": _same,
}


def _place(
    rng: np.random.Generator, count: int, step: tuple[int, int]
) -> list[tuple[int, int]]:
    """Cells of the objects; with a step, the first is this step from the second."""
    cells = [divmod(int(cell), _CELLS) for cell in rng.permutation(_CELLS**2)]
    if step == (0, 0):
        return cells[:count]
    down, right = step
    second = next((i, j) for i, j in cells if i + down >= 0 and j + right >= 0)
    pair = [(second[0] + down, second[1] + right), second]
    return (pair + [cell for cell in cells if cell not in pair])[:count]


def _paint(
    rng: np.random.Generator,
    image: np.ndarray,
    objects: Sequence[Object],
    cells: Sequence[tuple[int, int]],
) -> np.ndarray:
    """Paints each object into its cell; returns their boxes."""
    shapes, colours = zip(*objects, strict=True)
    room, count = len(image) // _CELLS, len(objects)
    sides = rng.integers(int(_MIN_SCALE * room), room + 1, count)
    margins = (rng.random((count, 2)) * (room - sides + 1)[:, None]).astype(int)
    corners = np.array(cells) * room + margins
    shades = _PALETTE[list(colours)] + rng.integers(-15, 16, (count, 3))
    boxes = np.concatenate([corners, corners + sides[:, None]], 1)
    for shape, side, shade, (top, left, bottom, right) in zip(
        shapes, sides.tolist(), shades, boxes.tolist(), strict=True
    ):
        image[top:bottom, left:right][mask(SHAPES[shape], side)] = shade
    return boxes
