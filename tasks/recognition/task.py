"""Recognition of an object on a larger image: digits, translated and with clutter.

`tasks.recognition.data` makes the images. The loss is the cross-entropy of the class;
of a model that draws locations, also REINFORCE's, with the reward 1 for a correct
answer and 0 otherwise, and the squared error of its learned baseline: the hybrid loss
of Mnih et al. (2014), section 3.2. `error` is the percentage of wrong answers, with one
pass of the mean locations.

Works with models whose `model.apply(variables, image, train=...)` returns logits
[B, W], with the field `classes`; those with `draws` sow a `DrawRecord` with baselines,
and a `GlimpseRecord`.

Axes: B images; I rows and columns; T glimpses; W classes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from attention.glimpse import patch_box
from base.errors import UserError
from base.fields import Fields
from base.ranges import BATCH, COUNT, EXAMPLES, Choice, Range
from base.records import DrawRecord, GlimpseRecord, records_of
from figures.strips import Strip, caption_strips
from tasks.captioning.captions import read_image
from tasks.recognition import data as recognition
from tasks.recognition.data import RecognitionBatches
from training import checks, reinforce
from training.configuration import EvaluationConfig, ModelConfig
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

_DIM = 0.25  # brightness of a pixel outside of all patches


class RecognitionData(Fields):
    """`config.data`: images on canvases."""

    source: Annotated[str, Choice(recognition.SOURCES)] = "mnist"
    side: Annotated[int, Range(recognition.SIDE, 1000, whole=True)] = recognition.SIDE
    clutter: Annotated[int, COUNT] = 0  # patches of other images on each canvas
    batch_size: Annotated[int, BATCH] = 128


class RecognitionEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    images: Annotated[int, EXAMPLES] = 10_000  # maximum


class RecognitionConfig(ModelConfig):
    """The config of a recogniser."""

    data: RecognitionData = RecognitionData()
    loss: reinforce.Weights = reinforce.Weights(reward=1.0)
    evaluation: RecognitionEvaluation = RecognitionEvaluation(checkpoint="best")


class Recognition(Task):
    """Recognition of one object on an image; see the module docstring."""

    metric = ("error", "min")
    Config = RecognitionConfig
    table = "answers", ("answer", "label")
    figure_name = "glimpses"

    @classmethod
    def prepare(
        cls, config: ConfigDict, workdir: Path, *, training: bool
    ) -> dict[str, recognition.Objects]:
        """Returns the images by split, which no run changes; see `Task`."""
        return recognition.read(config.data.source)

    def __init__(
        self,
        config: ConfigDict,
        assets: dict[str, recognition.Objects],
        *,
        axis_name: str | None = None,
    ):
        """Builds the model and the objective; see `Task`."""
        self.config, self.objects = config, assets
        self.names = recognition.names(config.data.source)
        self.model = checks.build_model(
            config.architecture, config.model, classes=len(self.names)
        )
        self.objective = Supervised(
            self._init, self.loss, make_optimizer(config), axis_name=axis_name
        )

    def _init(self, rng: jax.Array) -> Any:
        side = self.config.data.side
        rngs = {"params": rng, "glimpse": rng}
        blank = jnp.zeros((1, side, side, 1))
        return self.model.init(rngs, blank, train=True)["params"]

    def train_data(self) -> RecognitionBatches:
        """Returns the training batches."""
        data = self.config.data
        return RecognitionBatches(
            self.objects["train"],
            data.side,
            data.clutter,
            batch_size=data.batch_size,
            seed=self.config.seed,
        )

    def loss(
        self, params: Any, batch: Batch, rng: jax.Array, state: TrainState
    ) -> LossResult:
        """Returns the cross-entropy, with REINFORCE's loss for drawn locations."""
        logits, sown = self._apply(params, batch["image"], rng, train=True)
        nats = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        correct = (logits.argmax(-1) == batch["label"]).astype(jnp.float32)
        loss, count = nats.sum(), jnp.asarray(len(nats), jnp.float32)
        metrics = {"training_error": (100 * (1 - correct).sum(), count)}
        for draw in records_of(sown, DrawRecord):
            reward, mask = correct[:, None], jnp.ones_like(draw.baseline)
            weights = self.config.loss
            loss += reinforce.reinforce_loss(
                [draw], reward, baseline=draw.baseline, mask=mask, weights=weights
            )
            error = reinforce.baseline_loss(draw.baseline, reward)
            metrics["baseline_error"] = error, jnp.sum(mask)
            loss += error
        return loss, (count, metrics)

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
        data, count = self.config.data, self.config.evaluation.images
        rows = recognition.held_out(
            self.objects[split], split, count, data.side, data.clutter
        )
        return {split: Stacked(rows)}

    def outputs(
        self, state: TrainState, batch: Batch, attention: bool
    ) -> tuple[jax.Array, list[GlimpseRecord]]:
        """Returns logits [B, W] and, if requested, the glimpses."""
        rng = jax.random.key(0)  # of uniform locations
        logits, sown = self._apply(state.params, batch["image"], rng, train=False)
        return logits, records_of(sown, GlimpseRecord) if attention else []

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns `error`, the percentage of wrong answers."""
        logits, _ = evaluation.answers[evaluation.split].arrays
        label = evaluation.examples[evaluation.split].arrays["label"]
        return {"error": 100 * float((logits.argmax(-1) != label).mean())}

    def row(self, number: int, example: Any, answer: Any) -> Sequence[str]:
        """Returns the answer and the label."""
        return self.names[answer[0].argmax()], self.names[example["label"]]

    def parse(self, line: str, options: NoOptions) -> Any:
        """Returns the image of a file, scaled and cropped to the canvas, in grey."""
        path, side = Path(line), self.config.data.side
        if not path.is_file():
            raise UserError(f"{line} is not a file: must be the path of an image")
        image = read_image(path, side).mean(-1, keepdims=True)
        return {"image": image.astype(np.uint8), "label": np.int32(0)}

    def show(self, example: Any, answer: Any) -> Prediction:
        """Returns the class and its log-probability, in nats."""
        logits, records = answer
        best = int(logits.argmax())
        return Prediction(
            self.names[best],
            float(jax.nn.log_softmax(logits)[best]),
            caption=self.names[best],
            details=(example["image"], *records),
        )

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
        words = [f"glimpse {t}" for t in range(1, len(maps) + 1)]
        strip = Strip(words, np.stack(maps), boxes)
        title = f"{title}: {prediction.caption}"
        return caption_strips(np.repeat(image, 3, -1), [strip], title, path)
