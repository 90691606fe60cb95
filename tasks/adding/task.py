"""Adding and multiplication problems: sum or product of two marked numbers.

Hochreiter and Schmidhuber (1997), Raffel and Ellis (2015). `tasks.adding.data`
generates the sequences, of fixed or variable length. The loss is the squared error;
`accuracy` is the percentage of the 1000 estimates of a split that are within 0.04 of
the target.

Works with any model called as `models.feedforward.FeedForwardAttention`:
`model.apply(variables, inputs [B, T, 2], mask, train=...) -> estimates [B]`, which sows
an `AttentionRecord` [B, 1, 1, T].

Axes: B sequences; T steps.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base.errors import FieldError, bounds
from base.fields import Fields, ordered
from base.ranges import BATCH, SHAPES, Choice, Range
from base.records import DETAILS, AttentionRecord, records_of
from figures import charts
from figures.attention import attention_map
from tasks.adding import data as adding
from tasks.common import batches as endless
from tasks.common.batches import EndlessBatches
from tasks.common.objectives import supervised
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.evaluate import evaluate
from training.state import Batch, LossResult, Scores, TrainState
from training.task import Evaluation, NoOptions, Prediction, Stacked, Task

_LENGTH = Range(adding.MIN_LENGTH, 10**6, whole=True)
_GROUPS = 5  # groups of lengths in an evaluation of the variable protocol


class AddingData(Fields):
    """`config.data`: generated sequences."""

    # Operation on the two marked numbers.
    operation: Annotated[str, Choice(adding.OPERATIONS)] = "add"
    # Sequences of one length ("fixed"), or of a range of lengths ("variable").
    protocol: Annotated[str, Choice(adding.PROTOCOLS)] = "fixed"
    # T0, the sequence length; in the variable protocol, the maximum.
    length: Annotated[int, _LENGTH] = 100
    # Minimum sequence length in the variable protocol.
    min_length: Annotated[int, _LENGTH] = 50
    # Number of batch shapes in the variable protocol; each costs a compilation.
    buckets: Annotated[int, SHAPES] = 16
    # Sequences per batch; 100 in the paper.
    batch_size: Annotated[int, BATCH] = 100

    def __post_init__(self):
        if self.protocol != "fixed":
            ordered(self, "min_length", "length", "data")


class AddingEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    # Lengths of the test sequences of eval.py, besides that of training.
    lengths: Annotated[tuple[int, ...], _LENGTH.each()] = (50, 100, 200, 500, 1000)

    def __post_init__(self):
        super().__post_init__()
        if not self.lengths:
            raise FieldError("lengths", (), "a list of one or more lengths")


class AddingConfig(ModelConfig):
    """The config of the adding or the multiplication problem."""

    data: AddingData = AddingData()
    evaluation: AddingEvaluation = AddingEvaluation()


class Adding(Task):
    """The adding or the multiplication problem; see the module docstring."""

    metric = ("accuracy", "max")
    Config = AddingConfig

    def __init__(self, config: ConfigDict, assets: None = None):
        self.config = config
        self.model = checks.build_model(config)
        blank = jnp.zeros((1, 1, 2))
        self.objective = supervised(self, blank)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches; see `tasks.adding.data.batches`."""
        return adding.batches(**self.config.data, seed=self.config.seed)

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Returns the squared error of the estimates."""
        inputs, mask = batch["inputs"], batch.get("mask")
        estimates = self.model.apply({"params": params}, inputs, mask, train=True)
        errors = jnp.square(estimates - batch["target"])
        return errors.sum(), (jnp.asarray(errors.size, jnp.float32), {})

    def examples(self, split: str, *, full: bool = True) -> dict[str, Stacked]:
        """Returns the 1000 sequences of a split, and of other lengths; see `Task`.

        The further groups have T0 = N (fixed protocol) or N steps (variable protocol)
        for each N in `config.evaluation.lengths`.
        """
        data = self.config.data
        kind = data.operation, data.protocol, split
        lengths = {"length": data.length, "min_length": data.min_length}
        groups = {split: adding.held_out(*kind, **lengths)}
        for length in self.config.evaluation.lengths if full else ():
            groups[str(length)] = adding.held_out_at(*kind, length=length)
        return {group: Stacked(batch) for group, batch in groups.items()}

    def outputs(self, state: TrainState, batch: Batch, attention: bool) -> Any:
        """Returns estimates [B] and, if requested, the attention to the steps."""
        inputs, mask = batch["inputs"], batch.get("mask")
        estimates, sown = self.model.apply(
            {"params": state.params},
            inputs,
            mask,
            train=False,
            mutable=["attention", DETAILS] if attention else [],
        )
        return estimates, records_of(sown, AttentionRecord)

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns `accuracy` in per cent and `mse` of the split.

        A full evaluation has `accuracy_N` for each further length N; in the variable
        protocol also `accuracy_M_N` for each group of the split's lengths, M to N
        steps.
        """
        first, *others = evaluation.examples
        errors = self._errors(evaluation, first)
        scores = {
            "accuracy": adding.accuracy(errors),
            "mse": float(np.square(errors).mean()),
        }
        batch, groups = evaluation.examples[first].arrays, {}
        if evaluation.options is not None and "mask" in batch:
            lengths = batch["mask"].sum(1)  # sorted
            for part in np.split(np.arange(len(errors)), _GROUPS):
                name = f"{lengths[part[0]]}_{lengths[part[-1]]}"
                groups[name] = adding.accuracy(errors[part])
        groups |= {n: adding.accuracy(self._errors(evaluation, n)) for n in others}
        return scores | {f"accuracy_{name}": x for name, x in groups.items()}

    def _errors(self, evaluation: Evaluation, group: str) -> np.ndarray:
        """Estimates minus targets: float32 [B]."""
        estimates, _ = evaluation.answers[group].arrays
        return estimates - evaluation.examples[group].arrays["target"]

    def picked(self, split: str, count: int) -> dict[str, endless.Batch]:
        """Returns sequences, of different lengths in the variable protocol."""
        examples = self.examples(split, full=False)[split]
        step = max(len(examples) // count, 1)
        numbers = range(0, len(examples), step)[:count]
        return {f"attention_{i}": examples[n] for i, n in enumerate(numbers, 1)}

    def parse(self, line: str, options: NoOptions) -> endless.Batch:
        """Returns a sequence; one of the fixed protocol is padded as in training."""
        data = self.config.data
        sequence = adding.parse(data.operation, line)
        example = adding.padded(data.protocol, sequence, data.length)
        return example | {"length": np.array(len(sequence))}

    def unusual(self, example: endless.Batch, answer: Any) -> Sequence[str]:
        """Warns of a length outside the training range."""
        data = self.config.data
        low, high = adding.training_lengths(data.protocol, data.length, data.min_length)
        length = int(example["length"])
        if low <= length <= high:
            return ()
        trained = f"the model was trained on sequences of {bounds(low, high)}"
        return (f"has {length} steps: {trained}",)

    def show(self, example: endless.Batch, answer: Any) -> Prediction:
        """Returns the estimate; its score is the maximum weight."""
        (estimate, records), inputs = answer, example["inputs"]
        length = int(np.flatnonzero(inputs[:, 1] == -1)[-1]) + 1  # without padding
        text, count = f"{estimate:.4f}", len(inputs)
        if "length" in example or "mask" in example:
            count = length
        keys = [f"{x + 0:.3g}" for x in inputs[:count, 0]]
        maps = tuple(
            attention_map(x, ["estimate"], keys, ("estimate", "value")) for x in records
        )
        if np.sum(example.get("mask", np.ones(len(inputs)))) > count:
            # Padding is part of the softmax, so its weights cannot be recomputed from
            # these steps.
            maps = tuple(each._replace(details=None) for each in maps)
        target = f"target {example['target']:.3f}, " if "target" in example else ""
        maxima = (float(each.weights[..., :length].max()) for each in maps)
        score = max(maxima, default=0.0)
        marked = inputs[:length, 1] == 1
        caption = f"{target}estimate {text}"
        return Prediction(text, score, maps, caption=caption, details=marked)

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws the weight of each step; see `Task`."""
        (weights,) = prediction.attention[0].weights[0]
        title = f"{title}: {prediction.caption}"
        marked = prediction.details
        return charts.sequence_weights(weights, marked, title=title, path=path)

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws the estimates of an evaluation, and accuracy by length."""
        split = evaluation.split
        if not evaluation.scores:
            evaluation = evaluate(self, state, split)
        scores = evaluation.scores
        first = next(iter(evaluation.examples))
        target = evaluation.examples[first].arrays["target"]
        title = f"Estimates: {scores['accuracy']:.1f}% correct ({split} split)"
        path = folder / f"estimates_{split}.png"
        estimates = target + self._errors(evaluation, first)
        paths = [
            charts.estimates(
                target, estimates, adding.TOLERANCE, title=title, path=path
            )
        ]
        by_length = {  # such as accuracy_50-59
            re.sub(r"(\d)_", r"\1-", name): score for name, score in scores.items()
        }
        return paths + charts.accuracies(by_length, "number of steps", split, folder)
