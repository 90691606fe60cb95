"""Parallel text of a translation run: config checks, vocabulary and batches.

The vocabulary and the evaluation splits are in a folder of the run directory, so that
evaluation and prediction do not read the corpus.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
from ml_collections import ConfigDict

from base import asset_files
from base.errors import FieldError, UserError, counted, parse_json
from base.fields import Fields, Files, ordered, unread
from base.ranges import PROBABILITY, SEED, SHAPES, SIZE, VOCABULARY, WEIGHT, Range
from tasks.common.splits import EVALUATION_SPLITS
from tasks.common.text import normal
from tasks.common.vocabulary import Vocabulary, train_vocabulary
from tasks.translation import parallel_text
from tasks.translation.batching import TranslationBatches
from tasks.translation.corpora.generated import LANGUAGES

CORPORA = ("homeassistant", "libreoffice", "files", "numbers", "reversal")
_WORDS = Range(1, 1000, whole=True)


class TranslationData(Fields):
    """`config.data`: parallel text, its vocabulary and batches."""

    # Corpus: "homeassistant", "libreoffice", "numbers", "reversal", your "files" or
    # "tfds:NAME".
    corpus: str = "homeassistant"
    extra_corpora: tuple[str, ...] = ()  # more corpora, for training only
    files: Files = Files()
    split_seed: Annotated[int, SEED] = 0  # seed of the choice of held-out components
    source_language: str = "en"  # source language, an ISO 639 code
    target_language: str = "de"  # target language, an ISO 639 code
    # Minimum number of source words of an evaluated sentence.
    min_words: Annotated[int, _WORDS] = 3
    # Maximum number of words of either side of a pair.
    max_words: Annotated[int, _WORDS] = 40
    # Minimum number of source words of a training sentence; 1 keeps labels of one word.
    train_min_words: Annotated[int, _WORDS] = 1
    # Share of the training pairs with names, in homeassistant and libreoffice, whose
    # names are replaced by invented ones, which teaches a model to copy names.
    made_up_names: Annotated[float, PROBABILITY] = 0.4
    vocab_size: Annotated[int, VOCABULARY] = 4000  # number of subwords
    # Number of best segmentations to sample from; 1 for no subword regularisation.
    segmentations: Annotated[int, Range(1, 512, whole=True)] = 1
    # Smoothing of the sampling of segmentations, alpha of Kudo (2018); 0 is uniform.
    sampling_alpha: Annotated[float, WEIGHT] = 0.2
    # Maximum number of subwords of a side; longer pairs are dropped.
    max_length: Annotated[int, SIZE] = 256
    # Maximum size of a batch in tokens with padding: batch size times longer side.
    tokens: Annotated[int, Range(1, 10**9, whole=True)] = 1024
    # Whether several sentences share a row, which leaves little padding.
    pack: bool = True
    # Maximum number of batch shapes; each costs a compilation.
    max_shapes: Annotated[int, SHAPES] = 3
    # Number that divides each batch size, a multiple of devices times `accumulate`.
    batch_size_multiple: Annotated[int, SIZE] = 8

    def __post_init__(self):
        names = self.corpus, *self.extra_corpora
        for corpus in names:
            if corpus not in CORPORA and not re.fullmatch(r"tfds:.+", corpus):
                has = "corpus is" if corpus == self.corpus else "extra_corpora has"
                raise UserError(
                    f"config.data.{has} {corpus!r}: must be {', '.join(CORPORA)} or "
                    "tfds:NAME"
                )
        source, target = languages = self.source_language, self.target_language
        if source == target:
            raise UserError(
                f"config.data.source_language is {source!r}: must differ from "
                "config.data.target_language"
            )
        for side, language in zip(("source", "target"), languages, strict=True):
            name = f"config.data.{side}_language"
            if "numbers" in names and language not in LANGUAGES:
                accepted = f"{' or '.join(LANGUAGES)} for the corpus numbers"
                raise FieldError(name, language, accepted)
            if not language:
                raise FieldError(name, language, "a language, such as en")
        if "files" not in names:
            unread("files", self.files, "config.data.corpus=files")
        elif not self.files.train:
            raise UserError(
                "config.data.files.train is missing: must be SOURCE_FILE,TARGET_FILE "
                f"or PREFIX, for files PREFIX.{source} and PREFIX.{target}, optionally "
                "with .gz"
            )
        ordered(self, "min_words", "max_words", "data")
        ordered(self, "train_min_words", "max_words", "data")
        ordered(self, "batch_size_multiple", "tokens", "data")


VOCABULARY_FILE = "vocabulary.model"  # file of the assets
_NEAR_DUPLICATES = "near_duplicates.json"
_LEGIBLE = range(8, 21)  # numbers of pieces of sentences with legible figures
# Values of model fields that depend on the position in a row, by field.
_POSITIONAL = {
    "encoder_score": ("location",),
    "decoder_score": ("location",),
    "cross_score": ("location",),
    "cross_alignment": ("local_m", "local_p"),
}


def check(data: TranslationData, model: ConfigDict, architecture: Any) -> None:
    """Checks that the model fits the data.

    Raises:
        FieldError: otherwise.
    """
    # A parameter of these has an entry for each position.
    indexed = [model.get(x) for x in ("positions", "score", *_POSITIONAL)]
    maximum = model.get("max_length", 0)
    if {"learned", "location"} & {*indexed} and data.max_length > maximum:
        accepted = f"at most config.model.max_length={maximum}: positions are learned"
        raise FieldError("data.max_length", data.max_length, accepted)
    if data.pack and not getattr(architecture, "packs", False):
        accepted = f"false, as {architecture.__name__} takes one sentence per row"
        raise FieldError("data.pack", True, accepted)
    for name, values in _POSITIONAL.items():
        if data.pack and model.get(name) in values:
            accepted = "another one, or one sentence per row, config.data.pack=false"
            raise FieldError(f"model.{name}", model[name], accepted)


class TextAssets(NamedTuple):
    """The vocabulary and the texts of a translator."""

    vocabulary: Vocabulary  # vocabulary of both languages
    folder: Path  # folder of the evaluation splits
    batches: TranslationBatches | None = None  # training batches; None unless training

    def pairs(self, split: str) -> tuple[list[str], list[str]]:
        """Returns the sources and references of a split, in normal form."""
        rows = parse_json((self.folder / f"{split}.json").read_bytes())
        sources, references = zip(*rows, strict=True)
        return [*map(normal, sources)], [*map(normal, references)]

    def near_duplicates(self, split: str) -> list[int]:
        """Returns the indices of the pairs with a similar source in training."""
        return parse_json((self.folder / _NEAR_DUPLICATES).read_bytes())[split]


def prepare(config: ConfigDict, folder: Path) -> TextAssets:
    """Reads a corpus; writes its vocabulary and its evaluation splits into a folder.

    Prints what was read, on standard error.

    Raises:
        UserError: if a sentence of an evaluation split is longer than
            `config.data.max_length`, or all training pairs are; see also
            `parallel_text.load` and `train_vocabulary`.
    """
    data, corpus = config.data, parallel_text.load(config.data)
    texts = (text for pair in corpus.train for text in pair)
    vocabulary = train_vocabulary(texts, data.vocab_size, folder / VOCABULARY_FILE)
    lengths = {
        f"{split} pair {number}": _longest(vocabulary, pair)
        for split in EVALUATION_SPLITS
        for number, pair in enumerate(getattr(corpus, split), 1)
    }
    longest = max(lengths, key=lengths.__getitem__)
    if lengths[longest] > data.max_length:
        accepted = f"at least {lengths[longest]}, the pieces of {longest}"
        raise FieldError("config.data.max_length", data.max_length, accepted)
    for split in EVALUATION_SPLITS:
        text = json.dumps(getattr(corpus, split), ensure_ascii=False, indent=0)
        asset_files.write(folder / f"{split}.json", text)
    text = json.dumps(corpus.near_duplicates)
    asset_files.write(folder / _NEAR_DUPLICATES, text)
    pairs = [p for p in corpus.train if _longest(vocabulary, p) <= data.max_length]
    if not pairs:
        raise UserError(
            f"no training pair has at most {data.max_length} pieces "
            "(config.data.max_length)"
        )
    source, target = (
        vocabulary.encode_all(
            texts, nbest=data.segmentations, alpha=data.sampling_alpha
        )
        for texts in zip(*pairs, strict=True)
    )
    batches = TranslationBatches(
        source,
        target,
        tokens=data.tokens,
        max_shapes=data.max_shapes,
        pack=data.pack,
        batch_size_multiple=data.batch_size_multiple,
        seed=config.seed,
    )
    if jax.process_index() == 0:
        print(
            *(f"data: {line}" for line in str(corpus).splitlines()),
            f"data: {len(corpus.train) - len(pairs):,} training pairs longer than "
            f"config.data.max_length={data.max_length} pieces left out",
            f"vocabulary: {vocabulary.size} pieces "
            f"(config.data.vocab_size={data.vocab_size})",
            f"batches: {len(batches)} per epoch in "
            f"{counted(len(batches.shapes), 'shape')}, "
            f"{batches.padding():.1%} padding",
            file=sys.stderr,
            sep="\n",
        )
    return TextAssets(vocabulary, folder, batches)


def _longest(vocabulary: Vocabulary, pair: Sequence[str]) -> int:
    """Number of pieces of the longer side of a pair, EOS included."""
    return max(len(vocabulary.encode(text)) for text in pair)


def examples(
    config: ConfigDict, assets: TextAssets, split: str
) -> dict[str, list[int]]:
    """Token ids of sources to draw, by title, such as "Transformer, test sentence 3".

    Takes the first sentences of legible length; if there are too few, those of the
    nearest lengths, and says so on standard error.
    """
    ids = [assets.vocabulary.encode(text) for text in assets.pairs(split)[0]]
    low, high = _LEGIBLE[0], _LEGIBLE[-1]
    distances = [max(low - len(x), len(x) - high, 0) for x in ids]
    order = sorted(range(len(ids)), key=distances.__getitem__)  # stable
    selected = order[: config.evaluation.figures]
    others = [str(len(ids[i])) for i in selected if distances[i]]
    if others:
        print(
            f"figures: too few {split} sentences of {low} to {high} pieces: drawing "
            f"the nearest lengths, {', '.join(others)}",
            file=sys.stderr,
        )
    name = f"{config.architecture.__name__}, {split} sentence"
    return {f"{name} {i + 1}": ids[i] for i in selected}
