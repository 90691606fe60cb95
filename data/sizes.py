"""Generated batches of mixed sizes, in few shapes."""

from collections.abc import Callable

import numpy as np

from errors import UserError

Batch = dict[str, np.ndarray]

SPLITS = ("validation", "test")


class Batches:
    """Endless random access to generated batches: element i depends on (seed, i) only.

    The sizes smallest..largest are cut into buckets, as even as they go. Each batch
    takes its sizes from one bucket, drawn with a probability in proportion to its
    number of sizes, so that all sizes are equally frequent; it is as wide as the
    bucket's largest size, whatever it holds, so that there are no more shapes than
    buckets.

    Args:
        make: (rng, sizes [B] int, width) -> batch.
        smallest: the smallest size.
        largest: the largest size.
        buckets: how many shapes there may be.
        rows: B.
        seed: of what is drawn.

    Raises:
        UserError: for a number out of its range.
    """

    def __init__(
        self,
        make: Callable[[np.random.Generator, np.ndarray, int], Batch],
        *,
        smallest: int,
        largest: int,
        buckets: int,
        rows: int,
        seed: int,
    ):
        for name, value, least in [
            ("largest", largest, smallest),
            ("buckets", buckets, 1),
            ("rows", rows, 1),
        ]:
            if value < least:
                raise UserError(
                    f"config.data.{name} is {value}: must be at least {least}"
                )
        sizes = np.arange(smallest, largest + 1)
        self._buckets = np.array_split(sizes, min(buckets, len(sizes)))
        self._shares = [len(bucket) / len(sizes) for bucket in self._buckets]
        self._make, self._rows, self._seed = make, rows, seed

    def __getitem__(self, index: int) -> Batch:
        """The batch of step `index`, for any index from 0."""
        if index < 0:
            raise IndexError(index)
        rng = np.random.default_rng((self._seed, index))
        bucket = self._buckets[rng.choice(len(self._buckets), p=self._shares)]
        return self._make(rng, rng.choice(bucket, self._rows), int(bucket[-1]))


def check_split(split: str) -> None:
    """Raises a UserError for what is none of `SPLITS`."""
    if split not in SPLITS:
        raise UserError(f"split is {split}: must be {' or '.join(SPLITS)}")


def held_out_rng(split: str, *key: int) -> np.random.Generator:
    """What held-out data is drawn from, apart from all training batches.

    Args:
        split: "validation" or "test".
        *key: what else tells these data from others.

    Raises:
        UserError: for another split.
    """
    check_split(split)
    # No (seed, i) of training is this key: shorter ones count as filled up with 0.
    return np.random.default_rng((*key, SPLITS.index(split), 1, 1))
