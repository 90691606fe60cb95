"""The tasks of the Neural Turing Machine: bits in, bits out, paid for in bits.

Graves, Wayne and Danihelka (2014), section 4: copy, repeat copy, associative recall,
dynamic 6-grams and priority sort, as `data.algorithmic` makes them. The loss is the
cross-entropy of the answers alone, and what is reported is the paper's: the bits that
they cost a sequence, at sizes beyond those of training, too.

Works with any model of `model.apply(variables, inputs [B, T, I], train=...) -> logits
[B, T, O]` that takes `outputs`. The attention records that it sows, of weights
[B, H, T, N], are drawn.

Axes: B batch; T steps; I inputs; O outputs; H heads; N memory slots.
"""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from data import algorithmic, endless
from data.bucketing import Batches
from errors import UserError
from figures import sequences
from figures.attention import AttentionMap, attention_map
from metrics.bits import bits_per_sequence, wrong_bits
from models.records import AttentionRecord, collect
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Task

_BATCH = 100  # sequences evaluated at a time


class Algorithmic(Task):
    """An algorithmic task; see the module's docstring."""

    metric = ("bits", "min")

    @classmethod
    def check(cls, config: ConfigDict) -> None:
        """Checks the data's fields, the sizes to evaluate and the model; see `Task`."""
        _batches(config)
        checks.at_least(config, {"evaluation.sequences": 1})
        for size in config.evaluation.sizes:
            algorithmic.held_out(config.data.kind, "validation", size, 1)
        super().check(config)

    def __init__(
        self, config: ConfigDict, assets: None = None, *, axis_name: str | None = None
    ):
        """Builds the model and the objective; see `Task`."""
        self.config = config
        self.kind = algorithmic.kind_of(config.data.kind)
        self.model = checks.build_model(
            config.architecture, config.model, outputs=self.kind.outputs
        )
        sizes = config.data.max_size, *config.evaluation.sizes
        self.sizes = list(dict.fromkeys(sizes))
        self.answer = jax.jit(self._answer)
        inputs = jnp.zeros((1, 2, self.kind.inputs))
        self.objective = Supervised(
            lambda rng: self.model.init(rng, inputs, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )

    def train_data(self) -> Batches:
        """Returns the training batches; see `data.algorithmic.batches`."""
        return _batches(self.config)

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Cross-entropy of the bits that are asked for."""
        logits = self.model.apply({"params": params}, batch["inputs"], train=True)
        nats = _nats(logits, batch)
        answers = batch["mask"].sum() * self.kind.outputs
        rows = jnp.asarray(len(logits), jnp.float32)
        metrics = {"bits": (nats / jnp.log(2.0), rows)}
        return nats, (answers.astype(jnp.float32), metrics)

    def _answer(self, params, inputs) -> tuple[jax.Array, list[AttentionRecord]]:
        """Logits [B, T, O], and the model's attention."""
        logits, sown = self.model.apply(
            {"params": params}, inputs, train=False, mutable=["attention"]
        )
        return logits, collect(sown, AttentionRecord)

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Evaluates sequences of each of `config.evaluation.sizes`; see `Task`.

        Returns:
            Of the largest size of training `bits`, the mean a sequence, `per_bit`, the
            same for each bit that is asked for, and `wrong`, the percentage of bits
            that are guessed wrong; of each size S `bits_S` and `wrong_S`, of S x R for
            a repeat copy of S vectors R times; for `ngrams` also `optimum`, the bits of
            the best predictor on the same sequences.
        """
        config = self.config
        results = {s: self._evaluate(state.params, split, s) for s in self.sizes}
        bits, wrong, batch = results[config.data.max_size]
        scores = {"bits": bits, "per_bit": bits / self._asked(batch), "wrong": wrong}
        if config.data.kind == "ngrams":
            scores["optimum"] = float(algorithmic.optimal_bits(batch).mean())
        for size in config.evaluation.sizes:
            name, (bits, wrong, _) = algorithmic.size_name(size), results[size]
            scores |= {f"bits_{name}": bits, f"wrong_{name}": wrong}
        return Evaluation(split, scores)

    def _evaluate(self, params, split, size) -> tuple[float, float, endless.Batch]:
        """Bits a sequence and percentage of wrong bits of a size; its sequences."""
        count = self.config.evaluation.sequences
        batch = _held_out(self.config.data.kind, split, size, count)
        nats, wrong = 0.0, 0
        for start in range(0, count, _BATCH):
            part = {n: x[start : start + _BATCH] for n, x in batch.items()}
            logits, _ = self.answer(params, part["inputs"])
            nats += float(_nats(logits, part))
            wrong += wrong_bits(logits, part["targets"], part["mask"])
        bits = bits_per_sequence(nats, count)
        return bits, 100 * wrong / count / self._asked(batch), batch

    def _asked(self, batch: endless.Batch) -> float:
        """Mean number of bits that are asked for in a sequence."""
        return float(batch["mask"].sum(1).mean()) * self.kind.outputs

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws a sequence of each size with its attention; see `Task`."""
        split = evaluation.split
        kind, paths = self.config.data.kind, []
        for size in self.sizes:
            batch = _held_out(kind, split, size, 1)
            logits, records = self.answer(state.params, batch["inputs"])
            bits = bits_per_sequence(float(_nats(logits, batch)), 1)
            name = algorithmic.size_name(size)
            title = f"{kind}, size {name}: {bits:.3g} bits ({split} split)"
            path = folder / f"{kind}_{name}_{split}.png"
            paths.append(_draw(batch, logits[0], _maps(records), title, path))
        return paths

    def predict(
        self, state: TrainState, lines: Lines, options: NoOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Yields the answer to each sequence, in the notation of `data.algorithmic`.

        Its score is the log-probability of its bits, in nats.
        """
        kind, batches = self.config.data.kind, []
        for line, text in lines.items():
            try:
                batches.append(algorithmic.parse(kind, text))
            except UserError as error:
                raise UserError(f"line {line}: {error}") from None
        for batch in batches:
            (logits,), records = self.answer(state.params, batch["inputs"])
            asked = np.asarray(logits)[batch["mask"][0]]
            yield Prediction(
                algorithmic.answer_text(kind, asked),
                float(-jax.nn.softplus(-jnp.abs(asked)).sum()),
                _maps(records) if attention else (),
                details=(batch, logits),
            )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws a sequence, its answer and its attention; see `Task`."""
        title = f"{title}: {self.config.data.kind}"
        return _draw(*prediction.details, prediction.attention, title, path)


def _draw(batch, logits, maps: Sequence[AttentionMap], title, path) -> Path:
    asked = batch["mask"][0][:, None]
    outputs = np.where(asked, jax.nn.sigmoid(logits), 0)
    weights = {each.name: each.weights for each in reversed(maps)}  # writing first
    inputs, targets = batch["inputs"][0], batch["targets"][0]
    return sequences.bit_sequence(inputs, targets, outputs, weights, title, path)


def _maps(records: Sequence[AttentionRecord]) -> tuple[AttentionMap, ...]:
    """The attention of the first sequence, its axes labelled by number."""
    maps = []
    for record in records:
        steps, slots = (list(map(str, range(n))) for n in record.weights.shape[2:])
        name = f"{record.kind} weights" + f", layer {record.layer}" * bool(record.layer)
        maps.append(attention_map(record, steps, slots)._replace(name=name))
    return tuple(maps)


def _nats(logits, batch):
    """Cross-entropy of the bits that are asked for."""
    nats = optax.sigmoid_binary_cross_entropy(logits, batch["targets"])
    return jnp.sum(nats * batch["mask"][..., None])


def _batches(config: ConfigDict) -> Batches:
    data = config.data
    return algorithmic.batches(
        data.kind,
        min_size=data.min_size,
        max_size=data.max_size,
        buckets=data.buckets,
        batch_size=data.batch_size,
        seed=config.seed,
    )


@functools.lru_cache(maxsize=32)
def _held_out(kind: str, split: str, size: Any, count: int) -> endless.Batch:
    return algorithmic.held_out(kind, split, size, count)
