"""Image captioning with soft or hard attention: Xu et al. (2015).

The loss is eq. 14, averaged over captions: the negative log-likelihood of a caption
plus `config.loss.coverage` times sum_i (1 - sum_t alpha_ti)^2, the doubly stochastic
regularisation. The paper regularises only soft alignments; here the term also applies
to hard ones. A hard alignment is trained by REINFORCE (`training.reinforce`): the
reward is the log-likelihood of the whole caption, the baseline a moving average of the
rewards. During the first `config.loss.soft_steps` steps all sampled weights are
replaced by their expectations.

The metrics (`tasks.captioning.metrics`) compare the words of a caption, without
punctuation, with all references of the image. Works with any model that has the methods
required by `tasks.translation.task` and takes the inputs of `tasks.captioning.inputs`
as `source`, such as `models.captioner.ShowAttendTell`.

Axes: B images; H heads; S positions of a feature map; T target steps.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from attention.fast.cross_entropy import smoothed_cross_entropy
from base import storage
from base.errors import UserError
from base.ranges import STEPS, WEIGHT
from base.records import AttentionRecord, DrawRecord, collect
from figures.strips import caption_strips
from generation.options import BeamOptions, NBestOptions
from generation.search import RANGES as SEARCH_RANGES
from generation.search import Search
from tasks.captioning import captions
from tasks.captioning import inputs as caption_data
from tasks.captioning.inputs import CaptionData
from tasks.captioning.metrics import split_scores
from tasks.captioning.search import CaptionSearch
from tasks.captioning.splits import SOURCES, check_files
from tasks.common.splits import SPLITS, check_split
from tasks.common.text_metrics import CorpusScores
from tasks.common.user_files import DAMAGED
from tasks.common.vocabulary import PAD
from training import checks, reinforce
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, Prediction, Scores, Task

_FIGURES = 4  # images of a split that are drawn
_RANGES = {
    "loss.coverage": WEIGHT,
    "loss.soft_steps": dataclasses.replace(STEPS, min=0),
}


class Captioning(Task):
    """Training, evaluation and figures of a captioner; see the module docstring."""

    metric = ("bleu_4", "max")
    ranges = _RANGES | reinforce.RANGES | caption_data.RANGES | SEARCH_RANGES
    arrays = caption_data.ARRAYS
    model_methods = ("draws", "encode", "start", "step")
    EvaluationOptions = BeamOptions
    Options = NBestOptions
    figure_name = "caption"

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks the data source and its objects; see `Task`."""
        checks.choice("data.source", config.data.source, SOURCES)
        checks.choice("data.damaged", config.data.damaged, DAMAGED)
        checks.ordered(config, "data.min_objects", "data.max_objects")
        if config.data.source != "files":
            checks.unread_files(config, "data.files", "data.source=files")
        else:
            for split in SPLITS:
                check_files(config.data.files[split], split)

    @classmethod
    def warnings(cls, config: ConfigDict) -> list[str]:
        """Adds a line if sampling begins after the last step; see `Task`."""
        lines = super().warnings(config)
        if config.model.get("alignment") == "hard":
            effect = "only soft attention is trained"
            lines += checks.unfinished_phase(config, "soft_steps", effect)
        return lines

    @classmethod
    def prepare(
        cls, config: ConfigDict, workdir: Path, *, training: bool
    ) -> CaptionData:
        """Reads or builds the vocabulary; see `Task`."""
        return caption_data.prepare(config, Path(workdir) / "assets", training=training)

    def __init__(
        self,
        config: ConfigDict,
        assets: CaptionData | None = None,
        *,
        axis_name: str | None = None,
    ):
        """Builds the model for the vocabulary; see `Task`."""
        self.config, self.data = config, assets or CaptionData(config)
        self.vocabulary, size = self.data.vocabulary, config.data.vocab_size
        size = self.vocabulary.size if self.vocabulary else size
        self.model = checks.build_model(
            config.architecture, config.model, vocab_size=size
        )
        blank = {"source": self.data.blank(), "target": jnp.ones((1, 2), jnp.int32)}
        self.objective = Supervised(
            lambda rng: self.model.init(rng, blank, train=False)["params"],
            self.loss,
            make_optimizer(config),
            extra=reinforce.initial_baseline(self.model.draws),
            update_extra=reinforce.move_baseline,
            axis_name=axis_name,
        )
        self.search = Search.configured(config.evaluation)
        self.captioner = CaptionSearch(self.model, self.data)

    def train_data(self) -> captions.Batches:
        """Returns the training batches."""
        return self.data.batches()

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the loss of eq. 14; with hard attention, adds REINFORCE's loss."""
        weights, target = self.config.loss, batch["target"]
        variables = {"params": params}
        if state.extra is not None and weights.soft_steps:
            soft = state.step < weights.soft_steps
            soft_prob = jnp.where(soft, 1.0, self.model.soft_prob)
            variables["schedule"] = {"soft_prob": soft_prob}
        logits, sown = self.model.apply(
            variables,
            batch,
            train=True,
            rngs={"dropout": rng, "alignment": jax.random.fold_in(rng, 1)},
            mutable=["attention", "reinforce"],
        )
        mask = (target != PAD).astype(jnp.float32)  # [B, T]
        loss, tokens = smoothed_cross_entropy(
            logits, target, smoothing=0.0, weights=mask
        )
        count = jnp.asarray(len(target), jnp.float32)
        metrics = {"nll": (loss, tokens), "tokens": (tokens, tokens)}
        for record in collect(sown, AttentionRecord):
            coverage = jnp.einsum("bhts,bt->bhs", record.weights, mask)
            penalty = jnp.sum(jnp.square(1 - coverage))
            loss += weights.coverage * penalty
            metrics["coverage"] = (penalty, count)
        if state.extra is not None:
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, target)
            reward = jax.lax.stop_gradient(-jnp.sum(nll * mask, axis=1))  # [B]
            records, baseline = collect(sown, DrawRecord), state.extra["baseline"]
            loss += reinforce.reinforce_loss(
                records, reward[:, None], baseline, mask=mask, weights=weights
            )
            metrics["reward"] = (jnp.sum(reward), count)
        return loss, (count, metrics)

    def _scores(
        self, state: TrainState, split: str, search: Search
    ) -> tuple[CorpusScores, list[Prediction]]:
        examples = self.data.splits.examples(split)
        predictions = self.captioner.captions(state.params, examples, search)
        strips = [prediction.details.strip for prediction in predictions]
        words, maps, *_ = zip(*strips, strict=True)
        return split_scores(examples, words, maps), predictions

    def validate(self, state: TrainState) -> Scores:
        """Returns the metrics of greedy captions of the validation split."""
        return self._scores(state, "validation", Search())[0].scores

    def evaluate(
        self, state: TrainState, split: str, options: BeamOptions
    ) -> Evaluation:
        """Evaluates the captions of a split; see `Task`.

        Scores are the metrics of `tasks.captioning.metrics`; the same metrics as
        `<name>_novel` on scenes with drawings that are not in training, if there are
        any; and the settings: the number of `images`, the `beam` size and the
        `signatures` of sacreBLEU. Outputs are the predicted captions.
        """
        check_split(split)
        search = options.search(self.search)
        (scores, signatures), predictions = self._scores(state, split, search)
        if self.data.splits.has_novel():
            (novel, _), _ = self._scores(state, "novel", search)
            scores |= {f"{name}_novel": value for name, value in novel.items()}
        scores |= {"images": len(predictions), "beam": search.beam}
        return Evaluation(split, scores | {"signatures": signatures}, predictions)

    def tables(self, evaluation: Evaluation, folder: Path) -> list[Path]:
        """Writes each image's caption and references as TSV, without punctuation."""
        rows = []
        for number, prediction in enumerate(evaluation.outputs, 1):
            example = prediction.details.example
            references = " | ".join(map(captions.plain, example.captions))
            rows.append((getattr(example, "path", number), prediction.text, references))
        path = folder / f"captions_{evaluation.split}.tsv"
        return [storage.write_tsv(path, ("image", "caption", "references"), rows)]

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws a few images, their captions and the attention of each word."""
        split, predictions, paths = evaluation.split, evaluation.outputs, []
        if not evaluation.scores:
            examples = self.data.splits.examples(split)[:_FIGURES]
            predictions = self.captioner.captions(state.params, examples, self.search)
        for number, best in enumerate(predictions[:_FIGURES], 1):
            title = f"{split} image {number}".capitalize()
            path = folder / f"captions_{split}_{number}.png"
            paths.append(self.draw(best, title, path))
        return paths

    def predict(
        self, state: TrainState, lines: Lines, options: NBestOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Returns captions of image files, one path per line; see `Task`."""
        search, examples = options.search(self.search), []
        for line, text in lines.items():
            try:
                image = captions.read_image(Path(text.strip()), self.config.data.size)
            except UserError as error:
                raise UserError(f"line {line}: {error}") from None
            examples.append(captions.CaptionedImage(image, ()))
        return self.captioner.captions(
            state.params, examples, search, attention=attention
        )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws an image and the attention map of each word; see `Task`."""
        details = prediction.details
        if not prediction.text and details.strip.maps is not None:
            title += ": (empty)"  # without maps, `caption_strips` adds it
        return caption_strips(
            details.example.image,
            [details.strip],
            title=title,
            path=path,
            references=details.references,
        )
