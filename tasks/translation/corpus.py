"""Parallel text of a translation run: config checks, vocabulary and batches."""

import sys
from pathlib import Path

import jax
from ml_collections import ConfigDict

from base.errors import UserError
from base.ranges import (
    BATCH,
    FLAG,
    PROBABILITY,
    SEED,
    SHAPES,
    SIZE,
    TEXT,
    TEXTS,
    VOCABULARY,
    WEIGHT,
    Range,
)
from tasks.common.splits import SPLITS
from tasks.common.text_metrics import require_tokenizer
from tasks.common.vocabulary import Vocabulary
from tasks.translation import parallel_text
from tasks.translation.batching import Batches
from tasks.translation.corpora.names import check_name
from tasks.translation.text_assets import TextAssets, encode_training, write_assets
from training import checks

_WORDS = Range(1, 1000, whole=True)
RANGES = {
    **checks.SUPERVISED,
    **dict.fromkeys(("data.corpus", "data.source_language"), TEXT),
    "data.target_language": TEXT,
    "data.extra_corpora": TEXTS,
    **{f"data.files.{split}": TEXT for split in SPLITS},
    "data.split_seed": SEED,
    "data.min_words": _WORDS,
    "data.max_words": _WORDS,
    "data.train_min_words": _WORDS,
    "data.made_up_names": PROBABILITY,
    "data.vocab_size": VOCABULARY,
    "data.segmentations": Range(1, 512, whole=True),
    "data.sampling_alpha": WEIGHT,
    "data.max_length": SIZE,
    "data.tokens": Range(1, 10**9, whole=True),
    "data.max_shapes": SHAPES,
    "data.batch_size_multiple": SIZE,
    "data.pack": FLAG,
    "optimizer.accumulate": SIZE,
    "evaluation.max_extra_length": Range(0, 1000, whole=True),
    "evaluation.batch_size": BATCH,
}
_LEGIBLE = range(8, 21)  # numbers of pieces of sentences with legible figures
# Values of model fields that depend on the position in a row, by field.
_POSITIONAL = {
    "encoder_score": ("location",),
    "decoder_score": ("location",),
    "cross_score": ("location",),
    "cross_alignment": ("local_m", "local_p"),
}


def check(config: ConfigDict) -> None:
    """Checks `config.data` and that the model and the optimizer fit it.

    Raises:
        UserError: for a field out of range, or fields that contradict each other.
    """
    data, model = config.data, config.model
    languages = data.source_language, data.target_language
    check_name("data.corpus", data.corpus, languages, data.files)
    for name in data.extra_corpora:
        check_name("data.extra_corpora", name, languages, data.files)
    if "files" not in (data.corpus, *data.extra_corpora):
        checks.unread_files(config, "data.files", "data.corpus=files")
    checks.ordered(config, "data.min_words", "data.max_words")
    checks.ordered(config, "data.train_min_words", "data.max_words")
    checks.ordered(config, "data.batch_size_multiple", "data.tokens")
    # A parameter of these has an entry for each position.
    indexed = [model.get(x) for x in ("positions", "score", *_POSITIONAL)]
    learned = {"learned", "location"} & {*indexed}
    if learned and "max_length" not in model:
        raise UserError("config.model.max_length is missing, as positions are learned")
    if learned and data.max_length > model.max_length:
        raise UserError(
            f"config.data.max_length is {data.max_length}: must be at most "
            f"config.model.max_length={model.max_length}, as positions are learned"
        )
    if data.pack and not config.architecture.packs:
        raise UserError(
            "config.data.pack is true: must be false, as "
            f"{config.architecture.__name__} takes one sentence per row"
        )
    for name, values in _POSITIONAL.items():
        if data.pack and name in model and model[name] in values:
            raise UserError(
                f"config.model.{name} is {model[name]!r}: needs one sentence per row, "
                "config.data.pack=false"
            )
    accumulate, multiple = config.optimizer.accumulate, data.batch_size_multiple
    if multiple % accumulate:
        raise UserError(
            f"config.optimizer.accumulate is {accumulate}: must divide "
            f"config.data.batch_size_multiple={multiple}"
        )


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
    batches = Batches(
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
