"""Names of splits, a user's files of them, and random generators of held-out data."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from base.errors import UserError, counted

EVALUATION_SPLITS = ("validation", "test")
SPLITS = ("train", *EVALUATION_SPLITS)
_Example = TypeVar("_Example")


def held_out_rng(split: str, *key: int) -> np.random.Generator:
    """Returns a random generator for held-out data that no training batch uses.

    `key` distinguishes these data from other held-out data of the split.
    """
    # No training key (seed, i) equals this one: numpy pads shorter keys with 0.
    return np.random.default_rng((*key, EVALUATION_SPLITS.index(split), 1, 1))


def read_splits(
    files: Mapping[str, str],
    read: Callable[[Path, str], list[_Example]],
    content: str,
    *,
    unit: str = "example",
    shuffle: bool = False,
    taken: Sequence[str] = EVALUATION_SPLITS,
) -> dict[str, list[_Example]]:
    """Reads a user's files.

    Args:
        files: path of each split's file or folder, "" for none.
        read: `read(path, name)` returns the examples of a file; `name` is for errors.
        content: what a file must have, for errors.
        unit: name of an example, for errors.
        shuffle: whether to change the order of the training examples first, always in
            the same way. Files may be sorted, for example by label.
        taken: splits that have the last tenth of the remaining training examples if
            they have no file.

    Raises:
        UserError: for a file that is missing, cannot be read, or has too few examples.
    """
    if not files["train"]:
        line = f"config.data.files.train is missing: must be the path of {content}"
        raise UserError(line)
    splits = {}
    for split in SPLITS:
        if files[split]:
            name = f"config.data.files.{split}: {files[split]}"
            splits[split] = read(Path(files[split]), name)
            parts = [split, *(x for x in taken if split == "train" and not files[x])]
            if (count := len(splits[split])) < len(parts):
                raise UserError(
                    f"{name} has {counted(count, unit)}: must have at least "
                    f"{len(parts)}, for {' and '.join(parts)}"
                )
    if shuffle:
        order = np.random.default_rng(0).permutation(len(splits["train"]))
        splits["train"] = [splits["train"][i] for i in order]
    for split in taken:
        if split not in splits:
            count = max(1, len(splits["train"]) // 10)
            splits[split] = splits["train"][-count:]
            splits["train"] = splits["train"][:-count]
    return splits
