"""A user's text files, one per split."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from base import storage
from base.errors import UserError
from tasks.common.splits import EVALUATION_SPLITS, SPLITS

_Example = TypeVar("_Example")


def read(
    files: Mapping[str, str],
    parse: Callable[[str, str], list[_Example]],
    *,
    shuffle: bool = False,
) -> dict[str, list[_Example]]:
    """Returns the examples of each split.

    Args:
        files: path of each split's file, "" for none. Without a file, an evaluation
            split has the last tenth of the training examples before it.
        parse: `parse(text, name)` returns the examples of a file; `name` is for errors.
        shuffle: whether to change the order of the training examples first, always in
            the same way. Files may be sorted, for example by label.

    Raises:
        UserError: for a file that cannot be read.
    """
    splits = {}
    for split in SPLITS:
        if files[split]:
            name = f"config.data.files.{split}: {files[split]}"
            try:
                text = storage.read_text(Path(files[split]))
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "not text in UTF-8"
                raise UserError(f"{name}: {reason}") from None
            splits[split] = parse(text, name)
    if shuffle:
        order = np.random.default_rng(0).permutation(len(splits["train"]))
        splits["train"] = [splits["train"][i] for i in order]
    for split in EVALUATION_SPLITS:
        if split not in splits:
            count = max(1, len(splits["train"]) // 10)
            splits[split] = splits["train"][-count:]
            splits["train"] = splits["train"][:-count]
    return splits
