"""Algorithmic tasks of the Neural Turing Machine: binary sequence to binary sequence.

Graves, Wayne and Danihelka (2014), section 4: copy, repeat copy, associative recall,
dynamic 6-grams and priority sort; `tasks.algorithmic.data` generates the sequences. The
loss is the cross-entropy of the output bits, at output steps only. The metric is the
paper's, bits per sequence, also evaluated at sizes that are not in training.

Works with any model with `model.apply(variables, inputs [B, T, I], train=...) -> logits
[B, T, O]` and a field `outputs` for O. Figures show the attention that the model sows
as `base.records.AttentionRecord`s with weights [B, H, T, N].

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

from base import spread
from base.errors import FieldError, UserError
from base.ranges import BATCH, SHAPES, TEXT, Range
from base.records import AttentionRecord, collect
from figures.attention import AttentionMap, attention_map
from tasks.algorithmic import data as algorithmic
from tasks.algorithmic import figures as sequences
from tasks.algorithmic.metrics import bits_per_sequence, wrong_bits
from tasks.common import batches as endless
from tasks.common.bucketing import Batches
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, NoOptions, Prediction, Task

_SIZE = Range(1, algorithmic.MAX_SIZE, whole=True)
_BATCH = 100  # sequences evaluated at a time


class Algorithmic(Task):
    """An algorithmic task; see the module docstring."""

    metric = ("bits", "min")
    ranges = {
        **checks.SUPERVISED,
        "data.kind": TEXT,
        "data.min_size": _SIZE,
        "data.max_size": _SIZE,
        "data.buckets": SHAPES,
        "data.batch_size": BATCH,
        "evaluation.sizes": _SIZE.each(),
        "evaluation.sequences": BATCH,
    }
    arrays = {  # inputs and targets, of at least two float32; states; weights
        ("data.batch_size", "data.max_size"): 8,
        ("data.batch_size", "data.max_size", "model.slots", "model.width"): 4,
        ("data.batch_size", "data.max_size", "model.hidden", "model.layers"): 4,
        ("data.batch_size", "data.max_size", "model.slots", "model.read_heads"): 4,
        ("data.batch_size", "data.max_size", "model.slots", "model.write_heads"): 4,
        ("evaluation.sizes", "model.slots", "model.read_heads"): 4,
        ("evaluation.sequences", "evaluation.sizes"): 8,
        ("evaluation.sequences", "data.max_size"): 8,
    }

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks `config.data` and the evaluation sizes; see `Task`."""
        _batches(config)
        kind, sizes = config.data.kind, config.evaluation.sizes
        if not sizes and kind != "ngrams":  # which the paper tests at one size
            accepted = f"a list of one or more sizes for {kind}"
            raise FieldError("config.evaluation.sizes", sizes, accepted)
        for size in sizes:
            algorithmic.held_out_size(kind, size)

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
        """Returns the training batches; see `tasks.algorithmic.data.batches`."""
        return _batches(self.config)

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Returns the cross-entropy of the output bits."""
        logits = self.model.apply({"params": params}, batch["inputs"], train=True)
        nats = _nats(logits, batch)
        output_bits = batch["mask"].sum() * self.kind.outputs
        batch_size = jnp.asarray(len(logits), jnp.float32)
        metrics = {"bits": (nats / jnp.log(2.0), batch_size)}
        return nats, (output_bits.astype(jnp.float32), metrics)

    def _answer(self, params, inputs) -> tuple[jax.Array, list[AttentionRecord]]:
        """Logits [B, T, O] and the model's attention."""
        logits, sown = self.model.apply(
            {"params": params}, inputs, train=False, mutable=["attention"]
        )
        return logits, collect(sown, AttentionRecord)

    def evaluate(self, state: TrainState, split: str, options: NoOptions) -> Evaluation:
        """Evaluates sequences of each of `config.evaluation.sizes`; see `Task`.

        Returns:
            Scores: `bits` per sequence, `bits` per output bit (`per_bit`) and the
            percentage of `wrong` output bits, all at the maximum training size;
            `bits_S` and `wrong_S` for each size S, such as 20, or 10x20 for 10 vectors
            repeated 20 times; for `ngrams` also `optimum`, the bits per sequence of the
            optimal predictor on the same sequences.
        """
        config = self.config
        results = {s: self._evaluate(state.params, split, s) for s in self.sizes}
        bits, wrong, batch = results[config.data.max_size]
        scores = {"bits": bits, "per_bit": bits / self._bits(batch), "wrong": wrong}
        if config.data.kind == "ngrams":
            scores["optimum"] = float(algorithmic.optimal_bits(batch).mean())
        for size in config.evaluation.sizes:
            name, (bits, wrong, _) = algorithmic.size_name(size), results[size]
            scores |= {f"bits_{name}": bits, f"wrong_{name}": wrong}
        return Evaluation(split, scores)

    def _evaluate(self, params, split, size) -> tuple[float, float, endless.Batch]:
        """Bits per sequence, percentage of wrong bits, and the sequences of a size."""
        count = self.config.evaluation.sequences
        batch = _held_out(self.config.data.kind, split, size, count)

        def errors(start: int) -> tuple[float, int]:
            part = {n: x[start : start + _BATCH] for n, x in batch.items()}
            logits, _ = self.answer(params, part["inputs"])
            wrong = wrong_bits(logits, part["targets"], part["mask"])
            return float(_nats(logits, part)), wrong

        parts = spread.each(errors, range(0, count, _BATCH))
        nats, wrong = map(sum, zip(*parts, strict=True))
        bits = bits_per_sequence(nats, count)
        return bits, 100 * wrong / count / self._bits(batch), batch

    def _bits(self, batch: endless.Batch) -> float:
        """Mean number of output bits per sequence."""
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
            number = f"{bits:,.0f}" if bits >= 100 else f"{bits:.3f}"
            title = f"{kind}, size {name}: {number} bits ({split} split)"
            path = folder / f"{kind}_{name}_{split}.png"
            paths.append(
                _draw(batch, logits[0], _maps(records), title=title, path=path)
            )
        return paths

    def predict(
        self, state: TrainState, lines: Lines, options: NoOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Yields the answer to each sequence; see `Task`.

        Sequences and answers have the text format of `tasks.algorithmic.data`. The
        score is the log-probability of the answer, in nats.
        """
        kind, batches = self.config.data.kind, []
        for line, text in lines.items():
            try:
                batches.append(algorithmic.parse(kind, text))
            except UserError as error:
                raise UserError(f"line {line}: {error}") from None
        for batch in batches:
            (logits,), records = self.answer(state.params, batch["inputs"])
            outputs = np.asarray(logits)[batch["mask"][0]]  # [output steps, O]
            yield Prediction(
                algorithmic.answer_text(kind, outputs),
                float(-jax.nn.softplus(-jnp.abs(outputs)).sum()),
                _maps(records) if attention else (),
                details=(batch, logits),
            )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws a sequence, its answer and its attention; see `Task`."""
        title = f"{title}: {self.config.data.kind}"
        batch, logits = prediction.details
        return _draw(batch, logits, prediction.attention, title=title, path=path)


def _draw(batch, logits, maps: Sequence[AttentionMap], *, title, path) -> Path:
    outputs = np.where(batch["mask"][0][:, None], jax.nn.sigmoid(logits), 0)
    weights = {each.name: each.weights for each in reversed(maps)}  # write, then read
    return sequences.bit_sequence(
        batch["inputs"][0],
        batch["targets"][0],
        outputs,
        weights,
        title=title,
        path=path,
    )


def _maps(records: Sequence[AttentionRecord]) -> tuple[AttentionMap, ...]:
    """Attention maps of the first sequence, with numbered steps and slots."""
    maps = []
    for record in records:
        steps, slots = (list(map(str, range(n))) for n in record.weights.shape[2:])
        name = f"{record.kind} weights" + f", layer {record.layer + 1}" * bool(
            record.layer
        )
        maps.append(attention_map(record, steps, slots)._replace(name=name))
    return tuple(maps)


def _nats(logits, batch):
    """Cross-entropy of the output bits."""
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
    return algorithmic.held_out(kind, split, size, count=count)
