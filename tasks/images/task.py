"""Adversarial image generation: a generator, a discriminator and image metrics.

The objective is `training.adversarial.Adversarial`; evaluation and figures use its
moving average of the generator.

Metrics compare `config.evaluation.images` generated images with as many real ones of
the same classes, sampled as in training. A frozen EfficientNet-lite0
(`models.efficientnet`) computes features and classes; the papers use Inception:

*   `frechet`: Frechet distance of 1280 features (Heusel et al. 2017);
*   `frechet_real`: the same between two samples of real images, as a reference;
*   `score`: Inception score (Salimans et al. 2016);
*   `gamma_<network>_<size>`: |gamma| of an attention layer; its sign is arbitrary.

These values are comparable only with each other, and favour copies of training images.
For corners, the metric `tasks.images.metrics.consistency` replaces the first three.

Axes: B images; I, J rows and columns; Y classes.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from base import asset_files, storage
from base.errors import FieldError, UserError
from base.fields import Fields, unread
from base.ranges import BATCH, EXAMPLES, FRACTION, SIZE, Choice, Range
from base.records import AttentionRecord
from figures.attention import AttentionMap, Places, grid, grid_labels
from figures.strips import image_grid, map_attention
from generation.images import ImageGenerator
from generation.options import SeedOptions
from generation.sampling import line_seed
from models import efficientnet
from models.gan import growing_decay
from models.sagan import gammas
from tasks.captioning import frozen
from tasks.common import user_files
from tasks.common.batches import EndlessBatches
from tasks.common.images import image_files
from tasks.common.splits import EVALUATION_SPLITS
from tasks.common.text import normal
from tasks.common.user_files import UserFiles
from tasks.images.data import SOURCES, LabelledImages, batches, openmoji
from tasks.images.data import folder as read_folder
from tasks.images.metrics import (
    OTHERS,
    consistency,
    frechet_distance,
    inception_score,
)
from training import adversarial, checks
from training.configuration import Config, EvaluationConfig
from training.optimizers import make_optimizer
from training.state import TrainState
from training.task import Evaluation, Prediction, Scores, Task

_BATCH = 100  # images generated or evaluated at a time
_SPLITS = len(EVALUATION_SPLITS)
_REAL_SEED = 2**40  # seed of the real images in evaluations
_PER_CLASS = 8  # images per class in a figure
_ATTENTIONS = 4  # images whose attention is drawn
_MAX_CLASSES = 20  # classes in a figure


class Assets(NamedTuple):
    """Names of the classes, in the order of their labels, and files left out."""

    classes: tuple[str, ...] = ("corners",)
    left_out: Sequence[str] | None = None


class Noise(NamedTuple):
    """Images to generate: classes [B], the seed of the noise, and the class' name."""

    labels: np.ndarray
    seed: int
    name: str = ""


class ImageData(Fields):
    """`config.data`: labelled images."""

    source: Annotated[str, Choice(SOURCES)] = "openmoji"  # source of the images
    # Groups of OpenMoji drawings, one class each; empty for all.
    groups: tuple[str, ...] = ()
    folder: str = ""  # folder with a subfolder of images per class, for "folder"
    damaged: user_files.Damaged = user_files.REFUSE  # treatment of damaged images
    batch_size: Annotated[int, BATCH] = 32  # images per batch

    def __post_init__(self):
        if self.source != "folder":
            unread("folder", self.folder, "config.data.source=folder")
        elif not self.folder:
            accepted = "a folder of folders of images, one per class"
            raise FieldError("folder", "", accepted)


class ImageEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    # Number of generated images; the corners of each are compared with those of others.
    images: Annotated[int, dataclasses.replace(EXAMPLES, min=OTHERS + 1)] = 2000
    # Image size that the frozen classifier reads, in pixels.
    size: Annotated[int, Range(1, 1000, whole=True)] = 96


class AttentionSizes(Fields):
    """`config.attention`: sizes of the maps with self-attention."""

    # Rows of the generator's maps that have self-attention.
    generator: Annotated[tuple[int, ...], SIZE.each()] = (16,)
    # Rows of the discriminator's maps that have self-attention.
    discriminator: Annotated[tuple[int, ...], SIZE.each()] = (16,)


class AdversarialConfig(Config):
    """The config of a generator and a discriminator."""

    architecture: Annotated[type, checks.MODEL]  # class of the generator
    # Class of the discriminator.
    discriminator_architecture: Annotated[type, checks.MODEL]
    model: ConfigDict
    attention: AttentionSizes = AttentionSizes()
    latent_size: Annotated[int, SIZE] = 128  # Z, width of the noise
    loss: Annotated[str, Choice(adversarial.LOSSES)] = "hinge"  # adversarial loss
    generator: ConfigDict  # an optimizer, like the next
    discriminator: ConfigDict
    # Decay of the moving average of the generator's parameters, which is evaluated.
    average_decay: Annotated[float, FRACTION] = 0.999
    data: ImageData = ImageData()
    evaluation: ImageEvaluation = ImageEvaluation()

    def __post_init__(self):
        super().__post_init__()
        if "size" not in self.model:
            raise FieldError("model.size", "missing", "a number of pixels")


class Adversarial(Task):
    """Training, evaluation and figures of a generator; see the module docstring."""

    metric = ("quality", "max")
    Config = AdversarialConfig
    Options = SeedOptions
    figure_name = "images"
    needs_figures = True

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Assets:
        """Reads the class names from the data or the run directory; see `Task`."""
        folder = Path(workdir) / "assets"
        path, left_out = folder / "classes.txt", user_files.left_out(folder, training)
        if training:
            files = image_files(config.data.damaged, left_out)
            images = read_images(config, files)
            if images is not None:  # a download, which evaluation needs
                frozen.parameters()
            names = images.names if images else Assets().classes
            asset_files.write(path, "\n".join(names) + "\n")
            if images and images.paths:
                classes = (names[label] for label in images.labels)
                files.write(folder, zip(images.paths, classes, strict=True))
                left_out = user_files.left_out(folder, training=False)
        names = storage.lines(path.read_text("utf-8"), str(path))
        return Assets(tuple(names), left_out)

    def __init__(self, config: ConfigDict, assets: Assets):
        self.config = config
        self.classes, self.left_out = assets
        sizes = config.attention
        families = dict(
            generator="architecture", discriminator="discriminator_architecture"
        )
        self.models = {
            name: checks.build_model(
                config, family, classes=len(self.classes), attention=tuple(sizes[name])
            )
            for name, family in families.items()
        }
        self.objective = adversarial.Adversarial(
            self.models,
            {name: make_optimizer(config, name=name) for name in families},
            adversarial.LOSSES[config.loss],
            latent_size=config.latent_size,
            size=config.model.size,
            average_decay=functools.partial(growing_decay, decay=config.average_decay),
            measure=gammas,
        )
        self.generator = ImageGenerator(
            self.models["generator"], self.objective.sample, _BATCH
        )
        self._real = functools.cache(self._sample_real)

    @functools.cached_property
    def images(self) -> LabelledImages | None:
        """The real images, read on first use; None for corners, which are synthetic."""
        files = image_files(left_out=self.left_out)
        return read_images(self.config, files)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches."""
        return self._batches(self.config.data.batch_size, self.config.seed)

    def _batches(self, batch_size: int, seed: int) -> EndlessBatches:
        size = self.config.model.size
        return batches(self.images, size, batch_size=batch_size, seed=seed)

    def examples(self, split: str, *, full: bool = True) -> dict[str, list[Noise]]:
        """Returns the classes of the real images of a split; see `Task`.

        The splits differ in noise and real images.
        """
        number = EVALUATION_SPLITS.index(split)
        return {split: [Noise(self._real(number)[0], number)]}

    def answers(
        self,
        state: TrainState,
        examples: Sequence[Noise],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> list[tuple[np.ndarray, Any]]:
        """Returns images, uint8 [B, I, J, 3], and attention if it is requested."""
        average, answers = self.objective.average(state), []
        for labels, seed, *_ in examples:
            images, attended = self.generator.images(average, labels, seed), None
            if attention:
                attended = self.generator.attention(average, labels, seed)
            answers.append((images, attended))
        return answers

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns the metrics of the module docstring, and `quality`; see `Task`.

        `quality`, higher is better, is -`frechet`, or for corners `consistent` times
        min(`spread`, 1). A full evaluation has `frechet_real` and `images`, the number
        of evaluated images.
        """
        ((fake, _),) = evaluation.answers[evaluation.split]
        number = EVALUATION_SPLITS.index(evaluation.split)
        full = evaluation.options is not None
        if self.images is None:
            scores = consistency(fake)
            quality = scores["consistent"] * min(scores["spread"], 1.0)
            scores = {"quality": quality, **scores}
        else:
            _, real = self._real(number)
            features, classes = self._features(fake)
            distance = frechet_distance(features, real)
            scores = {"quality": -distance, "frechet": distance}
            scores["score"] = inception_score(classes)
            if full:
                _, other = self._real(number + _SPLITS)
                scores["frechet_real"] = frechet_distance(other, real)
        scores |= {name: float(x) for name, x in gammas(state.params).items()}
        return scores | ({"images": self.config.evaluation.images} if full else {})

    def _sample_real(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Classes of real images, sampled as in training, and their features."""
        batch = self._batches(self.config.evaluation.images, _REAL_SEED)[number]
        if self.images is None:
            return batch["label"], None
        return batch["label"], self._features(batch["image"])[0]

    def _features(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features float64 [B, 1280] and class probabilities float64 [B, 1000]."""
        size = self.config.evaluation.size
        extract = functools.partial(efficientnet.features_and_classes, size=size)
        params = frozen.parameters()
        parts = efficientnet.in_batches(extract, params, images, batch_size=_BATCH)
        features, classes = (x.astype(np.float64) for x in parts)
        return features, classes

    def picked(self, split: str, count: int) -> dict[str, Noise]:
        """Returns a grid of images of each class."""
        seed = EVALUATION_SPLITS.index(split)
        labels = np.ones(_PER_CLASS**2, np.int32)
        return {
            name: Noise(number * labels, seed, name)
            for number, name in enumerate(self.classes[:count])
        }

    def drawn(self, split: str) -> dict[str, Any]:
        """Returns nothing: `figures` draws images of each class."""
        return {}

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws images of each class, and the attention of a few images; see `Task`."""
        split = evaluation.split
        seed, names = EVALUATION_SPLITS.index(split), self.classes[:_MAX_CLASSES]
        labels = np.arange(len(names), dtype=np.int32)
        average = self.objective.average(state)
        fake = self.generator.images(average, labels.repeat(_PER_CLASS), seed)
        rows = fake.reshape(-1, _PER_CLASS, *fake.shape[1:])
        title = f"Generated images, step {int(state.step):,}"
        path = folder / f"images_{split}.png"
        paths = [image_grid(rows, names, title=title, path=path)]
        fake, records = self.generator.attention(average, labels, seed)
        suffixes = {f"{split}_{i}": x for i, x in enumerate(names[:_ATTENTIONS], 1)}
        margin = self._margin
        maps = map_attention(fake, records, suffixes, margin=margin, folder=folder)
        return paths + maps

    @property
    def _margin(self) -> float:
        """Margin of the queries: in the corners, or on the object in the middle."""
        return 1 / 8 if self.config.data.source == "corners" else 1 / 4

    def parse(self, line: str, options: SeedOptions) -> Noise:
        """Returns a grid of images of the class named on a line."""
        name, accepted = normal(line), list(map(normal, self.classes))
        if name not in accepted:
            raise UserError(f"{name!r} must be one of {', '.join(accepted)}")
        labels = np.full(_PER_CLASS**2, accepted.index(name), np.int32)
        return Noise(labels, line_seed(options.seed, name), name)

    def show(self, example: Noise, answer: tuple[np.ndarray, Any]) -> Prediction:
        """Returns the images of a class."""
        images, attended = answer
        grid = images.reshape(_PER_CLASS, _PER_CLASS, *images.shape[1:])
        maps: tuple[AttentionMap, ...] = ()
        if attended is not None:
            (image, *_), records = attended
            maps = tuple(_map(image, record) for record in records)
        return Prediction("", 0.0, maps, caption=example.name, details=(grid, attended))

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the grid of a prediction, and the attention of an image; see `Task`.

        The attention of each layer is beside `path`, in attention_<size>_<name>.
        """
        grid, attended = prediction.details
        title = f"{title}: {prediction.caption}"
        where = {"margin": self._margin, "folder": path.parent}
        map_attention(*attended, {path.stem: title}, **where)
        return image_grid(grid, [""] * _PER_CLASS, title=title, path=path)


def _map(image: np.ndarray, record: AttentionRecord) -> AttentionMap:
    """The attention [I, J, I', J'] of the positions of a feature map to pooled ones."""
    queries, keys = record.weights.shape[1:3], record.weights.shape[3:]
    details = record.details
    return AttentionMap(
        "{} x {} map".format(*queries),
        np.asarray(record.weights[0]).reshape(1, math.prod(queries), -1),
        grid_labels(*queries),
        grid_labels(*keys),
        layer=record.layer,
        titles=("position", "attended position"),
        places=Places(grid(*keys), image, queries=grid(*queries)),
        details=details and details.cut(math.prod(queries), math.prod(keys)),
    )


def read_images(
    config: ConfigDict, files: UserFiles | None = None
) -> LabelledImages | None:
    """Returns the images of the source; None for corners, which are generated."""
    data, size = config.data, config.model.size
    if data.source == "corners":
        return None
    if data.source == "openmoji":
        return openmoji(size, tuple(data.groups))
    return read_folder(Path(data.folder), size, files)
