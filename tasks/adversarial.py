"""Image generation: a generator and a discriminator, and the quality of the images.

The objective is `training.adversarial.Adversarial`. A moving average of the generator's
parameters is evaluated and drawn, with the statistics of batch norm and the estimates
of spectral norms of the generator itself.

What is measured, on frozen EfficientNet-lite0 trained on ImageNet
(`models.efficientnet`), of `config.evaluation.images` generated images and as many
real ones of the same classes, drawn as in training: `frechet`, the Frechet distance
between Gaussians of their 1280 features (Heusel et al. 2017, there of Inception's), and
`score`, the Inception score of Salimans et al. (2016) on its classes. These numbers
compare with each other and with no published one. `frechet_real` is the distance
between two draws of as many real images: that of a perfect generator. The real images
are those of training: a generator that repeats them scores well. Of corners: see
`metrics.corners.consistency`. `gamma_<network>_<size>` is |gamma| of an attention, as
its sign is that of its output layer, which could be flipped.

Axes: B images; I, J rows and columns; Y classes.
"""

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from data.images import SOURCES, Batches, LabelledImages, read
from data.splits import EVALUATION_SPLITS, check_split
from errors import UserError
from figures.strips import image_grid, map_attention
from generation.images import ImageGenerator
from metrics import corners
from metrics.frechet import frechet_distance, inception_score
from models import efficientnet
from models.sagan import gammas, moving
from options import Options, option
from tasks import frozen
from training import adversarial, checks
from training.optimizers import make_optimizer
from training.state import TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Scores, Task

_BATCH = 100  # images generated, or looked at, at a time
_SPLITS = len(EVALUATION_SPLITS)
_DRAWS = 2**40  # seed of the real images that generated ones are compared with
_PER_CLASS = 8  # images of a class that are drawn
_ATTENTIONS = 4  # images whose attention is drawn
_CLASSES = 20  # classes that are drawn, at most


class Assets(NamedTuple):
    """Names of the classes, a label each."""

    classes: tuple[str, ...] = ("corners",)


@dataclasses.dataclass(frozen=True)
class SeedOptions(Options):
    """Flags of predict.py."""

    seed: int = option(0, "Seed of the noise.")


class Adversarial(Task):
    """Trains, evaluates and draws a generator; see the module's docstring."""

    metric = ("quality", "max")
    Options = SeedOptions
    figure_name = "images"
    needs_figures = True

    @classmethod
    def check(cls, config: ConfigDict) -> None:
        """Checks what must fit together; see `Task`."""
        checks.choice("data.source", config.data.source, SOURCES)
        checks.choice("loss", config.loss, adversarial.LOSSES)
        minimums = {"data.batch_size": 1, "latent_size": 1, "evaluation.size": 1}
        # Corners are compared with those of others, and features have a deviation.
        checks.at_least(config, minimums | {"evaluation.images": corners.OTHERS + 1})
        decays = 0 <= config.average_decay < 1
        checks.rule(config, "average_decay", decays, "in [0, 1)")
        names = {"noise": "config.latent_size", "attention": "config.attention"}
        checks.check_model(cls(config).objective.init, names)

    @classmethod
    def prepare(cls, config: ConfigDict, workdir: Path, *, training: bool) -> Assets:
        """Reads the classes' names, from the data or the run directory; see `Task`."""
        path = Path(workdir) / "assets" / "classes.txt"
        if training:
            images = _read_images(config)
            names = images.names if images else Assets().classes
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(names) + "\n", "utf-8")
        try:
            return Assets(tuple(path.read_text("utf-8").splitlines()))
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None

    def __init__(
        self,
        config: ConfigDict,
        assets: Assets | None = None,
        *,
        axis_name: str | None = None,
    ):
        """Builds both networks; see `Task`."""
        self.config, self.classes = config, (assets or Assets()).classes
        families = {
            "generator": config.architecture,
            "discriminator": config.discriminator_architecture,
        }
        self.models = {
            name: checks.build_model(
                family,
                config.model,
                classes=len(self.classes),
                axis_name=axis_name,
                attention=tuple(config.attention[name]),
            )
            for name, family in families.items()
        }
        self.objective = adversarial.Adversarial(
            self.models,
            {name: make_optimizer(config, name=name) for name in families},
            adversarial.LOSSES[config.loss],
            latent_size=config.latent_size,
            size=config.model.size,
            average_decay=functools.partial(moving, decay=config.average_decay),
            measure=gammas,
            axis_name=axis_name,
        )
        self.generator = ImageGenerator(
            self.models["generator"], self.objective.sample, _BATCH
        )
        self._real = functools.cache(self._draw_real)

    @functools.cached_property
    def images(self) -> LabelledImages | None:
        """The real images, read once they are needed; None of corners."""
        return _read_images(self.config)

    def train_data(self) -> Batches:
        """Returns the training batches."""
        return self._batches(self.config.data.batch_size, self.config.seed)

    def _batches(self, batch_size: int, seed: int) -> Batches:
        return Batches(self.images, self.config.model.size, batch_size, seed)

    def validate(self, state: TrainState) -> Scores:
        """Scores generated images, without the distance of real from real."""
        return self._scores(state, "validation")

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Scores images that the average generator generates; see `Task`.

        The splits are two draws of noise and of real images. The scores are those of
        the module's docstring, by name; `quality`, the highest of which is the best:
        -`frechet`, or of corners `consistent` times `spread`, or 1 where that is more;
        and `images`, how many images they stand on.
        """
        scores = self._scores(state, split)
        if self.images is not None:
            number = EVALUATION_SPLITS.index(split)
            (_, other), (_, real) = map(self._real, (number + _SPLITS, number))
            scores["frechet_real"] = frechet_distance(other, real)
        return Evaluation(split, scores | {"images": self.config.evaluation.images})

    def _scores(self, state: TrainState, split: str) -> Scores:
        check_split(split)
        number = EVALUATION_SPLITS.index(split)
        labels, real = self._real(number)
        fake = self.generate(state, labels, number)
        if self.images is None:
            scores = corners.consistency(fake)
            quality = scores["consistent"] * min(scores["spread"], 1.0)
            scores = {"quality": quality, **scores}
        else:
            features, classes = self._features(fake)
            distance = frechet_distance(features, real)
            scores = {"quality": -distance, "frechet": distance}
            scores["score"] = inception_score(classes)
        return scores | {name: float(x) for name, x in gammas(state.params).items()}

    def _draw_real(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Classes of real images, drawn as in training, and their features."""
        batch = self._batches(self.config.evaluation.images, _DRAWS)[number]
        if self.images is None:
            return batch["label"], None
        return batch["label"], self._features(batch["image"])[0]

    def _features(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features float64 [B, 1280], and probabilities of classes [B, 1000]."""
        see = functools.partial(efficientnet.features, size=self.config.evaluation.size)
        parts = efficientnet.in_batches(see, frozen.parameters(), images, _BATCH)
        features, classes = (x.astype(np.float64) for x in parts)
        return features, classes

    def generate(self, state: TrainState, labels: np.ndarray, seed: int) -> np.ndarray:
        """Generates images uint8 [B, I, J, 3] of classes [B]."""
        return self.generator.images(self.objective.average(state), labels, seed)

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws images of each class, and the attention of some of them."""
        split = evaluation.split
        seed, names = EVALUATION_SPLITS.index(split), self.classes[:_CLASSES]
        labels = np.arange(len(names), dtype=np.int32)
        fake = self.generate(state, labels.repeat(_PER_CLASS), seed)
        rows = fake.reshape(-1, _PER_CLASS, *fake.shape[1:])
        title, path = f"Step {int(state.step)}", folder / f"images_{split}.png"
        paths = [image_grid(rows, names, title, path)]
        average = self.objective.average(state)
        fake, records = self.generator.attention(average, labels, seed)
        # Corners are seen from corners, drawings from what is drawn.
        margin = 1 / 8 if self.images is None else 1 / 4
        drawn = enumerate(names[:_ATTENTIONS], 1)
        ends = {f"{split}_{number}": name for number, name in drawn}
        return [*paths, *map_attention(fake, records, ends, margin, folder)]

    def predict(
        self, state: TrainState, lines: Lines, options: SeedOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Generates a grid of images of the class that each line names; see `Task`."""
        for line, name in lines.items():
            if name.strip() not in self.classes:
                raise UserError(
                    f"line {line}: there is no class {name.strip()!r}, only "
                    f"{', '.join(self.classes)}"
                )
        for line, name in lines.items():
            label = self.classes.index(name.strip())
            labels = np.full(_PER_CLASS**2, label, np.int32)
            fake = self.generate(state, labels, options.seed + line)
            grid = fake.reshape(_PER_CLASS, _PER_CLASS, *fake.shape[1:])
            yield Prediction("", 0.0, details=(name.strip(), grid))

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the grid of a prediction."""
        name, grid = prediction.details
        return image_grid(grid, [""] * _PER_CLASS, name, path)


def _read_images(config: ConfigDict) -> LabelledImages | None:
    data, size = config.data, config.model.size
    return read(data.source, size, tuple(data.groups), data.folder)
