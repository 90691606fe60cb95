"""Adding and multiplying: two marked numbers of a long sequence, squared error.

The problems and the two protocols, of a fixed and of a variable length, are those of
`data.adding`. An estimate is right where it is less than 0.04 away from the target
(Hochreiter and Schmidhuber 1997; Raffel and Ellis 2015): `accuracy` is their share in
per cent of the 1000 sequences of a split.

Works with any model of the protocol of `models.feedforward.FeedForwardAttention`:
`model.apply(variables, inputs [B, T, 2], mask, train=...) -> estimates [B]`, and the
method `read(inputs, mask) -> (estimates [B], weights [B, T])`.

Axes: B sequences; T steps.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from data import adding
from data.sizes import Batch, Batches
from errors import UserError
from training import plots
from training.state import TrainState
from training.supervised import Supervised
from training.task import Prediction, warn_of_size

_TOLERANCE = 0.04  # of a right estimate
_ROWS = 100  # that are scored at a time; it divides data.adding.SEQUENCES
_GROUPS = 5  # of lengths, in the final evaluation of the variable protocol
_SHOWN = 3  # sequences whose weights are drawn


class Adding(Supervised):
    """Trains, scores and shows an adder or multiplier; see the module's docstring."""

    metric = ("accuracy", "max")

    def __init__(self, config):
        """Checks what must fit together; see `Task`."""
        super().__init__(config)
        data, fewest = config.data, adding.SHORTEST
        least = fewest if data.protocol == "fixed" else data.shortest
        rules = {
            "operation": (data.operation in adding.OPERATIONS, adding.OPERATIONS),
            "protocol": (data.protocol in adding.PROTOCOLS, adding.PROTOCOLS),
            "shortest": (data.shortest >= fewest, f"at least {fewest}"),
            "length": (data.length >= least, f"at least {least}"),
        }
        for name, (holds, accepted) in rules.items():
            if not holds:
                accepted = accepted if type(accepted) is str else " or ".join(accepted)
                raise UserError(
                    f"config.data.{name} is {data[name]}: must be {accepted}"
                )
        for length in config.evaluation.lengths:
            if type(length) is not int or length < fewest:
                raise UserError(
                    f"config.evaluation.lengths has {length}: must be at least {fewest}"
                )
        self.model = config.architecture(**config.model)
        self._jit_estimate = jax.jit(self._estimate)
        self._jit_read = jax.jit(self._read)
        self.check_model()

    def blank(self) -> jax.Array:
        """Returns inputs of the model of the right shapes."""
        return jnp.zeros((1, 1, 2))

    def train_data(self) -> Batches:
        """Returns the training batches."""
        data = self.config.data
        return adding.batches(
            data.operation,
            data.protocol,
            length=data.length,
            shortest=data.shortest,
            buckets=data.buckets,
            rows=data.rows,
            seed=self.config.seed,
        )

    def loss(self, params, batch, rng):
        """Squared error of the answers."""
        errors = jnp.square(self._estimate(params, batch, train=True) - batch["target"])
        return errors.sum(), (jnp.asarray(errors.size, jnp.float32), {})

    def _estimate(self, params, batch, *, train=False):
        inputs, mask = batch["inputs"], batch.get("mask")
        return self.model.apply({"params": params}, inputs, mask, train=train)

    def _read(self, params, inputs, mask=None):
        return self.model.apply({"params": params}, inputs, mask, method="read")

    def evaluate(
        self, state: TrainState, split: str, *, out_dir: Path | None = None
    ) -> dict[str, float]:
        """Scores the 1000 sequences of a split; see `Task`.

        Args:
            state: whose parameters to use.
            split: "validation" or "test".
            out_dir: where the figures of a final evaluation go.

        Returns:
            `accuracy` in per cent and `mse`. In a final evaluation also `accuracy_N`
            for each N of `config.evaluation.lengths`, of 1000 sequences with T0 = N or,
            in the variable protocol, of N steps; and of the latter `accuracy_M_N` for
            the lengths from M to N among those of the split.
        """
        batch = self._held_out(split)
        hits, errors = self._errors(state.params, batch)
        scores = {"accuracy": 100 * hits.mean(), "mse": np.square(errors).mean()}
        if out_dir is not None:
            shares = self._shares(state.params, split, batch, hits)
            scores |= {f"accuracy_{name}": share for name, share in shares.items()}
            if plots.available():
                folder = out_dir / "figures"
                self._draw(state.params, split, folder)
                if shares:
                    plots.bars(
                        {n.replace("_", "-"): share for n, share in shares.items()},
                        f"Accuracy by length ({split} split)",
                        folder / f"accuracy_by_length_{split}.png",
                        axis_title="steps",
                        value_title="% right",
                    )
        return {name: float(score) for name, score in scores.items()}

    def _held_out(self, split: str) -> Batch:
        data = self.config.data
        lengths = {"length": data.length, "shortest": data.shortest}
        return adding.held_out(data.operation, data.protocol, split, **lengths)

    def _errors(self, params, batch) -> tuple[np.ndarray, np.ndarray]:
        """Whether each estimate is right, and how far it is off, two [B]."""
        count = len(batch["target"])
        parts = [
            self._jit_estimate(params, {n: x[i : i + _ROWS] for n, x in batch.items()})
            for i in range(0, count, _ROWS)
        ]
        errors = np.concatenate(parts) - batch["target"]
        return np.abs(errors) < _TOLERANCE, errors

    def _shares(self, params, split, batch, hits) -> dict[str, float]:
        """Accuracy by length: of the groups of lengths, and of the other lengths."""
        shares = {}
        if "mask" in batch:
            lengths = batch["mask"].sum(1)
            for group in np.split(np.arange(len(hits)), _GROUPS):
                name = f"{lengths[group[0]]}_{lengths[group[-1]]}"
                shares[name] = 100 * hits[group].mean()
        data = self.config.data
        for length in self.config.evaluation.lengths:
            other = adding.held_out_at(data.operation, data.protocol, split, length)
            shares[str(length)] = 100 * self._errors(params, other)[0].mean()
        return shares

    def figures(self, state: TrainState, out_dir: Path) -> list[Path]:
        """Draws the errors of the validation split, and the weights of some of it."""
        return self._draw(state.params, "validation", out_dir)

    def predict(
        self,
        state: TrainState,
        inputs: Sequence[str],
        *,
        figures: Path | str | None = None,
    ) -> list[list[Prediction]]:
        """Estimates the function of the two marked numbers that was learned.

        In the fixed protocol a shorter sequence is padded with zeros as in training. A
        length that was none of training is warned of: the estimate means little.

        Args:
            state: whose parameters to use.
            inputs: a sequence each, as "NUMBER,MARKER NUMBER,MARKER ..."; an empty one
                has the empty estimate.
            figures: a folder for a picture of each input's weights.

        Returns:
            For each input one estimate, its score the largest weight that it was read
            with.

        Raises:
            UserError: for an input that is no sequence with two marked numbers.
        """
        if figures is not None:
            plots.require()
        sequences = {
            line: _sequence(text, line)
            for line, text in enumerate(inputs, 1)
            if text.strip()
        }
        estimates = [[Prediction("", 0.0)] for _ in inputs]
        data = self.config.data
        low, high, least = data.shortest, data.length, 0
        if data.protocol == "fixed":
            least = adding.padded(data.length)
            low, high = data.length, least - 1
        for line, sequence in sequences.items():
            told = {"of": "steps", "learned": "the network learned from sequences of"}
            warn_of_size(line, len(sequence), low, high, **told)
            steps = max(least, len(sequence))
            width = 2 ** math.ceil(math.log2(steps))  # few lengths to compile for
            sequence = np.pad(sequence, [(0, width - len(sequence)), (0, 0)])
            mask = np.arange(width) < steps
            found = self._jit_read(state.params, sequence[None], mask[None])
            (y,), (weights,) = jax.device_get(found)
            sequence, weights, text = sequence[:steps], weights[:steps], f"{y:.4f}"
            estimates[line - 1] = [Prediction(text, float(weights.max()))]
            if figures is not None:
                path = Path(figures) / f"attention_{line:04d}.png"
                _draw_weights(sequence, weights, f"Line {line}: {text}", path)
        return estimates

    def _draw(self, params, split: str, folder: Path) -> list[Path]:
        batch = self._held_out(split)
        hits, errors = self._errors(params, batch)
        target, off = batch["target"], _TOLERANCE
        points = {f"{len(target)} sequences": (target, target + errors)}
        curves = {
            "exact": ([0, 1], [0, 1]),
            f"{off} off": ([0, 1, 1, 0, 0], [off, 1 + off, 1 - off, -off, off]),
        }
        paths = [
            plots.fit(
                points,
                curves,
                f"Estimates: {100 * hits.mean():.1f}% right ({split} split)",
                folder / f"estimates_{split}.png",
                axis_titles=("target", "estimate"),
            )
        ]
        some = range(0, len(target), len(target) // _SHOWN)[:_SHOWN]
        for number, i in enumerate(some, 1):
            inputs = batch["inputs"][i]
            inputs = inputs[batch["mask"][i]] if "mask" in batch else inputs
            (y,), (weights,) = jax.device_get(self._jit_read(params, inputs[None]))
            title = f"Attention: target {target[i]:.3f}, estimate {y:.3f}"
            path = folder / f"attention_{number}_{split}.png"
            paths.append(_draw_weights(inputs, weights, title, path))
        return paths


def _draw_weights(
    inputs: np.ndarray, weights: np.ndarray, title: str, path: Path
) -> Path:
    """Draws weights [T] of a sequence [T, 2] as multiples of the mean, 1 / T."""
    # Rounded: a mean is a flat line.
    steps, shares = np.arange(len(weights)), (weights * len(weights)).round(5)
    marked = inputs[:, 1] == 1
    return plots.fit(
        {"marked steps": (steps[marked], shares[marked])},
        {"mean": (steps[[0, -1]], [1, 1]), "weight": (steps, shares)},
        title,
        path,
        axis_titles=("step", "weight, as a multiple of the mean"),
    )


def _sequence(text: str, line: int) -> np.ndarray:
    """The numbers and markers [T, 2] of a line of input.

    Raises:
        UserError: if that is no sequence with two marked numbers.
    """
    try:
        found = np.array(
            [[float(x) for x in step.split(",")] for step in text.split()], np.float32
        )
    except ValueError:
        found = np.empty(0)
    if found.ndim != 2 or found.shape[1] != 2 or not np.isfinite(found).all():
        raise UserError(
            f"line {line} is {text.strip()[:40]!r}: must be steps NUMBER,MARKER with "
            "spaces between them"
        )
    if (found[:, 1] == 1).sum() != 2:
        raise UserError(
            f"line {line} marks {(found[:, 1] == 1).sum()} steps with 1: must be 2"
        )
    return found
