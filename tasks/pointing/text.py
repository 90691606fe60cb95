"""Instances of `tasks.pointing.data` as lines of text, and their answers.

An instance is a line of numbers to sort, "0.3 0.1", or of points, "0.3,0.8 0.1,0.2".
Its answer is the sorted numbers; the points' numbers, from 1, in the order of a hull or
tour; or triangles such as "1,2,4 2,3,4". The last triangle may lack corners.

Axes: B batch; S inputs, padded; n inputs of an instance; F features of an input.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from base.errors import UserError, parse_number
from tasks.common.batches import Batch
from tasks.pointing import data as pointing
from tasks.pointing.tours import MAX_EXACT


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance with its text and, if known, its true answer."""

    kind: str  # one of `pointing.KINDS`
    inputs: np.ndarray  # [n, F]
    items: Sequence[str]  # text of each of the n inputs
    # indices of the true answer, from 0; None for a tour, which is expensive to
    # compute: see `solution`
    truth: np.ndarray | None

    def labels(self) -> list[str]:
        """Returns short labels of the inputs: numbers, or the numbers of points."""
        if self.kind == "sorting":
            return [f"{number:.3f}" for number in self.inputs[:, 0]]
        return [str(number) for number in range(1, len(self.inputs) + 1)]

    def text(self, indices: np.ndarray) -> str:
        """Returns the text of an answer, given as indices from 0."""
        if self.kind == "sorting":
            return " ".join(self.items[i] for i in indices)
        separator = "," if self.kind == "delaunay" else " "
        groups = self.polygons(indices)
        return " ".join(separator.join(str(i + 1) for i in group) for group in groups)

    def polygons(self, indices: np.ndarray) -> list[np.ndarray]:
        """Returns the polygons of an answer: a hull, a tour, or triangles.

        The last triangle of an answer may lack corners.
        """
        if self.kind != "delaunay":
            return [indices]
        return [indices[i : i + 3] for i in range(0, len(indices), 3)]

    def solution(self) -> np.ndarray:
        """Returns the indices of the true answer; computes them if they are missing.

        A tour of more than 20 cities may not be the shortest.

        Raises:
            UserError: if all points are on a line and have no hull and no triangles.
        """
        if self.truth is not None:
            return self.truth
        # Solvers expect [0, 1]; scaling changes no answer.
        inputs = self.inputs.astype(np.float64)
        inputs -= inputs.min(0)
        inputs /= max(inputs.max(), np.finfo(np.float32).tiny)
        target = pointing.answers(self.kind, inputs[None], np.array([len(inputs)]))
        return pointing.sequences(target)[0]

    def caveat(self) -> str:
        """Returns a remark on the true answer, for a title."""
        if self.kind == "tsp" and len(self.inputs) > MAX_EXACT:
            return ", true tour possibly not the shortest"
        return ""


def parse(kind: str, text: str) -> Instance:
    """Parses an instance of a kind.

    Raises:
        UserError: if an item is not F finite numbers, there are too few items, or all
            points are on a line and have no hull and no triangles.
    """
    count = pointing.features(kind)
    form = "a finite number" if count == 1 else "two finite numbers, such as 0.3,0.8"
    items = text.split()
    inputs = np.empty((len(items), count), np.float32)
    for i, item in enumerate(items):
        try:
            numbers = np.array([parse_number(number) for number in item.split(",")])
        except ValueError:
            numbers = np.array([])
        finite = np.abs(numbers) <= np.finfo(np.float32).max
        if len(numbers) != count or not finite.all():
            raise UserError(f"item {i + 1} is {item[:40]!r}: must be {form}")
        inputs[i] = numbers
    pointing.check_size(kind, "the number of inputs", len(items))
    instance = Instance(kind, inputs, items, None)
    if kind == "tsp":
        return instance
    return dataclasses.replace(instance, truth=instance.solution())


def stack(instances: Sequence[Instance]) -> Batch:
    """Pads instances into a batch of `inputs` [B, S, F] and `lengths` [B]."""
    lengths = np.array([len(instance.inputs) for instance in instances], np.int32)
    shape = len(lengths), lengths.max(), instances[0].inputs.shape[1]
    inputs = np.zeros(shape, np.float32)
    for row, instance in zip(inputs, instances, strict=True):
        row[: len(instance.inputs)] = instance.inputs
    return {"inputs": inputs, "lengths": lengths}


def unstack(kind: str, batch: Batch) -> list[Instance]:
    """Returns the instances of a batch of `tasks.pointing.data` and their answers."""
    truths = pointing.sequences(batch["target"])
    instances = []
    for x, n, truth in zip(batch["inputs"], batch["lengths"], truths, strict=True):
        items = [",".join(f"{number:.3f}" for number in row) for row in x[:n]]
        instances.append(Instance(kind, x[:n], items, truth))
    return instances
