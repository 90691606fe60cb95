"""Visual question answering: one answer to a question about an image.

`tasks.visual_questions.data` has the questions. The loss of a question is the mean
negative log-likelihood of its annotators' answers; those outside the vocabulary add 0
(Kazemi and Elqursh, 2017, section 3). `accuracy` is that of
`tasks.visual_questions.metrics`; `mass_in_box` the attention in the boxes of the
objects that a question is about, known for scenes only.

Works with models whose `model.apply(variables, image, question, train=...)` returns
logits [B, W], with the fields `vocab_size` and `answers`; those that attend sow an
`AttentionRecord` with weights [B, 1, G, L].

Axes: B questions; K annotators; G glimpses; L regions of an image, row by row; M boxes;
T words; W answers.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import FieldError, UserError
from base.fields import Fields, unread
from base.ranges import BATCH, EXAMPLES, SIZE, WEIGHT, Choice, Range
from base.records import DETAILS, AttentionRecord, records_of
from figures import charts
from figures.attention import AttentionMap, Places, attention_map, grid, grid_labels
from figures.strips import Strip, caption_strips
from tasks.common import user_files
from tasks.common.batches import EndlessBatches
from tasks.common.images import read_image
from tasks.common.objectives import supervised
from tasks.common.splits import SPLITS
from tasks.common.vocabulary import UNK
from tasks.visual_questions import data as visual
from tasks.visual_questions import metrics, scenes
from tasks.visual_questions.data import Questions, VisualData
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Task

_NOTE = "Dashed frames: the objects that the question is about."


class VisualFiles(Fields):
    """Questions and annotations, JSON files, and the folder of the images."""

    questions: str = ""  # JSON file of questions; empty for none
    annotations: str = ""  # JSON file of annotations; empty for none
    images: str = ""  # folder of images; empty for none


class SplitFiles(Fields):
    """The files of each split."""

    train: VisualFiles = VisualFiles()
    validation: VisualFiles = VisualFiles()
    test: VisualFiles = VisualFiles()


class VisualFields(Fields):
    """`config.data`: questions about images."""

    source: Annotated[str, Choice(visual.SOURCES)] = "scenes"  # source of the images
    size: Annotated[int, Range(24, 10_000, whole=True)] = 64  # image size, in pixels
    # Maximum number of possible answers, the most frequent ones; 3,000 in the paper.
    answers: Annotated[int, SIZE] = 3000
    # Maximum number of words of a question; longer questions are cut.
    max_length: Annotated[int, SIZE] = 12
    batch_size: Annotated[int, BATCH] = 64  # questions per batch
    files: SplitFiles = SplitFiles()
    damaged: user_files.Damaged = user_files.REFUSE  # treatment of damaged images

    def __post_init__(self):
        if self.source != "files":
            unread("files", self.files, "config.data.source=files")
        if self.source == "easy" and self.size != visual.EASY_SIZE:
            raise FieldError("size", self.size, f"{visual.EASY_SIZE} for easy-VQA")


class VisualEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    questions: Annotated[int, EXAMPLES] = 10_000  # maximum number of questions


class VisualLoss(Fields):
    """`config.loss`."""

    # Weight of the loss of naming the object of each region; needs the source "scenes".
    objects: Annotated[float, WEIGHT] = 0.0


class VisualConfig(ModelConfig):
    """The config of visual question answering."""

    data: VisualFields = VisualFields()
    evaluation: VisualEvaluation = VisualEvaluation(checkpoint="best")
    loss: VisualLoss = VisualLoss()


class VisualQuestionAnswering(Task):
    """Visual question answering; see the module docstring."""

    metric = ("accuracy", "max")
    Config = VisualConfig
    table = "answers", ("type", "question", "answer", "answers")
    figure_name = "question"

    @classmethod
    def prepare(
        cls, config: ConfigDict, workdir: Path, *, training: bool
    ) -> VisualData:
        """Reads or builds the vocabulary; see `Task`."""
        folder = Path(workdir) / "assets"
        left_out = user_files.left_out(folder, training)
        if not training:
            return VisualData(config, visual.load(folder), left_out)
        if config.data.source == "files":
            for split in SPLITS[:-1]:
                visual.require(config.data.files[split], split)
        data = VisualData(config, left_out=left_out)
        data.write(folder)
        return data

    def __init__(self, config: ConfigDict, assets: VisualData):
        self.config, self.data = config, assets
        self.vocabulary = assets.vocabulary
        names_objects = config.loss.objects and config.data.source == "scenes"
        self.model = checks.build_model(
            config,
            vocab_size=self.vocabulary.words.size,
            answers=len(self.vocabulary.answers),
            objects=scenes.OBJECTS if names_objects else 0,
        )
        size, length = config.data.size, config.data.max_length
        image = jnp.zeros((1, size, size, 3), jnp.uint8)
        question = jnp.full((1, length), UNK, jnp.int32)
        self.objective = supervised(self, image, question)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches."""
        return self.data.batches()

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the mean negative log-likelihood of the annotators' answers."""
        logits, sown = self.model.apply(
            {"params": params},
            batch["image"],
            batch["question"],
            train=True,
            rngs={"dropout": rng, "alignment": jax.random.fold_in(rng, 1)},
            mutable=["objects"],
        )
        nats = answer_losses(logits, batch["answers"])
        count = jnp.asarray(len(nats), jnp.float32)
        given = (logits.argmax(-1)[:, None] == batch["answers"]).mean(1)
        metrics = {"training_agreement": (100 * given.sum(), count)}
        for names in jax.tree.leaves(sown):
            errors = object_losses(names, batch["objects"])
            metrics["object_loss"] = errors.sum(), count
            nats += self.config.loss.objects * errors
        return nats.sum(), (count, metrics)

    def examples(self, split: str, *, full: bool = True) -> dict[str, Questions]:
        """Returns questions of the split; see `Task`."""
        return {split: self.data.questions(split)}

    def outputs(
        self, state: TrainState, batch: Batch, attention: bool
    ) -> tuple[jax.Array, list[AttentionRecord]]:
        """Returns logits [B, W], and the attention [B, 1, G, L] of a model with any."""
        logits, sown = self.model.apply(
            {"params": state.params},
            batch["image"],
            batch["question"],
            train=False,
            mutable=["attention", DETAILS] if attention else ["attention"],
        )
        return logits, records_of(sown, AttentionRecord)

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns scores in per cent.

        Scores: `accuracy`; that of each type of question, `accuracy_TYPE`; those of
        `metrics.mass_in_boxes`.
        """
        split = evaluation.split
        logits, records = evaluation.answers[split].arrays
        questions: Any = evaluation.examples[split]
        answers, boxes = questions.arrays["answers"], questions.arrays["boxes"]
        correct = 100 * metrics.accuracy(logits.argmax(-1), answers)
        scores = {"accuracy": float(correct.mean())}
        types = np.array(questions.types)
        for name in sorted(set(questions.types)):
            scores[f"accuracy_{name}"] = float(correct[types == name].mean())
        for each in records:
            weights, size = each.weights[:, 0], self.config.data.size
            scores |= metrics.mass_in_boxes(weights, boxes, size)
        return scores

    def rows(self, evaluation: Evaluation) -> list[Sequence[str]]:
        """Returns type, question, answer and the annotators' answers."""
        split = evaluation.split
        questions: Any = evaluation.examples[split]
        best = evaluation.answers[split].arrays[0].argmax(-1)
        return [
            (
                questions.types[i],
                questions.texts[i],
                self.vocabulary.answers[best[i]],
                " | ".join(questions.answers[i]),
            )
            for i in range(len(questions))
        ]

    def parse(self, line: str, options: NoOptions) -> Any:
        """Returns the example of the path of an image, a tab and a question."""
        path, tab, question = line.partition("\t")
        if not tab or not visual.plain(question):
            raise UserError("must be the path of an image, a tab and a question")
        data = self.config.data
        ids = self.vocabulary.ids(question, data.max_length)
        return {
            "image": read_image(Path(path.strip()), data.size),
            "question": visual.pad([ids], data.max_length)[0],
            "answers": np.full(1, -1, np.int32),
            "boxes": np.zeros((1, 4), np.int32),
        }

    def unusual(self, example: Any, answer: Any) -> Sequence[str]:
        """Returns a warning about words that no training question has."""
        unknown = int((example["question"] == UNK).sum())
        return [f"has {unknown} words that no training question has"] * bool(unknown)

    def show(self, example: Any, answer: Any) -> Prediction:
        """Returns the answer and its log-probability, in nats."""
        logits, records = answer
        text = self.vocabulary.answers[logits.argmax()]
        ids = example["question"]
        question = " ".join(self.vocabulary.words.names[i] for i in ids if i)
        return Prediction(
            text,
            float(jax.nn.log_softmax(logits).max()),
            tuple(_map(each, example["image"], example["boxes"]) for each in records),
            caption=f"{question}? {text}",
            details=example,
            source=f"{question}?",
        )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path | None:
        """Draws an image and the attention of each glimpse or hop.

        A frame marks the object that is asked for, if it is known.
        """
        example = prediction.details
        if not prediction.attention:
            return None
        (maps,) = prediction.attention[0].weights  # [G, L]
        side = math.isqrt(maps.shape[-1])
        words = [f"glimpse {g}" for g in range(1, len(maps) + 1)]
        box = example["boxes"][0]
        boxes = [box.tolist() if box.any() else None] * len(maps)
        strip = Strip(words, maps.reshape(-1, side, side), boxes)
        title = f"{title}: {prediction.caption}"
        return caption_strips(example["image"], [strip], title, path)

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the accuracy of each type of question."""
        return charts.accuracies(
            evaluation.scores, "type of question", evaluation.split, folder
        )


def _map(record: AttentionRecord, image: np.ndarray, boxes: np.ndarray) -> AttentionMap:
    """The attention [1, G, L] of glimpses to the regions of an image [I, J, 3].

    The boxes [M, 4] are those of `tasks.visual_questions.scenes.Scene`.
    """
    _, glimpses, regions = record.weights.shape
    side, about = math.isqrt(regions), boxes[boxes.any(-1)]
    truth = about / np.tile(image.shape[:2], 2) if len(about) else None
    return attention_map(
        record,
        [f"glimpse {g + 1}" for g in range(glimpses)],
        grid_labels(side, side),
        ("glimpse", "region"),
    )._replace(
        places=Places(grid(side, side), image, truth=truth),
        note="" if truth is None else _NOTE,
    )


def object_losses(logits: jax.Array, objects: jax.Array) -> jax.Array:
    """Mean negative log-likelihood of the objects in the middle of regions.

    Args:
        logits: [B, L, `scenes.OBJECTS`], of square maps of regions.
        objects: int [B, I, I], see `scenes.Scene`.

    Returns:
        [B] in nats.
    """
    side = math.isqrt(logits.shape[1])
    middle = (np.arange(side) * 2 + 1) * objects.shape[1] // (2 * side)
    target = objects[:, middle][:, :, middle].reshape(len(objects), -1)  # [B, L]
    return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean(1)


def answer_losses(logits: jax.Array, answers: jax.Array) -> jax.Array:
    """Mean negative log-likelihood of the annotators' answers.

    Args:
        logits: [B, W].
        answers: int [B, K], numbers of the answers; -1 for one that is not possible,
            which adds 0.

    Returns:
        [B] in nats.
    """
    nats = -jax.nn.log_softmax(logits)
    each = jnp.take_along_axis(nats, jnp.maximum(answers, 0), 1)  # [B, K]
    return jnp.where(answers >= 0, each, 0).mean(1)
