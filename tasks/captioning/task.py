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

Axes: B images; H heads; S positions of a feature map, row by row; T target steps.
"""

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import UserError
from base.fields import Fields, ordered, unread
from base.ranges import BATCH, EXAMPLES, STEPS, VOCABULARY, WEIGHT, Range
from base.records import AttentionRecord, SampleRecord, records_of
from figures.attention import Places, attention_map, grid, grid_labels
from figures.strips import Strip, caption_strips
from generation.options import BeamOptions, NBestOptions
from generation.search import ALPHA, BEAM, Generator, Hypothesis, Search, array_batches
from generation.teacher_forced import AttentionReader
from tasks.captioning import captions
from tasks.captioning.captions import Captioned
from tasks.captioning.inputs import CaptionData
from tasks.captioning.metrics import split_scores, word_boxes
from tasks.captioning.scenes import Scene
from tasks.common import user_files
from tasks.common.batches import EndlessBatches
from tasks.common.losses import smoothed_cross_entropy
from tasks.common.objectives import supervised
from tasks.common.splits import SPLITS
from tasks.common.vocabulary import BOS, PAD, UNK, Vocabulary, train_vocabulary
from training import checks, reinforce
from training.configuration import EvaluationConfig, ModelConfig
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Prediction, Scores, Task

_FIGURES = 4  # images of a split that are drawn
_OBJECTS = Range(2, 9, whole=True)
_NOTE = "Dashed frames: the objects of the scene."


class CaptionedFiles(Fields):
    """Captions, a JSON file, and the folder of the images that it names."""

    captions: str = ""  # JSON file of captions; empty for none
    images: str = ""  # folder of images; empty for none


class SplitFiles(Fields):
    """Captioned files of each split; those of the test may be missing."""

    train: CaptionedFiles = CaptionedFiles()
    validation: CaptionedFiles = CaptionedFiles()
    test: CaptionedFiles = CaptionedFiles()


class CaptioningData(Fields):
    """`config.data`: captioned images."""

    source: Literal["scenes", "files"] = "scenes"  # generated scenes, or your `files`
    damaged: user_files.Damaged = user_files.REFUSE  # treatment of damaged images
    # Groups of OpenMoji drawings, or of shapes, which need no download.
    groups: tuple[str, ...] = ("animal-", "food-", "person-role")
    size: Annotated[int, Range(24, 10_000, whole=True)] = 72  # image size, in pixels
    min_objects: Annotated[int, _OBJECTS] = 2  # minimum number of drawings per scene
    max_objects: Annotated[int, _OBJECTS] = 3  # maximum number of drawings per scene
    references: Annotated[int, Range(1, 24, whole=True)] = 4  # captions per image
    # Number of training scenes for an encoder of stored feature maps ("maps").
    scenes: Annotated[int, EXAMPLES] = 4000
    vocab_size: Annotated[int, VOCABULARY] = 1000  # maximum size of the vocabulary
    # Maximum number of words of a caption, including EOS.
    max_length: Annotated[int, Range(2, 10_000, whole=True)] = 48
    batch_size: Annotated[int, BATCH] = 32  # images per batch
    files: SplitFiles = SplitFiles()

    def __post_init__(self):
        ordered(self, "min_objects", "max_objects", "data")
        if self.source != "files":
            unread("files", self.files, "config.data.source=files")
            return
        for split in SPLITS:
            files = getattr(self.files, split)
            if split == "test" and not files.captions and not files.images:
                continue
            if not files.captions or not files.images:
                raise UserError(
                    f"config.data.files.{split} needs captions, a JSON file, and "
                    "images, the folder of the images that it names"
                )


class CaptioningLoss(reinforce.Weights):
    """`config.loss`.

    `reward` and `entropy` are lambda_r and lambda_e of eq. 12, per caption. The
    authors' code amounts to 0.5 and 0.13: it divides the reward by the number of words,
    and neither term by the batch size.
    """

    # Weight of the coverage loss, lambda of eq. 14; 1 in the authors' code. Here a
    # drawing covers a ninth of the map; with 1, attention spreads over the whole map
    # and no names are learned.
    coverage: Annotated[float, WEIGHT] = 0.0
    entropy: Annotated[float, WEIGHT] = 0.002
    # Number of first steps with soft attention. With 0, hard attention learns no names
    # in 6,000 steps.
    soft_steps: Annotated[int, dataclasses.replace(STEPS, min=0)] = 0


class CaptioningEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    images: Annotated[int, EXAMPLES] = 500  # maximum of evaluated images
    batch_size: Annotated[int, BATCH] = 100  # images per batch
    beam: Annotated[int, BEAM] = 3  # beam size; 1 for greedy search
    alpha: Annotated[float, ALPHA] = 0.0  # exponent of the length penalty


class CaptioningConfig(ModelConfig):
    """The config of a captioner."""

    data: CaptioningData = CaptioningData()
    loss: CaptioningLoss = CaptioningLoss()
    evaluation: CaptioningEvaluation = CaptioningEvaluation()


class Details(NamedTuple):
    """An image, and the words and maps of a predicted caption."""

    example: Captioned
    strip: Strip

    @property
    def references(self) -> list[str]:
        """The references, in the words of captions."""
        return [*map(captions.plain, self.example.captions)]


class Captioning(Task):
    """Training, evaluation and figures of a captioner; see the module docstring."""

    metric = ("bleu_4", "max")
    Config = CaptioningConfig
    EvaluationOptions = BeamOptions
    Options = NBestOptions
    figure_name = "caption"
    table = "captions", ("image", "caption", "references")
    one_by_one = False

    @classmethod
    def prepare(
        cls, config: ConfigDict, workdir: Path, *, training: bool
    ) -> CaptionData:
        """Reads the captions and builds the vocabulary, or reads the latter alone."""
        folder = workdir / "assets"
        path = folder / "vocabulary.model"
        data = CaptionData(config, left_out=user_files.left_out(folder, training))
        if not training:
            data.vocabulary = Vocabulary(path)
            return data
        import sacrebleu  # noqa: F401  # if it is missing, say so before training

        texts, fields = data.training_texts(), config.data
        data.vocabulary = train_vocabulary(texts, fields.vocab_size, path, "word")
        if fields.source == "files":
            data.files.write(folder, data.used())
        lines = data.report()
        words = fields.max_length - 1  # and EOS
        cut = sum(len(text.split()) > words for text in texts)
        if lines and cut:
            lines.append(
                f"{cut:,} training captions longer than config.data.max_length="
                f"{fields.max_length} words, the end included, are cut"
            )
        if jax.process_index() == 0:
            print("".join(f"data: {line}\n" for line in lines), file=sys.stderr, end="")
        return data

    def __init__(self, config: ConfigDict, assets: CaptionData):
        self.config, self.data = config, assets
        self.vocabulary = assets.vocabulary
        self.model = checks.build_model(config, vocab_size=self.vocabulary.size)
        blank = {"source": self.data.blank(), "target": jnp.ones((1, 2), jnp.int32)}
        self.objective = supervised(
            self,
            blank,
            extra=reinforce.initial_baseline(self.model.needs_reinforce),
            update_extra=reinforce.move_baseline,
        )
        self.search = Search.configured(config.evaluation)
        self.generator = Generator(self.model, forbidden=(PAD, BOS, UNK))
        self.attention = AttentionReader(self.model)

    def train_data(self) -> EndlessBatches:
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
        for record in records_of(sown, AttentionRecord):
            coverage = jnp.einsum("bhts,bt->bhs", record.weights, mask)
            penalty = jnp.sum(jnp.square(1 - coverage))
            loss += weights.coverage * penalty
            metrics["coverage"] = (penalty, count)
        if state.extra is not None:
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, target)
            reward = jax.lax.stop_gradient(-jnp.sum(nll * mask, axis=1))  # [B]
            samples, baseline = records_of(sown, SampleRecord), state.extra["baseline"]
            loss += reinforce.reinforce_loss(
                samples, reward[:, None], baseline, mask=mask, weights=weights
            )
            metrics["reward"] = (jnp.sum(reward), count)
        return loss, (count, metrics)

    def examples(self, split: str, *, full: bool = True) -> dict[str, list[Captioned]]:
        """Returns the images of a split; see `Task`.

        A full evaluation has the group "novel", scenes with drawings that are not in
        training, if there are any.
        """
        names = [split] + ["novel"] * (full and self.data.has_novel())
        return {name: self.data.examples(name) for name in names}

    def answers(
        self,
        state: TrainState,
        examples: Sequence[Captioned],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> list[Prediction]:
        """Returns captions, by greedy decoding in training; see `Task`."""
        search = Search() if options is None else options.search(self.search)
        batches = array_batches(
            len(examples),
            self.config.evaluation.batch_size,
            lambda indices: self.data.inputs([examples[i].image for i in indices]),
            length=self.config.data.max_length,
        )
        attends = self.generator.attends(state.params, self.data.blank())
        ranked = self.generator.generate(
            state.params, batches, search, keep_weights=attends
        )
        if attention:
            ranked = self.attention.with_records(
                state.params,
                lambda i: {"source": self.data.inputs([examples[i].image])},
                ranked,
            )
        predictions = []
        for example, hypotheses in zip(examples, ranked, strict=True):
            best, *others = [self._prediction(example, each) for each in hypotheses]
            predictions.append(best._replace(others=tuple(others)))
        return predictions

    def _prediction(self, example: Captioned, hypothesis: Hypothesis) -> Prediction:
        pieces = self.vocabulary.pieces(hypothesis.ids[:-1])
        words = [piece.removeprefix("▁") for piece in pieces]
        maps, side, places, note = None, 0, None, ""
        if hypothesis.weights is not None:
            weights = hypothesis.weights[: len(words)]  # [T, S]
            side = math.isqrt(weights.shape[-1])
            maps = weights.reshape(len(words), side, side)
            if example.image.ndim == 3 and example.image.dtype == np.uint8:
                places = Places(grid(side, side), example.image)
                if isinstance(example, Scene):
                    truth = example.boxes / np.tile(example.image.shape[:2], 2)
                    places, note = places._replace(truth=truth), _NOTE
        attention = tuple(
            attention_map(
                x, words, grid_labels(side, side), ("word", "region")
            )._replace(places=places, note=note)
            for x in hypothesis.records
        )
        strip = Strip(words, maps, word_boxes(example, words))
        text, details = " ".join(words), Details(example, strip)
        references = " | ".join(details.references)
        caption = f"references: {references}" if references else ""
        return Prediction(
            text, hypothesis.score, attention, caption=caption, details=details
        )

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns the metrics of `tasks.captioning.metrics`; see `Task`.

        Those of the group "novel" are `<name>_novel`. A full evaluation has the
        settings: the number of `images`, the `beam` size and the `signatures` of
        sacreBLEU.
        """
        scores: Scores = {}
        for group, examples in evaluation.examples.items():
            strips = [answer.details.strip for answer in evaluation.answers[group]]
            words, maps, *_ = zip(*strips, strict=True)
            part, signatures = split_scores(examples, words, maps)
            ending = "" if group == evaluation.split else f"_{group}"
            scores |= {f"{name}{ending}": value for name, value in part.items()}
        if evaluation.options is None:
            return scores
        beam = evaluation.options.search(self.search).beam
        images = len(evaluation.examples[evaluation.split])
        return scores | {"images": images, "beam": beam, "signatures": signatures}

    def row(self, number: int, example: Captioned, answer: Prediction) -> tuple:
        """Returns path or number, caption and references, without punctuation."""
        references = " | ".join(map(captions.plain, example.captions))
        return getattr(example, "path", number), answer.text, references

    def picked(self, split: str, count: int) -> dict[str, Captioned]:
        """Returns the first images of a split."""
        examples = enumerate(self.data.examples(split)[:count], 1)
        return {f"captions_{number}": example for number, example in examples}

    def drawn(self, split: str) -> dict[str, Captioned]:
        """Returns the first four images of a split."""
        return self.picked(split, _FIGURES)

    def parse(self, line: str, options: NBestOptions) -> Captioned:
        """Returns the image of a file."""
        image = captions.read_image(Path(line.strip()), self.config.data.size)
        return captions.CaptionedImage(image, ())

    def show(self, example: Captioned, answer: Prediction) -> Prediction:
        """Returns the caption of an image."""
        return answer

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
