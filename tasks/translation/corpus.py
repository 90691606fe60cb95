"""Parallel text of a translation run: config checks, vocabulary and batches."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import jax
from ml_collections import ConfigDict

from base.errors import FieldError
from base.fields import Fields, Files, ordered, unread
from base.ranges import PROBABILITY, SEED, SHAPES, SIZE, VOCABULARY, WEIGHT, Range
from tasks.common.text_metrics import require_tokenizer
from tasks.common.vocabulary import Vocabulary
from tasks.translation import parallel_text
from tasks.translation.batching import TranslationBatches
from tasks.translation.corpora.names import check_name
from tasks.translation.text_assets import TextAssets, encode_training, write_assets

_WORDS = Range(1, 1000, whole=True)


class TranslationData(Fields):
    """`config.data`: parallel text, its vocabulary and batches."""

    # Or "libreoffice", "numbers", "reversal", "files", "tfds:...".
    corpus: str = "homeassistant"
    extra_corpora: tuple[str, ...] = ()  # more training corpora
    files: Files = Files()
    split_seed: Annotated[int, SEED] = 0  # chooses the held-out components
    # ISO 639 code.
    source_language: str = "en"
    # ISO 639 code.
    target_language: str = "de"
    min_words: Annotated[int, _WORDS] = 3  # of the source, in evaluation
    # Maximum number of words of either side.
    max_words: Annotated[int, _WORDS] = 40
    # User-interface labels teach vocabulary.
    train_min_words: Annotated[int, _WORDS] = 1
    # Fraction of the pairs of homeassistant and libreoffice; teaches copying of names.
    made_up_names: Annotated[float, PROBABILITY] = 0.4
    # Number of subwords.
    vocab_size: Annotated[int, VOCABULARY] = 4000
    # To sample from; 1 for no subword regularisation.
    segmentations: Annotated[int, Range(1, 512, whole=True)] = 1
    # Kudo (2018), section 3.3; 0 is uniform.
    sampling_alpha: Annotated[float, WEIGHT] = 0.2
    max_length: Annotated[int, SIZE] = 256  # subwords; longer pairs are dropped
    # Per batch: rows x longer side.
    tokens: Annotated[int, Range(1, 10**9, whole=True)] = 1024
    pack: bool = True  # several sentences per row: little padding
    max_shapes: Annotated[int, SHAPES] = 3  # batch shapes; each costs a compilation
    # A multiple of devices x accumulate.
    batch_size_multiple: Annotated[int, SIZE] = 8

    def __post_init__(self):
        languages = self.source_language, self.target_language
        files = dataclasses.asdict(self.files)
        check_name("data.corpus", self.corpus, languages, files)
        for name in self.extra_corpora:
            check_name("data.extra_corpora", name, languages, files)
        if "files" not in (self.corpus, *self.extra_corpora):
            unread("files", self.files, "config.data.corpus=files")
        ordered(self, "min_words", "max_words", "data")
        ordered(self, "train_min_words", "max_words", "data")
        ordered(self, "batch_size_multiple", "tokens", "data")


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


def read(data: ConfigDict) -> parallel_text.Corpus:
    """Returns the sentence pairs selected by `config.data`; for errors see `load`."""
    return parallel_text.load(
        data.corpus,
        data.source_language,
        data.target_language,
        extra=data.extra_corpora,
        min_words=data.min_words,
        max_words=data.max_words,
        train_min_words=data.train_min_words,
        made_up_names=data.made_up_names,
        files=data.files.to_dict(),
        split_seed=data.split_seed,
    )


def prepare(config: ConfigDict, folder: Path, *, training: bool) -> TextAssets:
    """Returns the assets of a run.

    Args:
        config: a config that `check` accepts.
        folder: folder of the assets.
        training: read the corpus and write missing assets; otherwise read only
            `folder`.

    Raises:
        UserError: for a file that cannot be read, a sentence of an evaluation split
            that is longer than `config.data.max_length`, a missing tokenizer, or data
            that have changed since the run began.
    """
    data = config.data
    if not training:
        return TextAssets(Vocabulary(folder / "vocabulary.model"), folder)
    require_tokenizer(data.target_language)
    corpus, size, max_length = read(data), data.vocab_size, data.max_length
    vocabulary = write_assets(corpus, folder, vocab_size=size, max_length=max_length)
    source, target = encode_training(
        corpus,
        vocabulary,
        max_length,
        nbest=data.segmentations,
        alpha=data.sampling_alpha,
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
        lines = str(corpus).splitlines()
        lines.append(
            f"{len(corpus.train) - len(source):,} training pairs longer than "
            f"config.data.max_length={max_length} pieces left out"
        )
        print(
            *(f"data: {line}\n" for line in lines),
            f"vocabulary: {vocabulary.size} pieces (config.data.vocab_size={size})\n"
            f"batches: {len(batches)} per epoch in {len(batches.shapes)} shapes, "
            f"{batches.padding():.1%} padding",
            file=sys.stderr,
            sep="",
        )
    return TextAssets(vocabulary, folder, batches)


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
