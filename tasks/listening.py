"""Speech recognition by characters: Chan et al. (2016).

The loss is the cross-entropy of the characters. `wer` is the word error rate, which is
the digit error rate for strings of digits, and `cer` the character error rate
(`metrics.speech`). `validate` decodes greedily, `evaluate` by beam search, in which the
log-probability is divided by a power of the length (eq. 14, without a language model).

Works with any model that has the methods required by `tasks.translation` and takes a
dict of `frames` [B, T, M] and `lengths` [B] as `source`, such as
`models.listener.ListenAttendSpell`.

Axes: B utterances; T frames; M mel bands; S positions of the attention.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

import storage
from data.endless import Batch as Arrays
from data.speech import audio, digits, features, utterances
from data.speech.espeak import Phrases
from data.speech.utterances import Characters, HeldOut, Mixing, Source
from data.splits import check_split
from data.vocabulary import BOS, PAD, UNK
from errors import WRITTEN_AGAIN, FieldError, UserError
from figures.attention import AttentionMap
from figures.spectrogram import aligned_spectrogram
from generation.options import SamplingOptions, TranslationOptions
from generation.search import OFFSET, Batch, Generator, Hypothesis, Search
from generation.search import RANGES as SEARCH_RANGES
from metrics import speech
from ops.cross_entropy import smoothed_cross_entropy
from ranges import BATCH, EXAMPLES, FRACTION, SIZE, TEXT, Range
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import LossResult, TrainState
from training.task import Evaluation, Lines, Prediction, Scores, Task

_SOURCES = ("digits", "tones", "espeak", "files")
_WORDS, _SNR = Range(1, 100, whole=True), Range(-100, 100)
_FIGURES = 3  # utterances of a split that are drawn
_PLACEHOLDER = 32  # characters of a vocabulary that is not known yet


def make_source(config: ConfigDict) -> Source:
    """Returns the utterances of `config.data`.

    Raises:
        UserError: for a package, a program or a file that is missing.
    """
    data = config.data
    options = {"cepstra": data.cepstra, "band": data.band}
    if data.source == "files":
        return audio.Files(data.files.to_dict(), **options)
    if data.source == "espeak":
        return Phrases(**options)
    spoken = data.source == "digits"
    return utterances.DigitStrings(digits.spoken() if spoken else digits.tones())


class Speech:
    """Utterances, read on first use, and their characters; assets of a run."""

    def __init__(self, config: ConfigDict, characters: Characters | None = None):
        self.config, data = config, config.data
        self.mixing = Mixing(
            bands=data.bands,
            cepstra=data.cepstra,
            pause=data.pause,
            noise=(data.min_snr, data.max_snr),
            warp=data.warp,
            speed=data.speed,
        )
        self._characters = characters

    @functools.cached_property
    def source(self) -> Source:
        """The utterances."""
        return make_source(self.config)

    @functools.cached_property
    def characters(self) -> Characters:
        """The characters of the transcripts."""
        return self._characters or Characters(self.source.characters)

    @functools.cache  # noqa: B019  # one object a run
    def held_out(self, split: str, words: tuple[int, int], count: int) -> list[HeldOut]:
        """Returns held-out utterances; see `data.speech.utterances.held_out`."""
        return utterances.held_out(
            self.source, self.mixing, split, words=words, count=count
        )


class Details(NamedTuple):
    """A spectrogram [T, M] in dB, and the attention [T', S] of T' characters."""

    spectrogram: np.ndarray
    weights: np.ndarray


class Listening(Task):
    """Training, evaluation and figures of a speech recogniser; see the docstring."""

    metric = ("wer", "min")
    ranges = {
        **checks.SUPERVISED,
        **SEARCH_RANGES,
        "evaluation.offset": OFFSET,
        "evaluation.utterances": EXAMPLES,
        "evaluation.words": _WORDS.each(),
        "evaluation.batch_size": BATCH,
        "data.source": TEXT,
        "data.files.train": TEXT,
        "data.files.validation": TEXT,
        "data.files.test": TEXT,
        "data.min_words": _WORDS,
        "data.max_words": _WORDS,
        "data.bands": SIZE,
        "data.cepstra": Range(2, 128, whole=True),
        "data.band": Range(1000, 22_050, whole=True),
        "data.pause": Range(0, 60),
        "data.min_snr": _SNR,
        "data.max_snr": _SNR,
        "data.warp": Range(0, 0.5),
        "data.speed": Range(0, 0.5),
        "data.batch_size": BATCH,
        "loss.smoothing": FRACTION,
    }
    arrays = {("data.batch_size", "data.max_words", "data.bands"): 64}
    model_methods = ("draws", "encode", "start", "step")
    EvaluationOptions = TranslationOptions
    Options = SamplingOptions
    figure_name = "alignment"

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks the source and its fields; see `Task`."""
        data = config.data
        checks.choice("data.source", data.source, _SOURCES)
        checks.ordered(config, "data.min_words", "data.max_words")
        checks.ordered(config, "data.min_snr", "data.max_snr")
        if data.source != "files":
            checks.unread_files(config, "data.files", "data.source=files")
        if data.source in ("digits", "tones") and data.cepstra > digits.CEPSTRA:
            accepted = f"at most {digits.CEPSTRA} with config.data.source={data.source}"
            raise FieldError("config.data.cepstra", data.cepstra, accepted)
        if config.model.get("alignment") == "hard":
            accepted = "global, local_m, local_p or gumbel in this task"
            raise FieldError("config.model.alignment", "hard", accepted)

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Speech:
        """Reads the utterances and writes their characters; see `Task`."""
        path = Path(workdir) / "assets" / "characters.txt"
        if training:
            speech_data = Speech(config)
            storage.make_folder(path.parent, str(path.parent))
            storage.write(path, speech_data.characters.characters)
            return speech_data
        try:
            text = storage.read_regular(path).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise UserError(f"{path} cannot be read: {WRITTEN_AGAIN}") from None
        return Speech(config, Characters(text))

    def __init__(
        self,
        config: ConfigDict,
        assets: Speech | None = None,
        *,
        axis_name: str | None = None,
    ):
        """Builds the model and the objective; see `Task`."""
        self.config, self.data = config, assets or Speech(config)
        self.model = checks.build_model(
            config.architecture,
            config.model,
            vocab_size=assets.characters.size if assets else _PLACEHOLDER,
        )
        frames = jnp.zeros((1, 8, config.data.bands))
        source = {"frames": frames, "lengths": jnp.full(1, 8, jnp.int32)}
        blank = {"source": source, "target": jnp.ones((1, 2), jnp.int32)}
        self.objective = Supervised(
            lambda rng: self.model.init(rng, blank, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )
        self.search = Search.configured(config.evaluation)
        self.generator = Generator(self.model, forbidden=(PAD, BOS, UNK))

    def train_data(self) -> utterances.Batches:
        """Returns the training batches."""
        data = self.config.data
        return utterances.Batches(
            self.data.source,
            self.data.mixing,
            self.data.characters,
            words=(data.min_words, data.max_words),
            batch_size=data.batch_size,
            seed=self.config.seed,
        )

    def loss(
        self, params: Any, batch: Arrays, rng: jax.Array, state: Any = None
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
            logits,
            batch["target"],
            smoothing=self.config.loss.smoothing,
            weights=mask,
        )
        seconds = batch["lengths"].astype(jnp.float32) * features.SECONDS
        size = jnp.asarray(len(seconds), jnp.float32)
        metrics = {"tokens": (count, count), "audio_seconds": (seconds.sum(), size)}
        return loss, (count, metrics)

    def _predictions(
        self,
        params: Any,
        examples: Sequence[HeldOut],
        search: Search,
        *,
        seed: int = 0,
        attention: bool = True,
    ) -> list[Prediction]:
        """Transcripts of utterances, with the next best ones as `others`."""
        ranked = self.generator.generate(
            params,
            _batches(examples, self.config.evaluation.batch_size),
            search,
            seed=seed,
            keep_weights=True,
        )
        predictions = []
        for example, hypotheses in zip(examples, ranked, strict=True):
            best, *others = [
                self._prediction(example, x, attention) for x in hypotheses
            ]
            predictions.append(best._replace(others=tuple(others)))
        return predictions

    def _prediction(self, example, hypothesis: Hypothesis, attention: bool):
        text = self.data.characters.decode(hypothesis.ids)
        positions = -(-len(example.spectrogram) // self._frames_per_position())
        weights = np.asarray(hypothesis.weights)[: len(text), :positions]
        maps = AttentionMap("cross", weights[None], list(text), _times(positions))
        return Prediction(
            text,
            hypothesis.score,
            (maps,) if attention else (),
            details=Details(example.spectrogram, weights),
        )

    @functools.cache  # noqa: B019  # one object a run
    def _frames_per_position(self) -> int:
        """Number of frames that a position of the attention stands for."""
        source = {"frames": jnp.zeros((1, 1024, self.config.data.bands))}
        source |= {"lengths": jnp.full(1, 1024, jnp.int32)}
        params = jax.eval_shape(self.objective.init, jax.random.key(0)).params
        memory = jax.eval_shape(
            lambda p: self.model.apply({"params": p}, source, method="encode"), params
        )
        return 1024 // memory.mask.shape[1]

    def _scores(
        self, params: Any, examples: Sequence[HeldOut], search: Search
    ) -> tuple[Scores, list[Prediction]]:
        predictions = self._predictions(params, examples, search)
        texts, references = [x.text for x in predictions], [x.text for x in examples]
        scores = speech.error_rates(texts, references)
        alignments = [x.details.weights for x in predictions]
        return scores | {"monotony": speech.monotony(alignments)}, predictions

    def _held_out(self, split: str, words: int | None = None) -> list[HeldOut]:
        check_split(split)
        data, count = self.config.data, self.config.evaluation.utterances
        words_range = (words, words) if words else (data.min_words, data.max_words)
        return self.data.held_out(split, words_range, count)

    def validate(self, state: TrainState) -> Scores:
        """Returns the scores of greedy transcripts of the validation split."""
        return self._scores(state.params, self._held_out("validation"), Search())[0]

    def evaluate(
        self, state: TrainState, split: str, options: TranslationOptions
    ) -> Evaluation:
        """Evaluates a split; see `Task`.

        Scores, in per cent: those of `metrics.speech.error_rates` and `monotony`; for
        each N of `evaluation.words`, `wer_N`, `cer_N` and `monotony_N` on strings of N
        words, unless the utterances are files; and the settings: the number of
        `utterances`, the `beam` size and `alpha`. Outputs are the utterances and their
        predictions.
        """
        search, examples = options.search(self.search), self._held_out(split)
        scores, predictions = self._scores(state.params, examples, search)
        if not self.data.source.listed:
            for words in self.config.evaluation.words:
                part, _ = self._scores(
                    state.params, self._held_out(split, words), search
                )
                names = ("wer", "cer", "monotony")
                scores |= {f"{name}_{words}": part[name] for name in names}
        scores |= {"utterances": len(examples), "beam": search.beam}
        scores |= {"alpha": search.alpha}
        return Evaluation(split, scores, list(zip(examples, predictions, strict=True)))

    def tables(self, evaluation: Evaluation, folder: Path) -> list[Path]:
        """Writes the transcripts and their references as TSV."""
        rows = [(x.text, best.text) for x, best in evaluation.outputs]
        path = folder / f"transcripts_{evaluation.split}.tsv"
        return [storage.write_tsv(path, ("reference", "hypothesis"), rows)]

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the alignments of a few utterances."""
        split, pairs = evaluation.split, evaluation.outputs
        if not pairs:
            examples = self._held_out(split)[-_FIGURES:]
            best = self._predictions(state.params, examples, self.search)
            pairs = list(zip(examples, best, strict=True))
        return [
            self.draw(
                prediction,
                f"{split} utterance {number} ({example.text})".capitalize(),
                folder / f"alignment_{number}_{split}.png",
            )
            for number, (example, prediction) in enumerate(pairs[-_FIGURES:], 1)
        ]

    def predict(
        self, state: TrainState, lines: Lines, options: SamplingOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Returns the transcripts of audio files, one path per line; see `Task`."""
        data, examples = self.config.data, []
        mixing, rng = self.data.mixing, np.random.default_rng(0)
        for line, text in lines.items():
            try:
                part = audio.cepstra(Path(text.strip()), data.cepstra, data.band)
            except UserError as error:
                raise UserError(f"line {line}: {error}") from None
            spectrogram = utterances.clean(mixing).spectrogram(
                [part], rng, distort=False
            )
            examples.append(HeldOut(spectrogram, ""))
        search = options.search(self.search)
        return self._predictions(
            state.params, examples, search, seed=options.seed, attention=attention
        )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the alignment of the characters with the spectrogram; see `Task`."""
        spectrogram, weights = prediction.details
        return aligned_spectrogram(
            spectrogram,
            weights,
            frames=self._frames_per_position(),
            characters=["␣" if x == " " else x for x in prediction.text],
            seconds=features.SECONDS,
            title=f"{title}: {prediction.text}",
            path=path,
        )


def _batches(examples: Sequence[HeldOut], batch_size: int) -> Iterator[Batch]:
    """Batches of utterances of similar length, filled up to equal sizes."""
    batch_size = min(batch_size, len(examples))
    order = sorted(range(len(examples)), key=lambda i: len(examples[i].spectrogram))
    for start in range(0, len(order), max(batch_size, 1)):
        indices = order[start : start + batch_size]
        filled = indices + indices[-1:] * (batch_size - len(indices))
        source = utterances.padded([examples[i].spectrogram for i in filled])
        # A character takes two frames or more.
        limit = source["lengths"] // 2 + 1
        length = source["frames"].shape[1] // 2 + 1
        yield Batch(indices, functools.partial(dict, source), length, limit)


def _times(positions: int) -> list[str]:
    return [str(position) for position in range(positions)]
