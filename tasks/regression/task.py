"""Kernel regression of a curve from noisy training points, as attention.

The training points of `tasks.regression.data` are both the training targets and the
keys and values of every query. Metrics are `mse` against the curve without noise, on a
grid of queries, and the `width` of the kernel.

Works with any model with the methods of `models.kernel_regression.KernelRegression`:
`model.apply(variables, inputs, train=...) -> Attention(context [Q, 1], weights [Q, K])`
and `current_width() -> scalar`.

Axes: Q queries; K training points.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attention.core import Attention
from base.fields import Fields
from base.ranges import POSITIVE, SIZE, WEIGHT, Range
from figures import charts, heatmaps
from figures.attention import AttentionMap
from tasks.common.batches import EndlessBatches, take
from tasks.common.objectives import supervised
from tasks.regression import data as regression
from training import checks
from training.configuration import ModelConfig
from training.evaluate import evaluate
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

_FINE = 501  # points of a drawn curve


class RegressionData(Fields):
    """`config.data`: noisy points of a curve; defaults are the source's."""

    # Number of training points.
    points: Annotated[int, Range(2, 10**6, whole=True)] = 40
    length: Annotated[float, POSITIVE] = 5.0  # length of the interval of x, from 0
    # Standard deviation of the noise, which only training points have.
    noise: Annotated[float, WEIGHT] = 1.0
    # Number of points at which the curve is estimated, per split.
    queries: Annotated[int, SIZE] = 50


class RegressionConfig(ModelConfig):
    """The config of kernel regression."""

    data: RegressionData = RegressionData()


class Regression(Task):
    """Kernel regression; see the module docstring."""

    metric = ("mse", "min")
    one_by_one = False

    Config = RegressionConfig

    def __init__(self, config: ConfigDict, assets: None = None):
        data = config.data
        self.x, self.y = regression.training_points(
            points=data.points, length=data.length, noise=data.noise, seed=config.seed
        )
        self.config = config
        self.model = checks.build_model(config)
        blank = self.inputs(self.x[:1])
        self.objective = supervised(self, blank)

    def inputs(self, x: jax.Array | np.ndarray) -> dict[str, Any]:
        """Returns queries at x [Q], with the training points as keys and values."""
        key, value = self.x[:, None], self.y[:, None]
        return {"query": x[:, None], "key": key, "value": value}

    def train_data(self) -> EndlessBatches:
        """Returns training batches, each of all training points."""
        numbers = np.arange(len(self.x), dtype=np.int32)
        whole = {"x": self.x, "y": self.y, "own_key": numbers}
        return EndlessBatches(
            lambda rng, index, rows: take(whole, rows), len(numbers), seed=0
        )

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Returns the squared error at the training points."""
        inputs = self.inputs(batch["x"]) | {"own_key": batch["own_key"]}
        estimate = self.model.apply({"params": params}, inputs, train=True).context
        errors = jnp.square(estimate[:, 0] - batch["y"])
        return errors.sum(), (jnp.asarray(errors.size, jnp.float32), {})

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns the grid of queries of a split; see `tasks.regression.data.grid`."""
        data = self.config.data
        grid = regression.grid(split, queries=data.queries, length=data.length)
        return {split: Stacked(grid)}

    def outputs(
        self, state: TrainState, batch: jax.Array, attention: bool
    ) -> Attention:
        """Returns estimates [Q, 1] and the weights [Q, K] at x [Q]."""
        inputs = self.inputs(batch)
        return self.model.apply({"params": state.params}, inputs, train=False)

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns `mse` against the curve without noise, and `width`."""
        split = evaluation.split
        x, outputs = evaluation.examples[split], evaluation.answers[split].arrays
        estimate = np.asarray(outputs.context[:, 0], np.float64)
        errors = estimate - regression.curve(x.arrays)
        width = self.model.apply({"params": state.params}, method="current_width")
        return {"mse": float(np.mean(errors**2)), "width": float(width)}

    def drawn(self, split: str) -> dict[str, Any]:
        """Returns no example: `figures` draws all of a split in one figure."""
        return {}

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the fit, and the attention at the split's queries."""
        split = evaluation.split
        if not evaluation.scores:
            evaluation = evaluate(self, state, split)
        scores, x = evaluation.scores, evaluation.examples[split].arrays
        name = f"{self.model.kernel} kernel, width {scores['width']:.2g}"
        fine = np.linspace(0, self.config.data.length, _FINE, dtype=np.float32)
        estimate = self.answers(state, Stacked(fine)).arrays.context[:, 0]
        return [
            charts.fit(
                {"training points": (self.x, self.y)},
                {
                    "truth": (fine, regression.curve(fine)),
                    "estimate": (fine, estimate),
                    "average pooling": (fine, np.full(_FINE, self.y.mean())),
                },
                title=f"Fit: {name}; mse {scores['mse']:.3f} ({split} split)",
                path=folder / f"fit_{split}.png",
                axis_titles=("x", "y"),
            ),
            heatmaps.attention_heatmaps(
                evaluation.answers[split].arrays.weights[None],
                [f"{value:.2f}" for value in x],
                [f"{value:.2f}" for value in self.x],
                title=f"Attention: {name} ({split} split)",
                path=folder / f"attention_{split}.png",
                panels=[""],
                row_title="query: x",
                column_title="key: x of a training point",
            ),
        ]

    def parse(self, line: str, options: NoOptions) -> np.ndarray:
        """Returns the x on a line."""
        return np.array(regression.parse(line), np.float32)

    def unusual(self, example: np.ndarray, answer: Attention) -> Sequence[str]:
        """Warns if all weights are 0."""
        if answer.weights.any():
            return ()
        x = f"the estimate at {example:g} is 0"
        return (f"is too far from every training point: {x}",)

    def show(self, example: np.ndarray, answer: Attention) -> Prediction:
        """Returns the estimate of the curve at an x.

        The score is the maximum weight: 1 if the estimate is the value of a single
        training point.
        """
        weights, x, text = answer.weights, float(example), f"{answer.context[0]:.6g}"
        keys = [f"{value:g}" for value in self.x]
        each = AttentionMap("attention", weights[None, None], [f"{x:g}"], keys)
        maps = (each._replace(titles=("x", "training point")),)
        return Prediction(
            text,
            float(weights.max()),
            maps,
            caption=f"f({x:g}) = {text}",
            details=x,
            source=f"x = {x:g}",
        )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the weights of the training points at a query; see `Task`."""
        (weights,), x = prediction.attention[0].weights[0], prediction.details
        return charts.fit(
            {"weights of the training points": (self.x, weights)},
            {f"x = {x:g}": ([x, x], [0, prediction.score])},
            title=f"{title}: {prediction.caption}",
            path=path,
            axis_titles=("x", "weight"),
        )
