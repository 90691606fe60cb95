"""Algorithmic tasks of the Neural Turing Machine: binary sequence to binary sequence.

Graves, Wayne and Danihelka (2014), section 4: copy, repeat copy, associative recall,
dynamic 6-grams and priority sort; `tasks.algorithmic.data` generates the sequences. The
loss is the cross-entropy of the output bits, at output steps only. The metric is the
paper's (figure 3), bits per sequence, also evaluated at sizes that are not in training.

Works with any model with `model.apply(variables, inputs [B, T, I], train=...) -> logits
[B, T, O]` and a field `outputs` for O. Figures show the attention that the model sows
as `base.records.AttentionRecord`s with weights [B, H, T, N].

Axes: B batch; T steps; I inputs; O outputs; H heads; N memory slots.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import FieldError
from base.fields import Fields, ordered
from base.ranges import BATCH, SHAPES, Choice, Range
from base.records import DETAILS, AttentionRecord, records_of
from figures.attention import AttentionMap
from tasks.algorithmic import data as algorithmic
from tasks.algorithmic import figures as sequences
from tasks.common.batches import EndlessBatches
from tasks.common.objectives import supervised
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

_SIZE = Range(1, algorithmic.MAX_SIZE, whole=True)


class AlgorithmicData(Fields):
    """`config.data`: generated sequences."""

    kind: Annotated[str, Choice(algorithmic.KINDS)] = "copy"  # task to learn
    min_size: Annotated[int, _SIZE] = 1  # minimum size of a sequence in training
    max_size: Annotated[int, _SIZE] = 20  # maximum size of a sequence in training
    # Number of batch shapes; each has similar sizes and costs a compilation.
    buckets: Annotated[int, SHAPES] = 4
    batch_size: Annotated[int, BATCH] = 32  # sequences per batch

    def __post_init__(self):
        algorithmic.check_size(self.kind, "min_size", self.min_size)
        ordered(self, "min_size", "max_size", "data")


class AlgorithmicEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    # Sizes of the evaluated sequences.
    sizes: Annotated[tuple[Any, ...], _SIZE.each()] = (20,)
    sequences: Annotated[int, BATCH] = 200  # number of sequences per size
    checkpoint: str = "best"  # later steps can undo what was learned


class AlgorithmicConfig(ModelConfig):
    """The config of an algorithmic task."""

    data: AlgorithmicData = AlgorithmicData()
    evaluation: AlgorithmicEvaluation = AlgorithmicEvaluation()

    def __post_init__(self):
        super().__post_init__()
        kind, sizes = self.data.kind, self.evaluation.sizes
        if not sizes and kind != "ngrams":  # which the paper tests at one size
            accepted = f"a list of one or more sizes for {kind}"
            raise FieldError("evaluation.sizes", sizes, accepted)
        for size in sizes:
            algorithmic.check_held_out(kind, size)


class Answers(NamedTuple):
    """Logits [B, T, O], cross-entropies [B] in nats, and attention."""

    logits: Any
    nats: Any
    records: Sequence[AttentionRecord]


class Algorithmic(Task):
    """An algorithmic task; see the module docstring."""

    metric = ("bits", "min")
    Config = AlgorithmicConfig

    def __init__(self, config: ConfigDict, assets: None = None):
        self.config = config
        self.kind = algorithmic.KINDS[config.data.kind]
        self.model = checks.build_model(config, outputs=self.kind.outputs)
        sizes = config.data.max_size, *config.evaluation.sizes
        self.sizes = list(dict.fromkeys(sizes))
        inputs = jnp.zeros((1, 2, self.kind.inputs))
        self.objective = supervised(self, inputs)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches; see `tasks.algorithmic.data.batches`."""
        return algorithmic.batches(**self.config.data, seed=self.config.seed)

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Returns the cross-entropy of the output bits."""
        logits = self.model.apply({"params": params}, batch["inputs"], train=True)
        nats = _nats(logits, batch).sum()
        output_bits = batch["mask"].sum() * self.kind.outputs
        batch_size = jnp.asarray(len(logits), jnp.float32)
        metrics = {"bits": (nats / jnp.log(2.0), batch_size)}
        return nats, (output_bits.astype(jnp.float32), metrics)

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns sequences of the maximum training size, and of the other sizes."""
        count, kind = self.config.evaluation.sequences, self.config.data.kind
        return {
            algorithmic.size_name(size): Stacked(
                algorithmic.held_out(kind, split, size, count)
            )
            for size in self.sizes
        }

    def outputs(self, state: TrainState, batch: Batch, attention: bool) -> Answers:
        """Returns logits, cross-entropies and, if requested, attention."""
        logits, sown = self.model.apply(
            {"params": state.params},
            batch["inputs"],
            train=False,
            mutable=["attention", DETAILS],
        )
        records = records_of(sown, AttentionRecord) if attention else []
        return Answers(logits, _nats(logits, batch), records)

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns bits and wrong bits; see `Task`.

        Scores: `bits` per sequence, `bits` per output bit (`per_bit`) and the
        percentage of `wrong` output bits, all at the maximum training size; `bits_S`
        and `wrong_S` for each size S of `config.evaluation.sizes`, such as 20, or 10x20
        for 10 vectors repeated 20 times; for `ngrams` also `optimum`, the bits per
        sequence of the optimal predictor on the same sequences.
        """
        scores: Scores = {}
        listed = set(map(algorithmic.size_name, self.config.evaluation.sizes))
        for name, examples in evaluation.examples.items():
            batch, answers = examples.arrays, evaluation.answers[name].arrays
            size = float(batch["mask"].sum(1).mean()) * self.kind.outputs  # in bits
            bits = float(answers.nats.mean(dtype=float)) / math.log(2)
            is_wrong = (answers.logits > 0) != (batch["targets"] > 0)
            wrong = 100 * float(is_wrong[batch["mask"]].mean())
            if not scores:
                scores = {"bits": bits, "per_bit": bits / size, "wrong": wrong}
                if self.config.data.kind == "ngrams":
                    optimum = algorithmic.optimal_bits(batch).mean()
                    scores["optimum"] = float(optimum)
            if name in listed:
                scores |= {f"bits_{name}": bits, f"wrong_{name}": wrong}
        return scores

    def picked(self, split: str, count: int) -> dict[str, Batch]:
        """Returns a sequence of each size."""
        kind = self.config.data.kind
        return {
            f"{kind}_{algorithmic.size_name(size)}": Stacked(
                algorithmic.held_out(kind, split, size, 1)
            )[0]
            for size in self.sizes[:count]
        }

    def drawn(self, split: str) -> dict[str, Batch]:
        """Returns a sequence of each size."""
        return self.picked(split, len(self.sizes))

    def parse(self, line: str, options: NoOptions) -> Batch:
        """Returns a sequence in the text format of `tasks.algorithmic.data`."""
        return Stacked(algorithmic.parse(self.config.data.kind, line))[0]

    def show(self, example: Batch, answer: Answers) -> Prediction:
        """Returns the answer, in the text format of `tasks.algorithmic.data`.

        The score is its log-probability, in nats.
        """
        outputs = answer.logits[example["mask"]]  # [output steps, O]
        bits = float(answer.nats) / math.log(2)
        caption = f"{bits:,.0f}" if bits >= 100 else f"{bits:.3f}"
        return Prediction(
            algorithmic.answer_text(self.config.data.kind, outputs),
            float(-jax.nn.softplus(-jnp.abs(outputs)).sum()),
            _maps(answer.records),
            caption=f"{caption} bits",
            details=(example, answer.logits),
        )

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws a sequence, its answer and its attention; see `Task`."""
        example, logits = prediction.details
        outputs = np.where(example["mask"][:, None], jax.nn.sigmoid(logits), 0)
        maps = reversed(prediction.attention)  # write, then read
        return sequences.bit_sequence(
            example["inputs"],
            example["targets"],
            outputs,
            {each.name: each.weights for each in maps},
            title=f"{title}: {prediction.caption}",
            path=path,
        )


def _maps(records: Sequence[AttentionRecord]) -> tuple[AttentionMap, ...]:
    """Attention maps of a sequence, with steps from 1 and slots from 0."""
    maps = []
    for record in records:
        *_, count, size = record.weights.shape
        layer = f", layer {record.layer + 1}" if record.layer else ""
        each = AttentionMap(
            name=f"{record.kind} weights{layer}",
            weights=record.weights,
            queries=[str(step) for step in range(1, count + 1)],
            keys=[str(slot) for slot in range(size)],
            titles=("step", "slot"),
            details=record.details,
        )
        maps.append(each)
    return tuple(maps)


def _nats(logits, batch):
    """Cross-entropy [B] of the output bits."""
    nats = optax.sigmoid_binary_cross_entropy(logits, batch["targets"])
    return jnp.sum(nats * batch["mask"][..., None], (1, 2))
