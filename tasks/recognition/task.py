"""Recognition of objects on a larger image: digits, translated and with clutter.

`tasks.recognition.data` makes the images. The loss is the cross-entropy of the answers.
A model that samples locations adds the REINFORCE loss and the squared error of its
learned baseline: the hybrid loss of Mnih et al. (2014), section 3.2. The reward is 1 if
all answers are correct and 0 otherwise. If a model answers in order, the reward of a
location is the number of correct answers from its own on, up to the first mistake (Ba
et al., 2015, section 3). With `loss.rewarded=likelihood`, it is the log-probability of
all labels, or of the location's own label if the model answers in order, minus that of
a uniform guess. So it starts near 0, like the baseline. `error` is the percentage of
images with a wrong answer, with one pass of the mean locations; `wrong` that of the
answers. Answers after the first stop do not count.

Works with models whose `model.apply(variables, image, train=...)` returns logits
[B, K, W], with the fields `classes` and `outputs` and the constant `in_order`; those
that sample locations sow a `SampleRecord` with baselines, and a `GlimpseRecord`.

Axes: B images; I rows and columns; T glimpses; K answers; W classes of an answer.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from attention.glimpses import patch_box
from base import asset_files, storage
from base.errors import FieldError
from base.fields import Files, ordered, unread
from base.ranges import BATCH, EXAMPLES, Choice, Range
from base.records import GlimpseRecord, SampleRecord, records_of
from figures.attention import AttentionMap, path_map
from figures.strips import Strip, caption_strips
from tasks.common import user_files
from tasks.common.batches import EndlessBatches
from tasks.common.images import image_files, read_image
from tasks.recognition import data as recognition
from training import checks, reinforce
from training.configuration import EvaluationConfig, ModelConfig
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

_DIM = 0.25  # brightness of a pixel outside of all patches
_SHIFT = Range(0, 100, whole=True)


class Assets(NamedTuple):
    """Names of the classes, and a function that returns the images by split."""

    names: tuple[str, ...]
    read: Callable[[], dict[str, Any]]


class RecognitionData(recognition.Layout):
    """`config.data`: images on canvases."""

    source: Annotated[str, Choice(recognition.SOURCES)] = (
        "mnist"  # source of the digits
    )
    files: Files = Files()
    damaged: user_files.Damaged = user_files.REFUSE  # treatment of damaged images
    batch_size: Annotated[int, BATCH] = 128  # canvases per batch
    # Maximum number of pixels by which training images are moved, in rows and columns.
    shift: Annotated[int, _SHIFT] = 0

    def __post_init__(self):
        ordered(self, "min_objects", "objects", "data")
        if self.source == "files":
            for name, value in ("clutter", 0), ("answer", "objects"):
                if (given := getattr(self, name)) != value:
                    accepted = f"{value} with config.data.source=files"
                    raise FieldError(name, given, accepted)
            return
        unread("files", self.files, "config.data.source=files")
        room = self.side // recognition.SIDE
        if self.objects > room:
            accepted = f"at most {room} for data.side={self.side}"
            raise FieldError("objects", self.objects, accepted)


class RecognitionEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    images: Annotated[int, EXAMPLES] = 10_000  # maximum number of images
    # Maximum number of pixels by which held-out images are moved, in rows and columns.
    shift: Annotated[int, _SHIFT] = 0


class RecognitionLoss(reinforce.Weights):
    """`config.loss`."""

    # Reward of a location. RAM: 1 if all answers are correct ("correct"), or the
    # log-probability of all labels, less that of a guess ("likelihood"). DRAM: the
    # number of answers, from the next one on, before the first mistake ("correct"), or
    # the log-probability of the next label, less that of a guess ("likelihood").
    rewarded: Literal["correct", "likelihood"] = "correct"


class RecognitionConfig(ModelConfig):
    """The config of a recogniser."""

    data: RecognitionData = RecognitionData()
    loss: RecognitionLoss = RecognitionLoss(reward=1.0)
    evaluation: RecognitionEvaluation = RecognitionEvaluation(checkpoint="best")


class Recognition(Task):
    """Recognition of the objects on an image; see the module docstring."""

    metric = ("error", "min")
    Config = RecognitionConfig
    table = "answers", ("answer", "label")
    figure_name = "glimpses"

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Assets:
        """Reads a user's images, and writes their classes in training; see `Task`."""
        data, folder = config.data, Path(workdir) / "assets"
        if data.source != "files":
            read = functools.partial(recognition.read, data.source)
            if training:
                read()  # raises the error of a missing package
            return Assets(recognition.names(data.source), read)
        path, left_out = folder / "classes.txt", user_files.left_out(folder, training)
        images = image_files(data.damaged, left_out)

        @functools.cache
        def read_files() -> dict[str, list[recognition.Labelled]]:
            splits = recognition.read_files(data, images)
            if training:
                classes = recognition.classes_of(splits)
                asset_files.write(path, "\n".join(classes) + "\n")
            use = images.write if training else images.require
            use(folder, ((p, x, *labels) for x in splits for p, labels in splits[x]))
            return splits

        if training:
            read_files()
        names = storage.lines(path.read_text("utf-8"), str(path))
        return Assets(tuple(names), read_files)

    def __init__(self, config: ConfigDict, assets: Assets):
        self.config = config
        self.names, self._read = assets
        self.objects = functools.cache(self._objects)
        names = [field.name for field in dataclasses.fields(recognition.Layout)]
        self.layout = recognition.Layout(**{x: config.data[x] for x in names})
        self.model = checks.build_model(
            config,
            classes=self.layout.labels_count(len(self.names)),
            outputs=self.layout.outputs,
        )
        self.objective = Supervised(self._init, self.loss, make_optimizer(config))

    def _objects(self, split: str) -> Any:
        """The images of a split, read on first use."""
        splits = self._read()
        if self.config.data.source != "files":
            return splits[split]
        return self.layout.canvases(splits[split], self.names)

    def _init(self, rng: jax.Array) -> Any:
        side = self.config.data.side
        rngs = {"params": rng, "glimpse": rng}
        blank = jnp.zeros((1, side, side, 1))
        return self.model.init(rngs, blank, train=True)["params"]

    def train_data(self) -> EndlessBatches:
        """Returns the training batches."""
        return recognition.batches(
            self.objects("train"),
            self.layout,
            batch_size=self.config.data.batch_size,
            seed=self.config.seed,
            shift=self.config.data.shift,
        )

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the cross-entropy, with REINFORCE's loss for sampled locations."""
        logits, sown = self._apply(params, batch["image"], rng, train=True)
        nats = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        correct = (logits.argmax(-1) == batch["label"]).astype(jnp.float32)  # [B, K]
        loss, count = nats.sum(), jnp.asarray(len(nats), jnp.float32)
        wrong = 100 * (1 - correct.min(1)).sum()
        metrics = {"training_error": (wrong, count)}
        for sample in records_of(sown, SampleRecord):
            mask, weights = jnp.ones_like(sample.baseline), self.config.loss
            reward = self._rewards(nats, correct)
            reward = reward.repeat(mask.shape[1] // reward.shape[1], 1)
            loss += reinforce.reinforce_loss(
                [sample], reward, baseline=sample.baseline, mask=mask, weights=weights
            )
            error = reinforce.baseline_loss(sample.baseline, reward)
            metrics["baseline_error"] = error, jnp.sum(mask)
            loss += error
        return loss, (count, metrics)

    def _rewards(self, nats: jax.Array, correct: jax.Array) -> jax.Array:
        """Rewards of locations: [B, K] before each answer, [B, 1] before all."""
        if self.config.loss.rewarded == "likelihood":
            rewards = math.log(self.model.classes) - nats
            return rewards if self.model.in_order else rewards.sum(1, keepdims=True)
        if self.model.in_order:
            return rewards_to_go(correct)
        return correct.min(1, keepdims=True)  # all are correct

    def _apply(
        self, params: Any, image: jax.Array, rng: jax.Array, *, train: bool
    ) -> tuple[jax.Array, Any]:
        image = jnp.asarray(image, jnp.float32) / 255
        return self.model.apply(
            {"params": params},
            image,
            train=train,
            rngs={"glimpse": rng},
            mutable=["attention", "reinforce"],
        )

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns images of the split; see `Task`."""
        count, shift = self.config.evaluation.images, self.config.evaluation.shift
        objects, layout = self.objects(split), self.layout
        images = recognition.held_out(objects, split, count, layout, shift=shift)
        return {split: Stacked(images)}

    def outputs(
        self, state: TrainState, batch: Batch, attention: bool
    ) -> tuple[jax.Array, list[GlimpseRecord]]:
        """Returns logits [B, K, W] and, if requested, the glimpses."""
        rng = jax.random.key(0)  # of uniform locations
        logits, sown = self._apply(state.params, batch["image"], rng, train=False)
        return logits, records_of(sown, GlimpseRecord) if attention else []

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns `error` of images and, with several answers, `wrong` of answers."""
        logits, _ = evaluation.answers[evaluation.split].arrays
        label = evaluation.examples[evaluation.split].arrays["label"]
        stops = label == len(self.names)
        counted = np.cumsum(stops, 1) - stops == 0  # up to the first stop
        wrong = (logits.argmax(-1) != label) & counted  # [N, K]
        scores = {"error": 100 * float(wrong.any(1).mean())}
        if self.layout.outputs > 1:
            scores["wrong"] = 100 * float(wrong.sum() / counted.sum())
        return scores

    def row(self, number: int, example: Any, answer: Any) -> Sequence[str]:
        """Returns the answer and the label."""
        return self._text(answer[0].argmax(-1)), self._text(example["label"])

    def _text(self, labels: np.ndarray) -> str:
        """The answers [K] as text, up to the first stop."""
        if self.layout.answer == "sum":
            return str(labels[0])
        stop = len(self.names)
        before = itertools.takewhile(lambda label: label < stop, labels)
        return " ".join(self.names[label] for label in before)

    def parse(self, line: str, options: NoOptions) -> Any:
        """Returns the image of a file, scaled to the canvas and padded, in grey."""
        side = self.config.data.side
        image = recognition.grey(read_image(Path(line), side, whole=True))
        return {"image": image}

    def show(self, example: Any, answer: Any) -> Prediction:
        """Returns the answers and their log-probability, in nats."""
        logits, records = answer
        text = self._text(logits.argmax(-1))
        score = float(jax.nn.log_softmax(logits).max(-1).sum())
        caption = text
        if "label" in example:
            caption = f"{text or '(empty)'}, label: {self._text(example['label'])}"
        maps = tuple(self._glimpses(record, example["image"]) for record in records)
        details = example["image"], *records
        return Prediction(text, score, maps, caption=caption, details=details)

    def _glimpses(self, record: GlimpseRecord, image: np.ndarray) -> AttentionMap:
        """The glimpses at an image [I, J, 1]: each step has all its weight on one."""
        location, shape = np.asarray(record.location), image.shape[:2]
        count, outputs = len(location), self.layout.outputs
        steps = [f"glimpse {t + 1}" for t in range(count)]
        if self.model.in_order:
            steps = [
                f"{step}, answer {t * outputs // count + 1}"
                for t, step in enumerate(steps)
            ]
        boxes = [patch_box(each, shape, size=record.size) for each in location]
        note = f"Frame: the finest of {record.scales} patches." * (record.scales > 1)
        image = np.repeat(image, 3, -1)
        return path_map("glimpse", boxes, steps, image, key="glimpse", note=note)

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path | None:
        """Draws what each glimpse sees, with a frame around its finest patch."""
        image, *records = prediction.details
        if not records:
            return None
        (record,), shape = records, image.shape[:2]
        maps, boxes = [], []
        for location in np.asarray(record.location):
            maps.append(np.full(shape, _DIM, np.float32))
            for scale in reversed(range(record.scales)):
                box = patch_box(location, shape, size=record.size, scale=scale)
                top, left, bottom, right = np.maximum(np.asarray(box), 0).astype(int)
                share = 1 - (1 - _DIM) * scale / record.scales
                maps[-1][top:bottom, left:right] = share
            boxes.append(np.asarray(box).tolist())
        strip = Strip(prediction.attention[0].queries, np.stack(maps), boxes)
        title = f"{title}: {prediction.caption}"
        note = "brightness: finer patches are brighter; frame: the finest patch"
        image = np.repeat(image, 3, -1)
        return caption_strips(image, [strip], title, path, note=note)


def rewards_to_go(correct: jax.Array) -> jax.Array:
    """Number of correct answers from each answer on, up to the first mistake of all.

    `correct` [B, K] is 1 or 0; returns [B, K].
    """
    so_far = jnp.cumprod(correct, axis=1)
    return jnp.cumsum(so_far[:, ::-1], axis=1)[:, ::-1]
