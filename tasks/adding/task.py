"""Adding and multiplication problems: sum or product of two marked numbers.

Hochreiter and Schmidhuber (1997), Raffel and Ellis (2015). `tasks.adding.data`
generates the sequences, of fixed or variable length. The loss is the squared error;
`accuracy` is the percentage of the 1000 estimates of a split that are within 0.04 of
the target.

Works with any model that has the methods of `models.feedforward.FeedForwardAttention`:
`model.apply(variables, inputs [B, T, 2], mask, train=...) -> estimates [B]`, and
`read(inputs, mask) -> (estimates [B], weights [B, T])`.

Axes: B sequences; T steps.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base import spread
from base.errors import FieldError
from base.ranges import BATCH, SHAPES, TEXT, Range
from figures import charts
from figures.attention import AttentionMap
from tasks.adding import data as adding
from tasks.adding.metrics import TOLERANCE, accuracy, accuracy_by_length
from tasks.common import batches as endless
from tasks.common.bucketing import Batches
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Scores, Task

_BATCH = 100  # sequences evaluated at a time; it divides tasks.adding.data.SEQUENCES
_LENGTH = Range(adding.MIN_LENGTH, 10**6, whole=True)
_GROUPS = 5  # groups of lengths in an evaluation of the variable protocol
_FIGURES = 3  # sequences whose weights are drawn


class Adding(Task):
    """The adding or the multiplication problem; see the module docstring."""

    metric = ("accuracy", "max")
    ranges = {
        **checks.SUPERVISED,
        "data.operation": TEXT,
        "data.protocol": TEXT,
        "data.length": _LENGTH,
        "data.min_length": _LENGTH,
        "data.buckets": SHAPES,
        "data.batch_size": BATCH,
        "evaluation.lengths": _LENGTH.each(),
    }
    model_methods = ("read",)
    arrays = {  # sequences, of two float32; states
        ("data.batch_size", "data.length"): 8,
        ("data.length",): 8 * adding.SEQUENCES,
        ("evaluation.lengths",): 8 * adding.SEQUENCES,
        ("data.batch_size", "data.length", "model.hidden"): 4,
        ("evaluation.lengths", "model.hidden"): 4 * _BATCH,
    }

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks the operation, the protocol and its lengths; see `Task`."""
        data = config.data
        checks.choice("data.operation", data.operation, adding.OPERATIONS)
        checks.choice("data.protocol", data.protocol, adding.PROTOCOLS)
        if data.protocol != "fixed":
            checks.ordered(config, "data.min_length", "data.length")
        if not config.evaluation.lengths:
            accepted = "a list of one or more lengths"
            raise FieldError("config.evaluation.lengths", (), accepted)

    def __init__(
        self, config: ConfigDict, assets: None = None, *, axis_name: str | None = None
    ):
        """Builds the model and the objective; see `Task`."""
        self.config = config
        self.model = checks.build_model(config.architecture, config.model)
        self.estimate = jax.jit(self._estimate)
        self.read = jax.jit(self._read)
        blank = jnp.zeros((1, 1, 2))
        self.objective = Supervised(
            lambda rng: self.model.init(rng, blank, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )

    def train_data(self) -> Batches:
        """Returns the training batches; see `tasks.adding.data.batches`."""
        data = self.config.data
        return adding.batches(
            data.operation,
            data.protocol,
            length=data.length,
            min_length=data.min_length,
            buckets=data.buckets,
            batch_size=data.batch_size,
            seed=self.config.seed,
        )

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Returns the squared error of the estimates."""
        errors = jnp.square(self._estimate(params, batch, train=True) - batch["target"])
        return errors.sum(), (jnp.asarray(errors.size, jnp.float32), {})

    def _estimate(self, params, batch, *, train=False):
        inputs, mask = batch["inputs"], batch.get("mask")
        return self.model.apply({"params": params}, inputs, mask, train=train)

    def _read(self, params, inputs, mask=None):
        return self.model.apply({"params": params}, inputs, mask, method="read")

    def held_out(self, split: str) -> endless.Batch:
        """Returns the 1000 sequences of a split; see `tasks.adding.data.held_out`."""
        data = self.config.data
        return adding.held_out(
            data.operation,
            data.protocol,
            split,
            length=data.length,
            min_length=data.min_length,
        )

    def errors(self, params: Any, batch: endless.Batch) -> np.ndarray:
        """Returns estimates minus targets: float32 [B]."""

        def estimate(start: int) -> np.ndarray:
            part = {n: x[start : start + _BATCH] for n, x in batch.items()}
            return np.asarray(self.estimate(params, part))

        parts = spread.each(estimate, range(0, len(batch["target"]), _BATCH))
        return np.concatenate(parts) - batch["target"]

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Evaluates a split and sequences of other lengths; see `Task`.

        Returns:
            Scores: `accuracy` in per cent and `mse` of the split; `accuracy_N` for each
            N in `config.evaluation.lengths`, on 1000 sequences with T0 = N (fixed
            protocol) or N steps (variable protocol); in the variable protocol also
            `accuracy_M_N` for each group of the split's lengths, M to N steps. Outputs:
            the errors of the split, and accuracy by length, such as {"50-61": 97.0}.
        """
        data, batch = self.config.data, self.held_out(split)
        errors, by_length = self.errors(state.params, batch), {}
        if "mask" in batch:
            by_length = accuracy_by_length(errors, batch["mask"].sum(1), _GROUPS)
        for length in self.config.evaluation.lengths:
            other = adding.held_out_at(
                data.operation, data.protocol, split, length=length
            )
            by_length[str(length)] = accuracy(self.errors(state.params, other))
        scores = {f"accuracy_{n.replace('-', '_')}": x for n, x in by_length.items()}
        return Evaluation(split, _scores(errors) | scores, (errors, by_length))

    def validate(self, state: TrainState) -> Scores:
        """Returns `accuracy` and `mse` of the validation split; see `Task`."""
        return _scores(self.errors(state.params, self.held_out("validation")))

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws estimates, the weights of a few sequences, and accuracy by length."""
        split = evaluation.split
        batch = self.held_out(split)
        target, by_length = batch["target"], {}
        if not evaluation.scores:
            errors = self.errors(state.params, batch)
        else:
            errors, by_length = evaluation.outputs
        title = f"Estimates: {accuracy(errors):.1f}% correct ({split} split)"
        path = folder / f"estimates_{split}.png"
        estimates = target + errors
        paths = [charts.estimates(target, estimates, TOLERANCE, title=title, path=path)]
        if by_length:
            title = f"Accuracy by length ({split} split)"
            path = folder / f"accuracy_by_length_{split}.png"
            names = {"axis_title": "steps", "value_title": "% correct"}
            paths.append(charts.bars(by_length, title, path, **names, maximum=100))
        for number in range(_FIGURES):
            i = number * (len(target) // _FIGURES)
            inputs = batch["inputs"][i]
            length = np.flatnonzero(inputs[:, 1] == -1)[-1] + 1  # without padding
            inputs = inputs[:length] if "mask" in batch else inputs
            outputs = self.read(state.params, inputs[None])
            (estimate,), (weights,) = jax.device_get(outputs)
            title = f"Attention: target {target[i]:.3f}, estimate {estimate:.3f}"
            path = folder / f"attention_{number + 1}_{split}.png"
            marked = inputs[:length, 1] == 1
            paths.append(
                charts.sequence_weights(weights, marked, title=title, path=path)
            )
        return paths

    def predict(
        self, state: TrainState, lines: Lines, options: NoOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Yields the estimate for the sequence on each line; see `Task`.

        The score is the maximum weight. In the fixed protocol a shorter sequence is
        padded with zeros, as in training. Warns about lengths outside the training
        range.
        """
        data = self.config.data
        lengths = adding.training_lengths(data.protocol, data.length, data.min_length)
        unit = "steps: the model was trained on sequences of"
        sequences = {
            i: adding.parse(data.operation, x, f"line {i}") for i, x in lines.items()
        }
        for line, sequence in sequences.items():
            checks.warn_out_of_range(line, len(sequence), *lengths, unit)
            batch = adding.padded_batch(data.protocol, sequence, data.length)
            outputs = self.read(state.params, batch["inputs"], batch["mask"])
            (estimate,), (weights,) = jax.device_get(outputs)
            steps = batch["inputs"][0, : len(sequence)]
            keys = [f"{x:g}" for x in steps[:, 0]]
            values = weights[None, None, : len(sequence)]
            maps = (AttentionMap("attention", values, ["estimate"], keys),)
            yield Prediction(
                f"{estimate:.4f}",
                float(values.max()),
                maps if attention else (),
                details=(weights, steps[:, 1] == 1),
            )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the weight of each step; see `Task`."""
        weights, marked = prediction.details
        title = f"{title}: estimate {prediction.text}"
        return charts.sequence_weights(weights, marked, title=title, path=path)


def _scores(errors: np.ndarray) -> Scores:
    return {"accuracy": accuracy(errors), "mse": float(np.square(errors).mean())}
