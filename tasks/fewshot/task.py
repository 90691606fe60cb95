"""Few-shot classification of images of new classes.

`tasks.fewshot.data` makes the episodes: N K images with labels, in random order, and
the query. The loss is the cross-entropy of the query's label, Mishra et al. (2018),
section 3; the number of examples of each class, K, is drawn for each batch in training.
An evaluation has episodes of each number in `config.evaluation.shots`, of classes that
training never has: `accuracy_K` is the accuracy with K examples in per cent, +-
`interval_K` its 95 % confidence interval; `accuracy` is the mean of `accuracy_K`. A
full evaluation also reports the accuracy of the nearest neighbour in pixels,
`nearest_K`.

Works with models whose `model.apply(variables, image, label, train=...)` returns logits
[B, W] of the last image of each episode, with the fields `ways` and `shots` and the
collection batch_stats. They may sow attention over the steps.

Axes: B episodes; T = N K + 1 images of an episode; I rows and columns of an image; W =
N classes.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import FieldError, UserError
from base.fields import Fields, unread
from base.ranges import BATCH, EXAMPLES, Choice, Range
from base.records import DETAILS, AttentionRecord, records_of
from figures.attention import AttentionMap, Places, attention_map
from figures.strips import Strip, caption_strips
from tasks.common import user_files
from tasks.common.batches import EndlessBatches
from tasks.common.images import image_files
from tasks.fewshot import data as fewshot
from tasks.fewshot.data import Characters
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, Metrics, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

_SHOTS = Range(1, 100, whole=True)
_STATISTICS = "batch_stats"  # a collection of the model, and a metric of a step


class FewShotData(Fields):
    """`config.data`: episodes."""

    # Source of the images of characters.
    source: Annotated[str, Choice(fewshot.SOURCES)] = "matplotlib"
    folder: str = ""  # folder with a subfolder of images per class, for "folder"
    damaged: user_files.Damaged = user_files.REFUSE  # treatment of damaged images
    # Whether each rotation of a character by 90 degrees is a class of its own.
    rotations: bool = True
    # N, number of classes of an episode.
    ways: Annotated[int, Range(2, 1000, whole=True)] = 5
    # Maximum K in training, the number of examples of each class.
    shots: Annotated[int, _SHOTS] = 5
    batch_size: Annotated[int, BATCH] = 32  # episodes per batch

    def __post_init__(self):
        if self.source != "folder":
            unread("folder", self.folder, "config.data.source=folder")
        elif not self.folder:
            raise FieldError("folder", "", "a folder of folders of images")


class FewShotEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    # Number of episodes for each entry of `shots`.
    episodes: Annotated[int, EXAMPLES] = 1000
    # Numbers of examples of each class, evaluated one by one.
    shots: Annotated[tuple[int, ...], _SHOTS.each()] = (1, 5)


class FewShotConfig(ModelConfig):
    """The config of a classifier of episodes."""

    data: FewShotData = FewShotData()
    evaluation: FewShotEvaluation = FewShotEvaluation(checkpoint="best")

    def __post_init__(self):
        super().__post_init__()
        shots, maximum = self.evaluation.shots, self.data.shots
        if not shots or len({*shots}) < len(shots) or max(shots) > maximum:
            accepted = f"different numbers up to config.data.shots={maximum}"
            raise FieldError("evaluation.shots", shots, accepted)


class WithStatistics(Supervised):
    """Supervised objective of a model with batch norm, whose averages are `extra`."""

    def init(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        variables = self.init_params(rng)
        statistics = variables[_STATISTICS]
        return TrainState.create(variables["params"], self.optimizer, statistics)


def _statistics(extra: Any, metrics: Metrics) -> Any:
    """Returns the averages over the micro-batches, and removes them from `metrics`."""
    totals, count = metrics.pop(_STATISTICS)
    return jax.tree.map(lambda x: x / count, totals)


class FewShot(Task):
    """Few-shot classification; see the module docstring."""

    metric = ("accuracy", "max")
    Config = FewShotConfig
    table = "answers", ("answer", "label")
    figure_name = "episode"

    @classmethod
    def prepare(
        cls, config: ConfigDict, workdir: Path, *, training: bool
    ) -> Callable[[], Mapping[str, Characters]]:
        """Returns a function that reads the classes by split; see `Task`.

        In training, writes a digest of a user's images.
        """
        data, folder = config.data, Path(workdir) / "assets"
        images = image_files(data.damaged, user_files.left_out(folder, training))

        @functools.cache
        def read() -> Mapping[str, Characters]:
            if data.source != "folder":
                return fewshot.read(data.source, rotations=data.rotations)
            splits = fewshot.read_folder(
                Path(data.folder), images, rotations=data.rotations
            )
            use = images.write if training else images.require
            use(folder, fewshot.files_of(splits))
            return splits

        if training:
            fewshot.check(read(), data.ways, data.shots)
        elif data.source == "folder":
            (folder / user_files.ASSET).stat()  # raises the error of a missing asset
        return read

    def __init__(
        self,
        config: ConfigDict,
        assets: Callable[[], Mapping[str, Characters]],
    ):
        self.config, self._read = config, assets
        data = config.data
        self.model = checks.build_model(config, ways=data.ways, shots=data.shots)
        blank = jnp.zeros((1, data.ways + 1, fewshot.SIDE, fewshot.SIDE))
        label = jnp.zeros(blank.shape[:2], jnp.int32)
        self.objective = WithStatistics(
            lambda rng: self.model.init(rng, blank, label, train=False),
            self.loss,
            make_optimizer(config),
            update_extra=_statistics,
        )

    def train_data(self) -> EndlessBatches:
        """Returns the training batches."""
        data = self.config.data
        return fewshot.batches(
            self._read()["train"],
            ways=data.ways,
            shots=data.shots,
            batch_size=data.batch_size,
            seed=self.config.seed,
        )

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the cross-entropy of the queries."""
        logits, sown = self._apply(params, batch, state, train=True)
        label = batch["label"][:, -1]
        nats = optax.softmax_cross_entropy_with_integer_labels(logits, label)
        count = jnp.asarray(len(label), jnp.float32)
        correct = (logits.argmax(-1) == label).sum(dtype=jnp.float32)
        metrics = {
            "training_accuracy": (100 * correct, count),
            _STATISTICS: (sown[_STATISTICS], jnp.ones(())),
        }
        return nats.sum(), (count, metrics)

    def _apply(
        self,
        params: Any,
        batch: Batch,
        state: TrainState,
        *,
        train: bool,
        details: bool = False,
    ) -> tuple[jax.Array, Any]:
        return self.model.apply(
            {"params": params, _STATISTICS: state.extra},
            jnp.asarray(batch["image"], jnp.float32) / 255,
            batch["label"],
            train=train,
            mutable=["attention", *[_STATISTICS] * train, *[DETAILS] * details],
        )

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns episodes of each number of shots; see `Task`."""
        config, groups = self.config, {}
        characters = self._read()
        for shots in config.evaluation.shots:
            episodes = fewshot.held_out(
                characters[split],
                split,
                config.evaluation.episodes,
                ways=config.data.ways,
                shots=shots,
            )
            groups[f"{split}_{shots}" if groups else split] = Stacked(episodes)
        return groups

    def batch(self, examples: Sequence[Any]) -> Batch:
        """Returns episodes without the names of their classes."""
        if isinstance(examples, Stacked):
            return examples.arrays
        return {k: np.stack([x[k] for x in examples]) for k in ("image", "label")}

    def outputs(
        self, state: TrainState, batch: Batch, attention: bool
    ) -> tuple[jax.Array, list[AttentionRecord]]:
        """Returns logits [B, W] and, if requested, the attention over the steps."""
        logits, sown = self._apply(
            state.params, batch, state, train=False, details=attention
        )
        return logits, records_of(sown, AttentionRecord) if attention else []

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns accuracies in per cent; see the module docstring."""
        accuracies, scores = [], {}
        groups = zip(self.config.evaluation.shots, evaluation.examples, strict=True)
        for shots, group in groups:
            batch = evaluation.examples[group].arrays
            logits, _ = evaluation.answers[group].arrays
            label = batch["label"][:, -1]
            accuracies.append(100 * float((logits.argmax(-1) == label).mean()))
            scores[f"accuracy_{shots}"] = accuracies[-1]
            scores[f"interval_{shots}"] = interval(accuracies[-1], len(label))
            if evaluation.options is not None:
                correct = nearest(**batch) == label
                scores[f"nearest_{shots}"] = 100 * float(correct.mean())
        return {"accuracy": float(np.mean(accuracies))} | scores

    def row(self, number: int, example: Any, answer: Any) -> tuple[int, int]:
        """Returns the answer and the label, as numbers within the episode."""
        return int(answer[0].argmax()), int(example["label"][-1])

    def parse(self, line: str, options: NoOptions) -> Any:
        """Returns the episode of a folder with folders of images, and an image."""
        parts = line.split("\t")
        if len(parts) != 2:
            raise UserError(
                f"has {len(parts)} parts: must be a folder of folders of images, a tab "
                "and an image"
            )
        folder, ways, shots = Path(parts[0]), self.model.ways, self.model.shots
        classes = fewshot.class_folders(folder)
        images_of_class = max(map(len, classes.values()), default=0)
        if len(classes) != ways or images_of_class > shots:
            raise UserError(
                f"{folder} has {len(classes)} folders with up to {images_of_class} "
                f"images: must have {ways} with at most {shots}, as in training"
            )
        pairs = [
            (fewshot.image_of(path), number)
            for number, paths in enumerate(classes.values())
            for path in paths
        ]
        order = np.random.default_rng(0).permutation(len(pairs))
        images, labels = zip(*(pairs[n] for n in order), strict=True)
        image = np.stack([*images, fewshot.image_of(Path(parts[1]))])
        names = [str(path.relative_to(folder)) for path in classes]
        label = np.int32([*labels, 0])
        return {"image": image, "label": label, "names": names}

    def show(self, example: Any, answer: Any) -> Prediction:
        """Returns the class and its log-probability, in nats."""
        logits, records = answer
        number, label = int(logits.argmax()), example["label"]
        if "names" in example:
            text = caption = example["names"][number]
        else:
            text = f"class {number + 1}"
            caption = f"{text}, label: class {label[-1] + 1}"
        score = float(jax.nn.log_softmax(logits).max())
        maps = tuple(self._map(each, example) for each in records)
        details = example["image"], label
        return Prediction(text, score, maps, caption=caption, details=details)

    def _map(self, record: AttentionRecord, example: Any) -> AttentionMap:
        """Attention between the images of an episode, drawn on their `montage`."""
        image, label = example["image"], example["label"]
        names = example.get("names", [f"class {n + 1}" for n in range(self.model.ways)])
        steps = [f"{t}: {names[n]}" for t, n in enumerate(label[:-1], 1)] + ["query"]
        _, queries, keys = record.weights.shape
        cells = cells_of(label, self.model.ways)
        size = np.max(cells, 0) + 1
        boxes = np.concatenate([cells / size, (cells + 1) / size], 1)
        places = Places(boxes[:keys], grey(image, cells), queries=boxes[-queries:])
        titles = "image", "attended image"
        each = attention_map(record, steps[-queries:], steps[:keys], titles)
        return each._replace(places=places)

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path | None:
        """Draws the images of the classes side by side, the query below, and attention.

        Each column is a class; there is a panel for the weights of each layer.
        """
        (image, label), attended = prediction.details, prediction.attention
        cells = cells_of(label, self.model.ways)
        strip = Strip(["no attention"], None)
        if attended:
            maps = [montage(shades(x.weights, image), cells) for x in attended]
            row, column = fewshot.SIDE * cells[-1]
            box = (row, column, row + fewshot.SIDE, column + fewshot.SIDE)
            words = [f"layer {x.layer + 1}" for x in attended]
            strip = Strip(words, np.stack(maps), [box] * len(maps))
        large, title = grey(image, cells), f"{title}: {prediction.caption}"
        return caption_strips(large, [strip], title, path)


def interval(accuracy: float, episodes: int) -> float:
    """Half of the 95 % confidence interval of an accuracy in per cent."""
    return 1.96 * math.sqrt(accuracy * (100 - accuracy) / episodes)


def nearest(image: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Label of the image with the minimum squared distance to the query in pixels.

    Args:
        image: [B, T, I, I], the query last.
        label: int [B, T]; that of the query is not read.

    Returns:
        int [B].
    """
    pixels = image.reshape(*image.shape[:2], -1).astype(np.float32)
    distance = np.square(pixels[:, :-1] - pixels[:, -1:]).sum(-1)  # [B, T - 1]
    return np.take_along_axis(label, distance.argmin(1)[:, None], 1)[:, 0]


def cells_of(label: np.ndarray, ways: int) -> np.ndarray:
    """Row and column [T, 2] of each image of an episode: a column for each class.

    Args:
        label: int [T]; the last image, the query, is in the last row.
        ways: number of columns.
    """
    rows, cells = [0] * ways, []
    for number in label[:-1]:
        cells.append((rows[number], number))
        rows[number] += 1
    return np.array([*cells, (max(rows), ways // 2)])


def montage(images: np.ndarray, cells: Sequence[Sequence[int]]) -> np.ndarray:
    """Puts images [T, I, I] into the cells [T, 2] of one large image."""
    side = images.shape[-1]
    rows, columns = np.max(cells, 0) + 1
    large = np.zeros((rows, side, columns, side), images.dtype)
    for image, (row, column) in zip(images, cells, strict=True):
        large[row, :, column] = image
    return large.reshape(rows * side, columns * side)


def grey(images: np.ndarray, cells: Sequence[Sequence[int]]) -> np.ndarray:
    """The `montage` of uint8 images [T, I, I] with three equal channels."""
    return np.repeat(montage(images, cells)[..., None], 3, -1)


def shades(weights: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Weight [T, I, I] of each image in attention [1, Q, K] of the last query."""
    of_query = weights[0, -1]
    every = np.zeros(len(images), np.float32)
    every[: len(of_query)] = of_query  # that of the query itself may be absent
    return np.broadcast_to(every[:, None, None], images.shape)
