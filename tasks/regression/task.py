"""Kernel regression of a curve from noisy training points, as attention.

The training points of `tasks.regression.data` are both the training targets and the
keys and values of every query. Metrics are `mse` against the curve without noise, on a
grid of queries, and the `width` of the kernel.

Works with any model with the methods of `models.kernel_regression.KernelRegression`:
`model.apply(variables, inputs, train=...) -> Attention(context [Q, 1], weights [Q, K])`
and `current_width() -> scalar`.

Axes: Q queries; K training points.
"""

import functools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attention.core import Attention
from base.ranges import POSITIVE, SIZE, WEIGHT, Range
from figures import charts, heatmaps
from figures.attention import AttentionMap
from tasks.regression import data as regression
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Task

_FINE = 501  # points of a drawn curve


class Regression(Task):
    """Kernel regression; see the module docstring."""

    metric = ("mse", "min")

    ranges = {
        **checks.SUPERVISED,
        "data.points": Range(2, 10**6, whole=True),
        "data.queries": SIZE,
        "data.length": POSITIVE,
        "data.noise": WEIGHT,
    }
    model_methods = ("current_width",)
    arrays = {  # the weights
        ("data.points", "data.points"): 4,
        ("data.queries", "data.points"): 4,
    }

    def __init__(
        self, config: ConfigDict, assets: None = None, *, axis_name: str | None = None
    ):
        """Samples the training points and builds the model; see `Task`."""
        data = config.data
        self.x, self.y = regression.training_points(
            points=data.points, length=data.length, noise=data.noise, seed=config.seed
        )
        self.config = config
        self.model = checks.build_model(config.architecture, config.model)
        self.read = jax.jit(self._read)
        self.grid = functools.partial(
            regression.grid, queries=data.queries, length=data.length
        )
        blank = self.inputs(self.x[:1])
        self.objective = Supervised(
            lambda rng: self.model.init(rng, blank, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )

    def inputs(self, x: jax.Array | np.ndarray) -> dict[str, Any]:
        """Returns queries at x [Q], with the training points as keys and values."""
        key, value = self.x[:, None], self.y[:, None]
        return {"query": x[:, None], "key": key, "value": value}

    def train_data(self) -> regression.FullBatch:
        """Returns training batches, each of all training points."""
        numbers = np.arange(len(self.x), dtype=np.int32)
        return regression.FullBatch({"x": self.x, "y": self.y, "own_key": numbers})

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Returns the squared error at the training points."""
        inputs = self.inputs(batch["x"]) | {"own_key": batch["own_key"]}
        estimate = self.model.apply({"params": params}, inputs, train=True).context
        errors = jnp.square(estimate[:, 0] - batch["y"])
        return errors.sum(), (jnp.asarray(errors.size, jnp.float32), {})

    def _read(self, params: Any, x: jax.Array) -> Attention:
        return self.model.apply({"params": params}, self.inputs(x), train=False)

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Returns `mse` against the curve without noise, and `width`; see `Task`.

        The output is the `Attention` at the queries of the split.
        """
        x = self.grid(split)
        outputs = jax.device_get(self.read(state.params, x))
        errors = np.asarray(outputs.context[:, 0], np.float64) - regression.curve(x)
        width = self.model.apply({"params": state.params}, method="current_width")
        scores = {"mse": float(np.mean(errors**2)), "width": float(width)}
        return Evaluation(split, scores, outputs)

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the fit, and the attention at the split's queries; see `Task`."""
        if not evaluation.scores:
            evaluation = self.evaluate(state, evaluation.split, NoOptions())
        split, scores, outputs = evaluation
        name = f"{self.model.kernel} kernel, width {scores['width']:.2g}"
        fine = np.linspace(0, self.config.data.length, _FINE, dtype=np.float32)
        return [
            charts.fit(
                {"training points": (self.x, self.y)},
                {
                    "truth": (fine, regression.curve(fine)),
                    "estimate": (fine, self.read(state.params, fine).context[:, 0]),
                    "average pooling": (fine, np.full(_FINE, self.y.mean())),
                },
                title=f"Fit: {name}; mse {scores['mse']:.3f} ({split} split)",
                path=folder / f"fit_{split}.png",
                axis_titles=("x", "y"),
            ),
            heatmaps.attention_heatmaps(
                outputs.weights[None],
                [f"{x:.2f}" for x in self.grid(split)],
                [f"{x:.2f}" for x in self.x],
                title=f"Attention: {name} ({split} split)",
                path=folder / f"attention_{split}.png",
                panels=[""],
                row_title="query: x",
                column_title="key: x of a training point",
            ),
        ]

    def predict(
        self, state: TrainState, lines: Lines, options: NoOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Yields an estimate of the curve at the x on each line; see `Task`.

        The score is the maximum weight: 1 if the estimate is the value of a single
        training point, 0 if all weights are 0, with a warning.
        """
        queries = [regression.parse(text, f"line {i}") for i, text in lines.items()]
        estimates = self.read(state.params, np.array(queries, np.float32))
        results = zip(lines, queries, *jax.device_get(estimates), strict=True)
        keys = [f"{x:g}" for x in self.x]
        for line, x, y, weights in results:
            if not weights.any():
                print(
                    f"warning: line {line}: no training point is near enough to "
                    f"{x:g} to count: the estimate is 0",
                    file=sys.stderr,
                )
            maps = (AttentionMap("attention", weights[None, None], [f"{x:g}"], keys),)
            score = float(weights.max())
            yield Prediction(f"{y[0]:.6g}", score, maps if attention else (), details=x)

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the weights of the training points at a query; see `Task`."""
        (weights,), x = prediction.attention[0].weights[0], prediction.details
        return charts.fit(
            {"weights of the training points": (self.x, weights)},
            {f"x = {x:g}": ([x, x], [0, prediction.score])},
            title=f"{title}: f({x:g}) = {prediction.text}",
            path=path,
            axis_titles=("x", "weight"),
        )
