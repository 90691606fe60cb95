"""Names of splits, and random generators for held-out data."""

import numpy as np

from base.errors import UserError

EVALUATION_SPLITS = ("validation", "test")
SPLITS = ("train", *EVALUATION_SPLITS)


def check_split(split: str) -> None:
    """Raises a UserError for a split that is not in `EVALUATION_SPLITS`."""
    if split not in EVALUATION_SPLITS:
        raise UserError(f"split is {split}: must be {' or '.join(EVALUATION_SPLITS)}")


def held_out_rng(split: str, *key: int) -> np.random.Generator:
    """Returns a random generator for held-out data that no training batch uses.

    Args:
        split: "validation" or "test".
        *key: distinguishes these data from other held-out data of the split.

    Raises:
        UserError: if the split is unknown.
    """
    check_split(split)
    # No training key (seed, i) equals this one: numpy pads shorter keys with 0.
    return np.random.default_rng((*key, EVALUATION_SPLITS.index(split), 1, 1))
