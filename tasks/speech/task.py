"""Speech recognition with characters as output: Chan et al. (2016).

The loss is the cross-entropy of the characters. `wer` is the word error rate, which is
the digit error rate for strings of digits, and `cer` the character error rate
(`tasks.speech.metrics`). `validate` decodes greedily, `evaluate` by beam search, in
which the log-probability is divided by a power of the length. With a language model,
`evaluation.language_model`, the beam is then rescored (eq. 14;
`tasks.speech.rescoring`).

Works with any model that has the methods required by `tasks.translation.task` and takes
a dict of `frames` [B, T, M] and `lengths` [B] as `source`, such as
`models.listener.ListenAttendSpell`.

Axes: B utterances; T frames; M mel bands; S positions of the attention; Q characters.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base import asset_files
from base.fields import Fields
from base.ranges import BATCH, EXAMPLES, FRACTION, WEIGHT, Range
from figures.attention import Places, attention_map
from generation.options import TranslationOptions
from generation.sampling import line_seed
from generation.search import ALPHA, BEAM, OFFSET, Generator, Hypothesis, Search
from generation.search import Batch as SearchBatch
from generation.teacher_forced import AttentionReader
from tasks.common import user_files
from tasks.common.batches import Batch, EndlessBatches
from tasks.common.losses import smoothed_cross_entropy
from tasks.common.objectives import supervised
from tasks.common.text import composed
from tasks.common.vocabulary import BOS, PAD, UNK
from tasks.speech import audio, features, rescoring, utterances
from tasks.speech import metrics as speech
from tasks.speech.figures import aligned_spectrogram
from tasks.speech.rescoring import TranscriptOptions
from tasks.speech.sources import Speech, SpeechData
from tasks.speech.utterances import Characters, HeldOut
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.state import LossResult, TrainState
from training.task import Evaluation, Prediction, Scores, Task

_TITLES = "character", "frame"  # of the axes of attention
_FRAMES = 1024  # of an utterance that shows the positions of the attention


class ListeningLoss(Fields):
    """`config.loss`."""

    smoothing: Annotated[float, FRACTION] = 0.1  # label smoothing


class ListeningEvaluation(EvaluationConfig):
    """`config.evaluation`; `alpha` 1 with `offset` 0 divides by the length."""

    utterances: Annotated[int, EXAMPLES] = 300  # number of utterances
    # Lengths in words of further groups of generated test strings.
    words: Annotated[tuple[int, ...], Range(1, 100, whole=True).each()] = (10, 15)
    batch_size: Annotated[int, BATCH] = 50  # utterances per batch
    beam: Annotated[int, BEAM] = 8  # beam size; 32 in the paper
    alpha: Annotated[float, ALPHA] = 1.0  # exponent of the length penalty
    offset: Annotated[float, OFFSET] = 0.0  # added to the length in the length penalty
    # Run directory of a language model of the characters (`lstmn_text:digits`), which
    # reranks the beam; empty for none.
    language_model: str = ""
    # Weight of the language model in the ranking, lambda of the paper.
    language_model_weight: Annotated[float, WEIGHT] = 0.008
    checkpoint: str = "best"


class ListeningConfig(ModelConfig):
    """The config of a speech recogniser."""

    data: SpeechData = SpeechData()
    loss: ListeningLoss = ListeningLoss()
    evaluation: ListeningEvaluation = ListeningEvaluation()


class Details(NamedTuple):
    """An utterance, and the alignment of its predicted transcript."""

    spectrogram: np.ndarray  # [T, M] in dB
    weights: np.ndarray  # [Q, S]
    frames: int  # number of frames per position of the attention
    characters: str  # Q characters; the text of a prediction composes them


class Listening(Task):
    """Training, evaluation and figures of a speech recogniser."""

    metric = ("wer", "min")
    Config = ListeningConfig
    EvaluationOptions = TranslationOptions
    Options = TranscriptOptions
    figure_name = "alignment"
    table = "transcripts", ("reference", "hypothesis")
    one_by_one = False

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Speech:
        """Reads the utterances, and writes their characters in training; see `Task`."""
        folder = workdir / "assets"
        path = folder / "characters.txt"
        left_out = user_files.left_out(folder, training)
        if training:
            speech = Speech(config, left_out=left_out)
            asset_files.write(path, speech.characters.characters)
            if isinstance(speech.source, audio.Files):
                speech.source.files.write(folder, speech.source.examples())
            return speech
        return Speech(config, Characters(path.read_bytes().decode()), left_out)

    def __init__(self, config: ConfigDict, assets: Speech):
        self.config, self.data = config, assets
        self.model = checks.build_model(config, vocab_size=assets.characters.size)
        frames = jnp.zeros((1, 8, config.data.bands))
        source = {"frames": frames, "lengths": jnp.full(1, 8, jnp.int32)}
        blank = {"source": source, "target": jnp.ones((1, 2), jnp.int32)}
        self.objective = supervised(self, blank)
        self.search = Search.configured(config.evaluation)
        self.generator = Generator(self.model, forbidden=(PAD, BOS, UNK))
        self.attention = AttentionReader(self.model)
        characters = assets.characters.characters
        self.rescoring = rescoring.configured(config.evaluation, characters)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches."""
        return self.data.batches()

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: Any = None
    ) -> LossResult:
        """Returns the cross-entropy of the characters; see `Supervised`."""
        source = {name: batch[name] for name in ("frames", "lengths")}
        streams = ("dropout", "alignment", "sampling")
        logits = self.model.apply(
            {"params": params},
            {"source": source, "target": batch["target"]},
            train=True,
            rngs={n: jax.random.fold_in(rng, i) for i, n in enumerate(streams)},
        )
        mask = (batch["target"] != PAD).astype(jnp.float32)
        loss, count = smoothed_cross_entropy(
            logits, batch["target"], smoothing=self.config.loss.smoothing, weights=mask
        )
        seconds = batch["lengths"].astype(jnp.float32) * features.SECONDS
        size = jnp.asarray(len(seconds), jnp.float32)
        metrics = {"tokens": (count, count), "audio_seconds": (seconds.sum(), size)}
        return loss, (count, metrics)

    def examples(self, split: str, *, full: bool = True) -> dict[str, list[HeldOut]]:
        """Returns the utterances of a split, and those of N words; see `Task`.

        There are further groups for each N of `evaluation.words`, unless the utterances
        are files.
        """
        groups = {split: self.data.held_out(split)}
        longer = () if self.data.source.listed else self.config.evaluation.words
        for words in longer if full else ():
            groups[str(words)] = self.data.held_out(split, words)
        return groups

    def answers(
        self,
        state: TrainState,
        examples: Sequence[HeldOut],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> list[Prediction]:
        """Returns transcripts, by greedy decoding in training; see `Task`."""
        search, rescored = Search(), None
        if options is not None:
            search, rescored = options.search(self.search), self.rescoring
        if isinstance(options, TranscriptOptions):
            characters = self.data.characters.characters
            rescored = options.rescoring(rescored, self.config.evaluation, characters)
        n_best, characters = search.n_best, self.data.characters
        if search.temperature > 0:
            rescored = None  # samples keep their scores
        if rescored is not None:
            search = dataclasses.replace(search, n_best=search.beam)
        ranked = self.generator.generate(
            state.params,
            self._batches(examples),
            search,
            seeds=[x.seed for x in examples if x.seed is not None],
            keep_weights=True,
        )
        if rescored is not None:
            ranked = rescored.rank(ranked, characters.decode)
        if attention:
            ranked = self.attention.with_records(
                state.params, lambda i: {"source": self._source([examples[i]])}, ranked
            )
        frames, predictions = self._frames(state.params), []
        for example, hypotheses in zip(examples, ranked, strict=True):
            best, *others = [
                _prediction(example, x, characters, frames) for x in hypotheses[:n_best]
            ]
            predictions.append(best._replace(others=tuple(others)))
        return predictions

    def _batches(self, examples: Sequence[HeldOut]) -> Iterator[SearchBatch]:
        """Batches of utterances of similar length, all padded to one batch size."""
        size = min(self.config.evaluation.batch_size, len(examples))
        order = sorted(range(len(examples)), key=lambda i: len(examples[i].spectrogram))
        for start in range(0, len(order), max(size, 1)):
            indices = order[start : start + size]
            filled = indices + indices[-1:] * (size - len(indices))
            source = self._source([examples[i] for i in filled])
            # A character takes at least two frames.
            limit = source["lengths"] // 2 + 1
            length = source["frames"].shape[1] // 2 + 1
            yield SearchBatch(indices, functools.partial(dict, source), length, limit)

    def _source(self, examples: Sequence[HeldOut]) -> Batch:
        spectrograms, data = [x.spectrogram for x in examples], self.config.data
        return utterances.padded(spectrograms, normalisation=data.normalisation)

    def _frames(self, params: Any) -> int:
        """Number of frames per position of the attention."""
        frames = jnp.zeros((1, _FRAMES, self.config.data.bands))
        source = {"frames": frames, "lengths": jnp.full(1, _FRAMES, jnp.int32)}
        memory = jax.eval_shape(
            lambda p: self.model.apply({"params": p}, source, method="encode"), params
        )
        return _FRAMES // memory.mask.shape[1]

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns error rates and `monotony`, in per cent; see `Task`.

        Scores are those of `tasks.speech.metrics.error_rates` and `monotony`; for each
        further group of N words `wer_N`, `cer_N` and `monotony_N`. A full evaluation
        has the settings: the number of `utterances`, the `beam` size, `alpha` and, with
        a language model, `language_model_weight`.
        """
        scores: Scores = {}
        for group, examples in evaluation.examples.items():
            answers = evaluation.answers[group]
            texts, references = [x.text for x in answers], [x.text for x in examples]
            part = speech.error_rates(texts, references)
            part["monotony"] = speech.monotony([x.details.weights for x in answers])
            if group != evaluation.split:
                part = {f"{n}_{group}": part[n] for n in ("wer", "cer", "monotony")}
            scores |= part
        if evaluation.options is not None:
            search = evaluation.options.search(self.search)
            scores["utterances"] = len(evaluation.examples[evaluation.split])
            scores |= {"beam": search.beam, "alpha": search.alpha}
            if self.rescoring:
                scores["language_model_weight"] = self.rescoring.weight
        return scores

    def row(self, number: int, example: HeldOut, answer: Prediction) -> tuple[str, str]:
        """Returns reference and hypothesis."""
        return example.text, answer.text

    def picked(self, split: str, count: int) -> dict[str, HeldOut]:
        """Returns the last utterances of a split."""
        examples = enumerate(self.data.held_out(split)[-count:], 1)
        return {f"alignment_{number}": example for number, example in examples}

    def parse(self, line: str, options: TranscriptOptions) -> HeldOut:
        """Returns the utterance of an audio file."""
        recording = self.data.recording(Path(line.strip()))
        return recording._replace(seed=line_seed(options.seed, line))

    def show(self, example: HeldOut, answer: Prediction) -> Prediction:
        """Returns the transcript of an utterance."""
        spoken = f" (spoken: {example.text})" * bool(example.text)
        return answer._replace(caption=f"{answer.text or '(empty)'}{spoken}")

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the alignment of the characters with the spectrogram; see `Task`."""
        details = prediction.details
        return aligned_spectrogram(
            details.spectrogram,
            details.weights,
            frames=details.frames,
            characters=["␣" if x == " " else x for x in details.characters],
            seconds=features.SECONDS,
            title=f"{title}: {prediction.caption}",
            path=path,
        )


def _prediction(
    example: HeldOut, hypothesis: Hypothesis, characters: Characters, frames: int
) -> Prediction:
    text = characters.decode(hypothesis.ids)
    positions = -(-len(example.spectrogram) // frames)
    weights = np.asarray(hypothesis.weights)[: len(text), :positions]
    keys = [f"frame {frames * position}" for position in range(positions)]
    places = _places(example.spectrogram, positions, frames)
    maps = (attention_map(x, list(text), keys, _TITLES) for x in hypothesis.records)
    return Prediction(
        composed(text),
        hypothesis.score,
        tuple(each._replace(places=places) for each in maps),
        details=Details(example.spectrogram, weights, frames, text),
    )


def _places(spectrogram: np.ndarray, positions: int, frames: int) -> Places:
    """Places of the positions on a spectrogram [T, F], low frequencies below."""
    low, high = spectrogram.min(), spectrogram.max()
    grey = 255 * (spectrogram - low) / max(high - low, 1e-6)
    image = np.repeat(grey.T[::-1, :, None], 3, -1).astype(np.uint8)
    left = frames * np.arange(positions) / len(spectrogram)
    right = np.minimum(left + frames / len(spectrogram), 1)
    top = np.zeros(positions)
    return Places(np.stack([top, left, top + 1, right], -1), image)
