"""Texts of a run: vocabulary, evaluation splits and training batches.

The vocabulary and the evaluation splits are in a folder of the run directory, so that
evaluation and prediction do not read the corpus.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from base import asset_files
from base.errors import WRITTEN_AGAIN, FieldError, UserError, parse_json
from tasks.common.splits import EVALUATION_SPLITS, check_split
from tasks.common.text import normal
from tasks.common.vocabulary import (
    Segmentations,
    Vocabulary,
    train_vocabulary,
)
from tasks.translation.batching import TranslationBatches
from tasks.translation.parallel_text import Corpus

_NEAR_DUPLICATES = "near_duplicates.json"


class TextAssets(NamedTuple):
    """The vocabulary and the texts of a translator."""

    vocabulary: Vocabulary  # vocabulary of both languages
    folder: Path  # folder of the evaluation splits
    batches: TranslationBatches | None = None  # training batches; None unless training

    def pairs(self, split: str) -> tuple[list[str], list[str]]:
        """Returns the sources and references of a split, in normal form.

        Raises:
            UserError: if the split is unknown, missing or empty.
        """
        check_split(split)
        path = self.folder / f"{split}.json"
        try:
            pairs = _parse(path.read_bytes())
        except OSError as error:
            raise UserError(f"{self.folder} lacks the {split} split: {error}") from None
        if pairs is None:
            raise _damaged(path)
        if not pairs:
            raise UserError(f"the {split} split in {self.folder} is empty")
        sources, references = zip(*pairs, strict=True)
        return list(map(normal, sources)), list(map(normal, references))

    def near_duplicates(self, split: str) -> list[int]:
        """Returns the indices of the pairs with a similar source in training."""
        path = self.folder / _NEAR_DUPLICATES
        try:
            return parse_json(path.read_text())[split]
        except (OSError, ValueError, TypeError, KeyError):
            raise _damaged(path) from None


def _damaged(path: Path) -> UserError:
    return UserError(f"{path} is damaged: {WRITTEN_AGAIN}")


def _parse(content: bytes) -> list[list[str]] | None:
    """Returns the pairs of a file, each of two texts; None if it is damaged."""
    with contextlib.suppress(ValueError, TypeError):
        pairs = parse_json(content)
        kinds = [list(map(type, pair)) for pair in pairs]
        if isinstance(pairs, list) and kinds == [[str, str]] * len(pairs):
            return pairs
    return None


def write_assets(
    corpus: Corpus,
    folder: Path,
    *,
    vocab_size: int,
    max_length: int,
) -> Vocabulary:
    """Trains the vocabulary of a corpus; writes it and the evaluation splits.

    Args:
        corpus: sentence pairs.
        folder: folder of the files.
        vocab_size: maximum number of pieces in the vocabulary.
        max_length: maximum number of pieces of an evaluated sentence, EOS included.

    Raises:
        UserError: if a sentence of an evaluation split is longer.
    """
    texts = (text for pair in corpus.train for text in pair)
    path = folder / "vocabulary.model"
    vocabulary = train_vocabulary(texts, vocab_size, path)
    lengths = {
        f"{split} pair {number}": _longest(vocabulary, pair)
        for split in EVALUATION_SPLITS
        for number, pair in enumerate(getattr(corpus, split), 1)
    }
    longest = max(lengths, key=lengths.__getitem__)
    if lengths[longest] > max_length:
        accepted = f"at least {lengths[longest]}, the pieces of {longest}"
        raise FieldError("config.data.max_length", max_length, accepted)
    for split in EVALUATION_SPLITS:
        text = json.dumps(getattr(corpus, split), ensure_ascii=False, indent=0)
        asset_files.write(folder / f"{split}.json", text)
    text = json.dumps(corpus.near_duplicates)
    asset_files.write(folder / _NEAR_DUPLICATES, text)
    return vocabulary


def encode_training(
    corpus: Corpus, vocabulary: Vocabulary, max_length: int, *, nbest: int, alpha: float
) -> tuple[Segmentations, Segmentations]:
    """Returns the training pairs up to a maximum length, as sources and targets.

    For `nbest` and `alpha` see `Vocabulary.encode_all`.

    Raises:
        UserError: if all pairs are too long.
    """
    pairs = [p for p in corpus.train if _longest(vocabulary, p) <= max_length]
    if not pairs:
        raise UserError(
            f"no training pair has at most {max_length} pieces (config.data.max_length)"
        )
    source, target = (
        vocabulary.encode_all(texts, nbest=nbest, alpha=alpha)
        for texts in zip(*pairs, strict=True)
    )
    return source, target


def _longest(vocabulary: Vocabulary, pair: Sequence[str]) -> int:
    """Number of pieces of the longer side of a pair, EOS included."""
    return max(len(vocabulary.encode(text)) for text in pair)
