"""Bucketing: generated batches of mixed sizes in few shapes."""

from collections.abc import Callable

import numpy as np

from data.endless import Batch, EndlessBatches
from errors import UserError


class Batches(EndlessBatches):
    """Endless generated batches; batch i depends on (seed, i) only.

    The sizes min_size..max_size are cut into buckets, as even as they go. Each batch
    takes its sizes from one bucket, drawn with a probability in proportion to its
    number of sizes, so that all sizes are equally frequent; it is as wide as the
    bucket's largest size, whatever it holds, so that there are no more shapes than
    buckets.

    Args:
        make: (rng, sizes [B] int, width) -> batch.
        min_size: the smallest size.
        max_size: the largest size.
        buckets: how many shapes there may be.
        batch_size: B.
        seed: of what is drawn.

    Raises:
        UserError: for a number out of its range.
    """

    def __init__(
        self,
        make: Callable[[np.random.Generator, np.ndarray, int], Batch],
        *,
        min_size: int,
        max_size: int,
        buckets: int,
        batch_size: int,
        seed: int,
    ):
        for name, value, least in [
            ("max_size", max_size, min_size),
            ("buckets", buckets, 1),
            ("batch_size", batch_size, 1),
        ]:
            if value < least:
                raise UserError(
                    f"config.data.{name} is {value}: must be at least {least}"
                )
        sizes = np.arange(min_size, max_size + 1)
        self._buckets = np.array_split(sizes, min(buckets, len(sizes)))
        self._shares = [len(bucket) / len(sizes) for bucket in self._buckets]
        super().__init__(seed)
        self._make, self._batch_size = make, batch_size

    def _batch(self, rng: np.random.Generator, index: int) -> Batch:
        bucket = self._buckets[rng.choice(len(self._buckets), p=self._shares)]
        return self._make(rng, rng.choice(bucket, self._batch_size), int(bucket[-1]))
