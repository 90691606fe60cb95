"""Parallel text that a translation config asks for."""

import sys
from pathlib import Path

import jax
from ml_collections import ConfigDict

from data import parallel_text
from data.batching import Batches
from data.text_assets import TextAssets, encode_training, write_assets
from data.vocabulary import Vocabulary
from errors import UserError
from training import checks

_MINIMUMS = {
    "data.max_length": 1,
    "data.tokens": 1,
    "data.max_shapes": 1,
    "data.batch_size_multiple": 1,
    "data.segmentations": 1,
    "optimizer.accumulate": 1,
}
# Fields of a model that may ask for positions in a row, and the values that do.
_POSITIONAL = {
    "encoder_score": ("location",),
    "decoder_score": ("location",),
    "cross_score": ("location",),
    "cross_alignment": ("local_m", "local_p"),
}


def check(config: ConfigDict) -> None:
    """Checks `config.data` against itself, the model and the optimizer.

    Raises:
        UserError: for a value out of range, or values that do not fit together.
    """
    data, model = config.data, config.model
    checks.at_least(config, _MINIMUMS)
    learned = "positions" in model and model.positions == "learned"
    if learned and data.max_length > model.max_length:
        raise UserError(
            f"config.data.max_length is {data.max_length}: the model learns "
            f"{model.max_length} positions (config.model.max_length)"
        )
    if data.pack and not config.architecture.packs:
        raise UserError(
            f"config.data.pack is true, but {config.architecture.__name__} takes "
            "one sentence a row: set config.data.pack=false"
        )
    for name, values in _POSITIONAL.items():
        if data.pack and name in model and model[name] in values:
            raise UserError(
                f"config.model.{name} is {model[name]!r}, which depends on positions "
                "in a row: set config.data.pack=false, for one sentence a row"
            )
    parts, rows = config.optimizer.accumulate, data.batch_size_multiple
    if rows % parts:
        raise UserError(
            f"config.optimizer.accumulate is {parts}: must divide "
            f"config.data.batch_size_multiple, which is {rows}"
        )


def read(data: ConfigDict) -> parallel_text.Corpus:
    """Returns the sentence pairs that `config.data` asks for.

    Raises:
        UserError: for what cannot be found, downloaded or read.
    """
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
        config: a checked one.
        folder: where the assets are kept.
        training: read the corpus, and write what is missing; otherwise read `folder`.

    Raises:
        UserError: for what cannot be read, or a sentence that is too long to score.
    """
    data = config.data
    if not training:
        return TextAssets(Vocabulary(folder / "vocabulary.model"), folder)
    corpus, longest = read(data), data.max_length
    size = data.vocab_size
    vocabulary = write_assets(corpus, folder, vocab_size=size, max_length=longest)
    source, target = encode_training(
        corpus, vocabulary, longest, nbest=data.segmentations, alpha=data.sampling_alpha
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
        print(
            f"data: {corpus}; {len(corpus.train) - len(source)} training pairs longer "
            f"than config.data.max_length={longest} pieces left out\n"
            f"vocabulary: {vocabulary.size} pieces of {size} asked for "
            "(config.data.vocab_size)\n"
            f"batches: {len(batches)} an epoch in {len(batches.shapes)} shapes, "
            f"{batches.padding():.1%} padding",
            file=sys.stderr,
        )
    return TextAssets(vocabulary, folder, batches)
