"""Endless random access to training batches, and to parts of a batch.

A part is what one of several hosts needs: some of equally many pieces of the rows.
"""

from collections.abc import Sequence

import numpy as np

from errors import UserError

Batch = dict[str, np.ndarray]


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
            f"the batch size is {size}: must be a multiple of the {count} devices; "
            "change config.data.batch_size (config.data.batch_size_multiple for a "
            "translator)"
        )
    return np.arange(size).reshape(count, -1)[list(pieces)].ravel()


def take(batch: Batch, pieces: Sequence[int], count: int) -> Batch:
    """Returns a part of a batch; see `rows_of`."""
    if count == 1:
        return batch
    return {name: x[rows_of(pieces, count, len(x))] for name, x in batch.items()}


class EndlessBatches:
    """Training batches; batch i depends on (seed, i) only.

    A subclass defines `_batch`, or `_part`.

    Args:
        seed: seed of the random generators.
    """

    def __init__(self, seed: int):
        self._seed = seed

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
        return self._part(rng, index, pieces, count)

    def _part(
        self, rng: np.random.Generator, index: int, pieces: Sequence[int], count: int
    ) -> Batch:
        """Returns a part; overridden where a row costs more than its random numbers.

        Every part draws the random numbers of the whole batch.
        """
        return take(self._batch(rng, index), pieces, count)

    def _batch(self, rng: np.random.Generator, index: int) -> Batch:
        """Returns the batch of step `index`; defined by a subclass without `_part`."""
        raise NotImplementedError
