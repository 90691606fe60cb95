"""Endless random access to training batches, and to parts of a batch.

A part is what one of several hosts needs: some of equally many pieces of the rows.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from base.errors import UserError

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


@dataclasses.dataclass
class EndlessBatches:
    """Training batches of B rows; batch i depends on (seed, i) only.

    Attributes:
        make: function (rng, index, rows) that returns the given rows of the batch of
            step `index`. It draws the random numbers of the whole batch, but builds
            only these rows.
        batch_size: B.
        seed: seed of the batches.
    """

    make: Callable[[np.random.Generator, int, np.ndarray], Batch]
    batch_size: int
    seed: int

    def __getitem__(self, index: int) -> Batch:
        """Returns the batch of step `index`, for any index from 0."""
        return self.part(index, (0,), 1)

    def part(self, index: int, pieces: Sequence[int], count: int) -> Batch:
        """Returns a part of batch `index`; for `pieces` and `count` see `rows_of`."""
        rng = np.random.default_rng((self.seed, index))
        return self.make(rng, index, rows_of(pieces, count, self.batch_size))


def bucketed(
    make: Callable[[np.random.Generator, np.ndarray, int, np.ndarray], Batch],
    *,
    min_size: int,
    max_size: int,
    buckets: int,
    batch_size: int,
    seed: int,
) -> EndlessBatches:
    """Returns training batches in few shapes, `make(rng, sizes [B], width, rows)`.

    The sizes min_size..max_size are split into at most `buckets` buckets of nearly
    equal numbers of sizes. The sizes of a batch come from one bucket, drawn with
    probability proportional to its number of sizes, so that all sizes are equally
    frequent. The width of a batch is the maximum size of its bucket.
    """
    sizes = np.arange(min_size, max_size + 1)
    parts = np.array_split(sizes, min(buckets, len(sizes)))
    shares = [len(part) / len(sizes) for part in parts]

    def batch(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        part = parts[rng.choice(len(parts), p=shares)]
        return make(rng, rng.choice(part, batch_size), int(part[-1]), rows)

    return EndlessBatches(batch, batch_size, seed)
