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

Axes: B utterances; T frames; M mel bands.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from attention.fast.cross_entropy import smoothed_cross_entropy
from base import storage
from base.errors import UserError
from base.ranges import BATCH, FRACTION
from generation.options import TranslationOptions
from generation.sampling import line_seed
from generation.search import OFFSET, Search
from generation.search import RANGES as SEARCH_RANGES
from tasks.common.batches import Batch
from tasks.common.vocabulary import PAD
from tasks.speech import features, rescoring, utterances
from tasks.speech import metrics as speech
from tasks.speech import sources as speech_data
from tasks.speech.figures import aligned_spectrogram
from tasks.speech.rescoring import TranscriptOptions
from tasks.speech.search import SpeechSearch
from tasks.speech.sources import Speech
from tasks.speech.utterances import HeldOut
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import LossResult, TrainState
from training.task import Evaluation, Lines, Prediction, Scores, Task

_FIGURES = 3  # utterances of a split that are drawn
_PLACEHOLDER = 32  # size of a vocabulary that is not known yet


class Listening(Task):
    """Training, evaluation and figures of a speech recogniser."""

    metric = ("wer", "min")
    ranges = {
        **checks.SUPERVISED,
        **SEARCH_RANGES,
        **speech_data.RANGES,
        **rescoring.RANGES,
        "evaluation.offset": OFFSET,
        "evaluation.batch_size": BATCH,
        "loss.smoothing": FRACTION,
    }
    arrays = {("data.batch_size", "data.max_words", "data.bands"): 64}
    model_methods = ("draws", "encode", "start", "step")
    EvaluationOptions = TranslationOptions
    Options = TranscriptOptions
    figure_name = "alignment"

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks `config.data`; see `Task`."""
        speech_data.check(config)

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Speech:
        """Reads the utterances; see `Task`."""
        folder = Path(workdir) / "assets"
        return speech_data.prepare(config, folder, training=training)

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
        self.transcriber = SpeechSearch(
            self.model,
            bands=config.data.bands,
            normalisation=config.data.normalisation,
            batch_size=config.evaluation.batch_size,
        )
        self.rescoring = None
        if assets:
            characters = assets.characters.characters
            self.rescoring = rescoring.configured(config.evaluation, characters)

    def train_data(self) -> utterances.Batches:
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
            logits,
            batch["target"],
            smoothing=self.config.loss.smoothing,
            weights=mask,
        )
        seconds = batch["lengths"].astype(jnp.float32) * features.SECONDS
        size = jnp.asarray(len(seconds), jnp.float32)
        metrics = {"tokens": (count, count), "audio_seconds": (seconds.sum(), size)}
        return loss, (count, metrics)

    def _transcripts(
        self, params: Any, examples: Sequence[HeldOut], search: Search, **options: Any
    ) -> list[Prediction]:
        options = {"rescoring": self.rescoring} | options
        return self.transcriber.transcripts(
            params, examples, self.data.characters, search, **options
        )

    def _scores(
        self, params: Any, examples: Sequence[HeldOut], search: Search, **options: Any
    ) -> tuple[Scores, list[Prediction]]:
        predictions = self._transcripts(params, examples, search, **options)
        texts, references = [x.text for x in predictions], [x.text for x in examples]
        scores = speech.error_rates(texts, references)
        alignments = [x.details.weights for x in predictions]
        return scores | {"monotony": speech.monotony(alignments)}, predictions

    def validate(self, state: TrainState) -> Scores:
        """Returns the scores of greedy transcripts of the validation split."""
        examples = self.data.held_out("validation")
        return self._scores(state.params, examples, Search(), rescoring=None)[0]

    def evaluate(
        self, state: TrainState, split: str, options: TranslationOptions
    ) -> Evaluation:
        """Evaluates a split; see `Task`.

        Returns:
            Scores in per cent: those of `tasks.speech.metrics.error_rates` and
            `monotony`; for each N of `evaluation.words`, unless the utterances are
            files, `wer_N`, `cer_N` and `monotony_N` on strings of N words. Settings:
            the number of `utterances`, the `beam` size, `alpha` and, with a language
            model, `language_model_weight`. Outputs: the utterances and their
            predictions.
        """
        params, search = state.params, options.search(self.search)
        examples = self.data.held_out(split)
        scores, predictions = self._scores(params, examples, search)
        longer = () if self.data.source.listed else self.config.evaluation.words
        for words in longer:
            part, _ = self._scores(params, self.data.held_out(split, words), search)
            names = ("wer", "cer", "monotony")
            scores |= {f"{name}_{words}": part[name] for name in names}
        scores |= {"utterances": len(examples), "beam": search.beam}
        scores |= {"alpha": search.alpha}
        if self.rescoring:
            scores |= {"language_model_weight": self.rescoring.weight}
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
            examples = self.data.held_out(split)[-_FIGURES:]
            best = self._transcripts(state.params, examples, self.search)
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
        self,
        state: TrainState,
        lines: Lines,
        options: TranscriptOptions,
        attention: bool,
    ) -> Iterable[Prediction]:
        """Returns the transcripts of audio files, one path per line; see `Task`."""
        search, examples = options.search(self.search), []
        characters = self.data.characters.characters
        chosen = options.rescoring(self.rescoring, self.config.evaluation, characters)
        for line, text in lines.items():
            try:
                examples.append(self.data.recording(Path(text.strip())))
            except UserError as error:
                raise UserError(f"line {line}: {error}") from None
        return self._transcripts(
            state.params,
            examples,
            search,
            seeds=[line_seed(options.seed, x) for x in lines.values()],
            attention=attention,
            rescoring=chosen,
        )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the alignment of the characters with the spectrogram; see `Task`."""
        details = prediction.details
        return aligned_spectrogram(
            details.spectrogram,
            details.weights,
            frames=details.frames,
            characters=["␣" if x == " " else x for x in details.characters],
            seconds=features.SECONDS,
            title=f"{title}: {prediction.text or '(empty)'}",
            path=path,
        )
