"""Endless random access to training batches, and to parts of a batch.

A part is what one of several hosts needs: some of equally many pieces of the rows.
"""

import abc
from collections.abc import Sequence

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


class EndlessBatches(abc.ABC):
    """Training batches; batch i depends on (seed, i) only.

    A subclass defines `_rows`.

    Args:
        seed: seed of the random generators.
        batch_size: B.
    """

    def __init__(self, seed: int, batch_size: int):
        self._seed, self._batch_size = seed, batch_size

    def __getitem__(self, index: int) -> Batch:
        """Returns the batch of step `index`, for any index from 0.

        Raises:
            IndexError: for a negative index.
        """
        return self.part(index, (0,), 1)

    def part(self, index: int, pieces: Sequence[int], count: int) -> Batch:
        """Returns a part of batch `index`; for `pieces` and `count` see `rows_of`.

        Raises:
            IndexError: for a negative index.
        """
        if index < 0:
            raise IndexError(index)
        rng = np.random.default_rng((self._seed, index))
        return self._rows(rng, index, rows_of(pieces, count, self._batch_size))

    @abc.abstractmethod
    def _rows(self, rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        """Returns rows of the batch of step `index`.

        Draws the random numbers of the whole batch, and makes only these rows of them.
        """
