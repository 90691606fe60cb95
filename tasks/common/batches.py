"""Endless random access to training batches, and to parts of a batch.

A part is what one of several hosts needs: some of equally many pieces of the rows.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from base.errors import FieldError, UserError

Batch = dict[str, np.ndarray]
Rows = np.ndarray | slice  # numbers of rows
ALL = slice(None)


def rows_of(pieces: Sequence[int], count: int, size: int) -> np.ndarray:
    """Returns the numbers of the rows of a part.

    Args:
        pieces: numbers of the pieces, from 0.
        count: number of pieces of the whole batch.
        size: number of rows of the whole batch.

    Raises:
        UserError: if `count` does not divide `size`.
    """
    if size % count:
        raise UserError(
            f"the batch size is {size}: must be a multiple of the {count} devices of "
            "all processes; start fewer processes, or a new run with another "
            "config.data.batch_size (config.data.batch_size_multiple for a translator)"
        )
    return np.arange(size).reshape(count, -1)[list(pieces)].ravel()


def take(batch: Batch, rows: np.ndarray) -> Batch:
    """Returns rows of a batch, or of the random numbers for one."""
    return {name: x[rows] for name, x in batch.items()}


def pad(
    rows: Sequence[Sequence[int]], width: int = 0, *, fill: int = 0, multiple: int = 1
) -> np.ndarray:
    """Pads lists of ids: int32 [B, T].

    Args:
        rows: B lists of at most T ids.
        width: minimum T.
        fill: value of the padding.
        multiple: divisor of T.
    """
    width = -(-max(width, *map(len, rows), 0) // multiple) * multiple
    padded = np.full((len(rows), width), fill, np.int32)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded


@dataclasses.dataclass(kw_only=True)
class EndlessBatches(abc.ABC):
    """Training batches of B rows; batch i depends on (seed, i) only.

    A subclass defines `_rows`.
    """

    seed: int
    batch_size: int

    def __getitem__(self, index: int) -> Batch:
        """Returns the batch of step `index`, for any index from 0."""
        return self.part(index, (0,), 1)

    def part(self, index: int, pieces: Sequence[int], count: int) -> Batch:
        """Returns a part of batch `index`; for `pieces` and `count` see `rows_of`."""
        rng = np.random.default_rng((self.seed, index))
        return self._rows(rng, index, rows_of(pieces, count, self.batch_size))

    @abc.abstractmethod
    def _rows(self, rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        """Returns rows of the batch of step `index`.

        Draws the random numbers of the whole batch, and makes only these rows of them.
        """


@dataclasses.dataclass(kw_only=True)
class BucketedBatches(EndlessBatches):
    """Generated batches of varying sizes in few shapes.

    The sizes min_size..max_size are split into buckets of nearly equal numbers of
    sizes. The sizes of a batch come from one bucket, drawn with probability
    proportional to its number of sizes, so that all sizes are equally frequent. The
    width of a batch is the maximum size of its bucket.

    Raises:
        UserError: if the maximum is below the minimum.
    """

    # function (rng, sizes [B] int, width, rows) -> rows of the batch
    make: Callable[[np.random.Generator, np.ndarray, int, np.ndarray], Batch]
    min_size: int  # minimum size
    max_size: int  # maximum size
    buckets: int  # maximum number of shapes

    def __post_init__(self):
        if self.max_size < self.min_size:
            accepted = f"at least {self.min_size}"
            raise FieldError("config.data.max_size", self.max_size, accepted)
        sizes = np.arange(self.min_size, self.max_size + 1)
        self._buckets = np.array_split(sizes, min(self.buckets, len(sizes)))
        self._shares = [len(bucket) / len(sizes) for bucket in self._buckets]

    def _rows(self, rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        bucket = self._buckets[rng.choice(len(self._buckets), p=self._shares)]
        sizes = rng.choice(bucket, self.batch_size)
        return self.make(rng, sizes, int(bucket[-1]), rows)
