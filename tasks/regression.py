"""Regression: noisy points of a curve, squared error, the fit and its attention.

The points are those of Zhang et al., Dive into Deep Learning, on attention pooling:
y = 2 sin(x) + x + noise at places drawn uniformly from [0, length]. A model learns from
them and keeps them, as the keys and values that it reads at every query. It is scored
where it saw no point, on a grid, against the curve without noise; the grid of the test
split lies halfway between the places of the validation split.

Works with any model of the protocol of `models.kernel_regression.KernelRegression`:
`model.apply(variables, inputs, train=...) -> Attention(context [Q, 1], weights [Q, K])`
and the method `current_width() -> scalar`.

Axes: Q queries, K training points.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attention.core import Attention
from errors import UserError
from training import plots
from training.state import TrainState
from training.supervised import Supervised
from training.task import Prediction

_OFFSETS = {"validation": 0.0, "test": 0.5}  # of a split's grid, in its steps
_FINE = 501  # places of a drawn curve


def curve(x: np.ndarray) -> np.ndarray:
    """The curve without noise, 2 sin(x) + x."""
    return 2 * np.sin(x) + x


def training_points(data: ConfigDict, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns x [K], sorted, and y [K] of the points that `config.data` asks for."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, data.length, data.points))
    y = curve(x) + rng.normal(0, data.noise, data.points)
    return x.astype(np.float32), y.astype(np.float32)


class _FullBatch:
    """Every batch is the whole training set."""

    def __init__(self, batch: dict[str, np.ndarray]):
        self._batch = batch

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return self._batch


class Regression(Supervised):
    """Trains, scores and shows a regression; see the module's docstring."""

    metric = ("mse", "min")

    def __init__(self, config):
        """Checks what must fit together; see `Task`."""
        super().__init__(config)
        data = config.data
        rules = {
            "points": (data.points >= 2, "at least 2"),
            "queries": (data.queries >= 1, "at least 1"),
            "length": (0 < data.length < math.inf, "above 0 and finite"),
            "noise": (0 <= data.noise < math.inf, "at least 0 and finite"),
        }
        for name, (holds, accepted) in rules.items():
            if not holds:
                raise UserError(
                    f"config.data.{name} is {data[name]}: must be {accepted}"
                )
        self._x, self._y = training_points(data, config.seed)
        self.model = config.architecture(**config.model)
        self._jit_read = jax.jit(self._read)
        self.check_model()

    def blank(self) -> dict[str, jax.Array]:
        """Returns inputs of the model of the right shapes."""
        return self._inputs(self._x[:1])

    def train_data(self) -> _FullBatch:
        """Returns all training points, as every batch."""
        numbers = np.arange(len(self._x), dtype=np.int32)
        return _FullBatch({"x": self._x, "y": self._y, "own": numbers})

    def loss(self, params, batch, rng):
        """Squared error at the training points."""
        inputs = self._inputs(batch["x"]) | {"own": batch["own"]}
        found = self.model.apply({"params": params}, inputs, train=True)
        errors = jnp.square(found.context[:, 0] - batch["y"])
        return errors.sum(), (jnp.asarray(errors.size, jnp.float32), {})

    def evaluate(
        self, state: TrainState, split: str, *, out_dir: Path | None = None
    ) -> dict[str, float]:
        """Scores the estimate on a split's grid; see `Task`.

        Args:
            state: whose parameters to use.
            split: "validation" or "test".
            out_dir: where the figures of a final evaluation go.

        Returns:
            `mse`, the mean squared error against the curve without noise, and `width`.
        """
        if out_dir is not None and plots.available():
            self._draw(state.params, split, out_dir / "figures")
        return self._scores(state.params, split)

    def figures(self, state: TrainState, out_dir: Path) -> list[Path]:
        """Draws the fit, and the attention on the grid of the validation split."""
        return self._draw(state.params, "validation", out_dir)

    def predict(
        self,
        state: TrainState,
        inputs: Sequence[str],
        *,
        figures: Path | str | None = None,
    ) -> list[list[Prediction]]:
        """Estimates the curve at the places that are asked for.

        Args:
            state: whose parameters to use.
            inputs: a number each; an empty one has the empty estimate.
            figures: a folder for a picture of each input's attention, where it has any.

        Returns:
            For each input one estimate, its score the largest weight that it was read
            with: 1 is the value of one training point, 0 that of none.

        Raises:
            UserError: for an input that is not a number.
        """
        if figures is not None:
            plots.require()
        x = {
            line: _number(text, line)
            for line, text in enumerate(inputs, 1)
            if text.strip()
        }
        estimates = [[Prediction("", 0.0)] for _ in inputs]
        if not x:
            return estimates
        found = self._jit_read(state.params, np.array(list(x.values()), np.float32))
        for (line, place), y, weights in zip(
            x.items(), *jax.device_get(found), strict=True
        ):
            text, score = f"{y[0]:.6g}", float(weights.max())
            estimates[line - 1] = [Prediction(text, score)]
            if score == 0:
                print(
                    f"warning: line {line}: no training point is near enough to "
                    f"{place:g} to count: the estimate is 0",
                    file=sys.stderr,
                )
            elif figures is not None:
                plots.fit(
                    {"weights of the training points": (self._x, weights)},
                    {f"x = {place:g}": ([place, place], [0, score])},
                    f"Attention of f({place:g}) = {text}",
                    Path(figures) / f"attention_{line:04d}.png",
                    axis_titles=("x", "weight"),
                )
        return estimates

    def _inputs(self, x: jax.Array | np.ndarray) -> dict[str, Any]:
        """The queries x [Q] with the training points as keys and values."""
        key, value = self._x[:, None], self._y[:, None]
        return {"query": x[:, None], "key": key, "value": value}

    def _read(self, params, x) -> Attention:
        return self.model.apply({"params": params}, self._inputs(x), train=False)

    def _scores(self, params, split: str) -> dict[str, float]:
        x = self._grid(split)
        found = np.asarray(self._jit_read(params, x).context[:, 0], np.float64)
        width = self.model.apply({"params": params}, method="current_width")
        return {"mse": float(np.mean((found - curve(x)) ** 2)), "width": float(width)}

    def _grid(self, split: str) -> np.ndarray:
        if split not in _OFFSETS:
            raise UserError(f"split is {split}: must be {' or '.join(_OFFSETS)}")
        data = self.config.data
        steps = np.arange(data.queries) + _OFFSETS[split]
        return (steps * data.length / data.queries).astype(np.float32)

    def _draw(self, params, split: str, folder: Path) -> list[Path]:
        """The fit, and the attention map of a split."""
        scores, x = self._scores(params, split), self._grid(split)
        name = f"{self.config.model.kernel} kernel, width {scores['width']:.2g}"
        fine = np.linspace(0, self.config.data.length, _FINE, dtype=np.float32)
        estimate = self._jit_read(params, fine).context[:, 0]
        mean = np.full(_FINE, self._y.mean())
        return [
            plots.fit(
                {"training points": (self._x, self._y)},
                {
                    "truth": (fine, curve(fine)),
                    "estimate": (fine, estimate),
                    "average pooling": (fine, mean),
                },
                f"Fit: {name}; mse {scores['mse']:.3f} ({split} split)",
                folder / f"fit_{split}.png",
                axis_titles=("x", "y"),
            ),
            plots.attention_heatmaps(
                np.asarray(self._jit_read(params, x).weights)[None],
                [f"{place:.2f}" for place in x],
                [f"{place:.2f}" for place in self._x],
                f"Attention: {name}",
                folder / f"attention_{split}.png",
                panels=[f"{split} split"],
                row_title="query: x",
                column_title="key: x of a training point",
            ),
        ]


def _number(text: str, line: int) -> float:
    """What a line of input says.

    Raises:
        UserError: if that is no number.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise UserError(
            f"line {line} is {text.strip()[:40]!r}: must be a finite number"
        )
    return number
