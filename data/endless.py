"""Endless random access to training batches."""

import abc

import numpy as np

Batch = dict[str, np.ndarray]


class EndlessBatches(abc.ABC):
    """Training batches; batch i depends on (seed, i) only.

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
        if index < 0:
            raise IndexError(index)
        return self._batch(np.random.default_rng((self._seed, index)), index)

    @abc.abstractmethod
    def _batch(self, rng: np.random.Generator, index: int) -> Batch:
        """Returns the batch of step `index`."""
