"""Bucketing: generated batches of varying sizes in few shapes."""

from collections.abc import Callable

import numpy as np

from base.errors import UserError
from tasks.common.batches import Batch, EndlessBatches


class Batches(EndlessBatches):
    """Endless generated batches; batch i depends on (seed, i) only.

    The sizes min_size..max_size are split into buckets of nearly equal numbers of
    sizes. The sizes of a batch come from one bucket, drawn with probability
    proportional to its number of sizes, so that all sizes are equally frequent. The
    width of a batch is the maximum size of its bucket, so that there are at most as
    many shapes as buckets.

    Axes: B batch.

    Args:
        make: function (rng, sizes [B] int, width, rows) -> rows of the batch.
        min_size: minimum size.
        max_size: maximum size.
        buckets: maximum number of shapes.
        batch_size: B.
        seed: seed of the random generators.

    Raises:
        UserError: if a number is out of range.
    """

    def __init__(
        self,
        make: Callable[[np.random.Generator, np.ndarray, int, np.ndarray], Batch],
        *,
        min_size: int,
        max_size: int,
        buckets: int,
        batch_size: int,
        seed: int,
    ):
        for name, value, minimum in [
            ("max_size", max_size, min_size),
            ("buckets", buckets, 1),
            ("batch_size", batch_size, 1),
        ]:
            if value < minimum:
                raise UserError(
                    f"config.data.{name} is {value}: must be at least {minimum}"
                )
        sizes = np.arange(min_size, max_size + 1)
        self._buckets = np.array_split(sizes, min(buckets, len(sizes)))
        self._shares = [len(bucket) / len(sizes) for bucket in self._buckets]
        super().__init__(seed, batch_size)
        self._make = make

    def _rows(self, rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        bucket = self._buckets[rng.choice(len(self._buckets), p=self._shares)]
        sizes = rng.choice(bucket, self._batch_size)
        return self._make(rng, sizes, int(bucket[-1]), rows)
