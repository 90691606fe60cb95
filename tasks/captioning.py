"""Captioning: cross-entropy of captions, BLEU, and whether attention points.

The loss is that of Xu et al. (2015), eq. 14: the negative log-likelihood of a caption
plus `config.loss.coverage` times sum_i (1 - sum_t alpha_ti)^2, "doubly stochastic"
attention, which the paper has for soft alignments alone; a mean over captions. A hard
alignment is learned by REINFORCE (`training.reinforce`): the reward is the
log-likelihood of the whole caption, the baseline its moving mean. In the first
`config.loss.soft_steps` steps soft weights take the place of all draws.

Scores are those of `metrics.captions`, on words without punctuation, against all
captions of an image. Works with any model of the protocol of `tasks.translation` whose
`source` is what `tasks.caption_data` makes of images (`models.captioner` shows it).

Axes: B images; S positions of a map; T target steps.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

import storage
from data import captions
from data.caption_splits import SOURCES
from data.splits import check_split
from data.vocabulary import PAD
from errors import UserError
from figures.strips import caption_strips
from generation.options import BeamOptions, NBestOptions
from generation.search import Search
from metrics.captions import split_scores
from metrics.text import CorpusScores
from models.records import AttentionRecord, DrawRecord, collect
from ops.cross_entropy import smoothed_cross_entropy
from tasks import caption_data
from tasks.caption_data import CaptionData
from tasks.caption_search import CaptionSearch
from training import checks, reinforce
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, Prediction, Scores, Task

_DRAWN = 4  # images of a split
_MINIMUMS = {
    "data.batch_size": 1,
    "data.size": 24,
    "data.max_length": 2,
    "data.scenes": 1,
}
_MINIMUMS |= {"evaluation.images": 1, "evaluation.batch_size": 1, "loss.coverage": 0}
_MINIMUMS |= {"loss.reward": 0, "loss.entropy": 0, "loss.soft_steps": 0}


class Captioning(Task):
    """Trains, evaluates and draws a captioner; see the module's docstring."""

    metric = ("bleu_4", "max")
    EvaluationOptions = BeamOptions
    Options = NBestOptions
    figure_name = "caption"

    @classmethod
    def check(cls, config: ConfigDict) -> None:
        """Checks what must fit together; see `Task`."""
        checks.choice("data.source", config.data.source, SOURCES)
        checks.at_least(config, _MINIMUMS)
        super().check(config)

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
        """Eq. 14 of Xu et al. (2015) a caption, and REINFORCE's loss where it draws."""
        weights, target = self.config.loss, batch["target"]
        variables = {"params": params}
        if state.extra is not None and weights.soft_steps:
            soft = state.step < weights.soft_steps
            share = jnp.where(soft, 1.0, self.config.model.soft_prob)
            variables["schedule"] = {"soft_prob": share}
        logits, sown = self.model.apply(
            variables,
            batch,
            train=True,
            rngs={"dropout": rng, "alignment": jax.random.fold_in(rng, 1)},
            mutable=["attention", "reinforce"],
        )
        mask = (target != PAD).astype(jnp.float32)  # [B, T]
        loss, tokens = smoothed_cross_entropy(logits, target, 0.0, mask)
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
                records, reward[:, None], baseline, mask, weights
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
        """Scores greedy captions of the validation split."""
        return self._scores(state, "validation", Search())[0].scores

    def evaluate(
        self, state: TrainState, split: str, options: BeamOptions
    ) -> Evaluation:
        """Scores captions of a split; see `Task`.

        The scores are those of `metrics.captions`, `<name>_novel` of scenes with
        drawings that training lacks, where there are any, and the settings: `images`,
        `beam` and `signatures`. The outputs are the captions.
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
        """Writes every caption beside the references, in words without punctuation."""
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
        """Draws the first images with their captions and the attention of each word."""
        split, predictions, paths = evaluation.split, evaluation.outputs, []
        if not evaluation.scores:
            examples = self.data.splits.examples(split)[:_DRAWN]
            predictions = self.captioner.captions(state.params, examples, self.search)
        for number, best in enumerate(predictions[:_DRAWN], 1):
            title = f"{split} image {number}".capitalize()
            path = folder / f"captions_{split}_{number}.png"
            paths.append(self.draw(best, title, path))
        return paths

    def predict(
        self, state: TrainState, lines: Lines, options: NBestOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Captions images in files, a path a line; see `Task`."""
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
        """Draws the image, and the part of it that each word attends to."""
        example, strip = prediction.details
        return caption_strips(example.image, [strip], title, path)
