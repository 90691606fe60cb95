"""Pointer tasks: sorting, convex hulls, Delaunay triangulations and tours.

Vinyals, Fortunato and Jaitly (2015), section 3; Vinyals, Bengio and Kudlur (2016),
section 4. `tasks.pointing.data` generates the instances: new ones in every training
batch, a fixed set for each evaluation split. The loss is the cross-entropy of the
pointers up to the first 0, which ends an answer. Answers are decoded by beam search,
constrained or not; `validate` decodes greedily. A constrained answer keeps what the
task promises: a permutation of the inputs (sorting, tours), a hull without a repeated
point, different triangles of three different points.

Works with any model with `model.apply(variables, batch, train=...) -> logits
[B, T, S + 1]` and the methods of `generation.search.Model`, such as
`models.pointer.PointerNetwork`.

Axes: B instances; S inputs, padded; T pointers.
"""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base.errors import FieldError, UserError, bounds
from base.fields import Fields, ordered
from base.ranges import BATCH, SHAPES, Choice, Range
from figures.attention import Places, attention_map
from generation.constraints import triangles, visit_once
from generation.options import BeamOptions, NBestOptions
from generation.pointers import PointerSearch
from generation.search import BEAM, Hypothesis, Search
from generation.teacher_forced import AttentionReader
from tasks.common.batches import EndlessBatches
from tasks.common.losses import smoothed_cross_entropy
from tasks.common.objectives import supervised
from tasks.pointing import data as pointing
from tasks.pointing import figures as geometry
from tasks.pointing import text as pointing_text
from tasks.pointing.metrics import pointing_scores
from tasks.pointing.text import Instance
from training import checks
from training.configuration import EvaluationConfig, ModelConfig
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Prediction, Scores, Stacked, Task

_PERMUTED = ("sorting", "tsp")  # kinds whose answers are permutations
# What each kind promises of an answer.
_CONSTRAINTS: dict[str, Any] = {
    **dict.fromkeys(_PERMUTED, visit_once),
    "hull": functools.partial(visit_once, minimum=3),
    "delaunay": triangles,
}
_INPUTS = Range(1, 1000, whole=True)
_END = 0  # pointer that ends, starts and pads an answer


class PointingData(Fields):
    """`config.data`: generated instances."""

    kind: Annotated[str, Choice(pointing.KINDS)] = "sorting"  # task to learn
    # Minimum number of inputs of a training instance.
    min_size: Annotated[int, _INPUTS] = 10
    # Maximum number of inputs of a training instance.
    max_size: Annotated[int, _INPUTS] = 10
    # Number of batch shapes; each has similar sizes and costs a compilation.
    buckets: Annotated[int, SHAPES] = 1
    # Instances per batch; 128 in the paper.
    batch_size: Annotated[int, BATCH] = 128

    def __post_init__(self):
        pointing.check_size(self.kind, "min_size", self.min_size)
        ordered(self, "min_size", "max_size", "data")


class PointingEvaluation(EvaluationConfig):
    """`config.evaluation`."""

    # Sizes of the evaluated instances, in inputs.
    sizes: Annotated[tuple[int, ...], _INPUTS.each()] = (5, 10)
    instances: Annotated[int, BATCH] = 1000  # number of instances per size
    beam: Annotated[int, BEAM] = 1  # beam size; 1 for greedy search
    # Whether the main metrics use a search that visits each input once; for tasks whose
    # answers are permutations.
    constrain: bool = False


class PointingConfig(ModelConfig):
    """The config of a pointer task."""

    data: PointingData = PointingData()
    evaluation: PointingEvaluation = PointingEvaluation()

    def __post_init__(self):
        super().__post_init__()
        kind, evaluation = self.data.kind, self.evaluation
        if self.data.max_size not in evaluation.sizes:
            accepted = f"a list with config.data.max_size={self.data.max_size}"
            raise FieldError("evaluation.sizes", evaluation.sizes, accepted)
        for size in evaluation.sizes:
            pointing.check_size(kind, "a size of config.evaluation.sizes", size)
        if evaluation.constrain and kind not in _PERMUTED:
            accepted = f"False, as answers of {kind!r} are not permutations"
            raise FieldError("evaluation.constrain", True, accepted)


class PointingOptions(NBestOptions):
    """Flags of predict.py for pointer tasks."""

    # Whether only valid answers are given: permutations of the inputs, hulls without a
    # repeated point, distinct triangles.
    constrain: bool = True


class Instances(Stacked):
    """Held-out instances, and whether their search is constrained."""

    def __init__(self, arrays: Batch, constrain: bool):
        super().__init__(arrays)
        self.constrain = constrain


class Pointing(Task):
    """Training, evaluation and figures of pointing; see the module docstring."""

    metric = ("accuracy", "max")  # a metric of every kind
    Config = PointingConfig
    EvaluationOptions = BeamOptions
    Options = PointingOptions
    figure_name = "pointing"
    one_by_one = False

    def __init__(self, config: ConfigDict, assets: None = None):
        self.config, self.kind = config, config.data.kind
        self.model = checks.build_model(config)
        self.attention = AttentionReader(self.model)
        evaluation = config.evaluation
        self.search = Search.configured(evaluation)
        self.pointers = PointerSearch(
            self.model,
            batch_size=config.data.batch_size,
            steps=functools.partial(pointing.steps, self.kind),
            constraint=_CONSTRAINTS[self.kind],
        )
        held_out = functools.partial(pointing.held_out, count=evaluation.instances)
        self.held_out = functools.cache(functools.partial(held_out, self.kind))
        self.blank = pointing.blank(self.kind, max(evaluation.sizes))
        self.objective = supervised(self, self.blank)

    def train_data(self) -> EndlessBatches:
        """Returns the training batches."""
        return pointing.batches(**self.config.data, seed=self.config.seed)

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Returns the cross-entropy of the pointers."""
        logits = self.model.apply({"params": params}, batch, train=True)
        target = batch["target"]
        ends = target == _END
        # 1 up to the first 0, which ends the answer; the rest is padding.
        mask = (jnp.cumsum(ends, axis=1) - ends == 0).astype(jnp.float32)
        loss, count = smoothed_cross_entropy(
            logits, target, smoothing=0.0, weights=mask
        )
        correct = jnp.sum((logits.argmax(-1) == target) * mask)
        return loss, (count, {"pointer_accuracy": (correct, count)})

    def examples(self, split: str, *, full: bool = True) -> dict[str, Instances]:
        """Returns the instances of each size of `config.evaluation.sizes`.

        A full evaluation answers them by the constrained and by the free search; that
        of `config.evaluation.constrain` comes first.
        """
        groups, constrain = {}, self.config.evaluation.constrain
        for size in self.config.evaluation.sizes:
            batch = self.held_out(split, size)
            groups[f"_{size}"] = Instances(batch, constrain)
            if full:
                name = "free" if constrain else "constrained"
                groups[f"_{name}_{size}"] = Instances(batch, not constrain)
        return groups

    def answers(
        self,
        state: TrainState,
        examples: Sequence[Any],
        options: Any = None,
        *,
        attention: bool = False,
    ) -> list[list[Hypothesis]]:
        """Returns the answers to each instance, best first; see `Task`."""
        search = Search() if options is None else options.search(self.search)
        if isinstance(examples, Instances):
            batch, constrain = examples.arrays, examples.constrain
        else:
            batch = pointing_text.stack(examples)
            constrain = getattr(options, "constrain", self.config.evaluation.constrain)
        try:
            ranked = self.pointers.answers(
                state.params, batch, search, constrain=constrain
            )
        except FieldError as error:  # a model may limit the number of inputs
            raise UserError(f"config.model.{error}") from error
        if not attention:
            return ranked
        return self.attention.with_records(
            state.params,
            lambda i: {name: batch[name][i : i + 1] for name in ("inputs", "lengths")},
            ranked,
        )

    def score(self, state: TrainState, evaluation: Evaluation) -> Scores:
        """Returns the metrics of `tasks.pointing.metrics.pointing_scores`.

        They are `<name>` for `config.data.max_size` and `<name>_<size>` for each size.
        A full evaluation has those of the other search, `<name>_constrained` or
        `<name>_free`; the number of `instances` per size; and the `beam` size.
        """
        scores: Scores = {}
        for group, instances in evaluation.examples.items():
            ids = (best.ids for best, *_ in evaluation.answers[group])
            tokens = np.array([*itertools.zip_longest(*ids, fillvalue=_END)]).T
            metrics = pointing_scores(self.kind, instances.arrays, tokens)
            search, size = group.rpartition("_")[::2]
            if search:  # not the one of the config
                for name in ("optimum", "reference"):  # of the labels
                    metrics.pop(name, None)
            if int(size) == self.config.data.max_size:
                scores |= {f"{name}{search}": x for name, x in metrics.items()}
            scores |= {f"{name}{group}": x for name, x in metrics.items()}
        if evaluation.options is not None:
            scores["instances"] = self.config.evaluation.instances
            scores["beam"] = evaluation.options.search(self.search).beam
        return scores

    def picked(self, split: str, count: int) -> dict[str, Instance]:
        """Returns instances of the maximum training size."""
        batch = self.held_out(split, self.config.data.max_size)
        instances = pointing_text.unstack(self.kind, batch)[:count]
        return {f"{self.kind}_{i}": x for i, x in enumerate(instances, 1)}

    def parse(self, line: str, options: PointingOptions) -> Instance:
        """Returns an instance in the format of `tasks.pointing.text`."""
        return pointing_text.parse(self.kind, line)

    def unusual(self, example: Instance, answer: Any) -> list[str]:
        """Warns of sizes and numbers outside the training range."""
        data, size, warnings = self.config.data, len(example.inputs), []
        if not data.min_size <= size <= data.max_size:
            sizes = bounds(data.min_size, data.max_size)
            warnings.append(f"has {size} inputs: the model was trained on {sizes}")
        if example.inputs.min() < 0 or example.inputs.max() > 1:
            warnings.append(
                "has numbers outside of [0, 1], the range of the training data"
            )
        return warnings

    def show(self, example: Instance, answer: list[Hypothesis]) -> Prediction:
        """Returns the answers in the format of `tasks.pointing.text`, best first.

        Scores are log-probabilities.
        """
        best, *others = [_prediction(example, each) for each in answer]
        return best._replace(others=tuple(others))

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path | None:
        """Draws an answer next to the true one, or the weights of sorting."""
        instance, indices = prediction.details
        steps = weights = None
        if not title.startswith(self.kind.capitalize()):
            title += f": {self.kind}"
        if prediction.attention:
            (weights,), steps = prediction.attention[0][1:3]
        if self.kind == "sorting":
            return super().draw(prediction, title, path)
        return geometry.pointing(
            instance.inputs,
            instance.polygons(instance.solution()),
            instance.polygons(indices),
            title=title + instance.caveat(),
            path=path,
            weights=weights,
            weight_rows=steps,
        )


def _prediction(instance: Instance, answer: Hypothesis) -> Prediction:
    indices, labels = np.array(answer.ids[:-1], np.int32) - 1, instance.labels()
    steps, keys = [*(labels[i] for i in indices), "end"], ["end", *labels]
    places = None
    if instance.kind != "sorting":
        x, y = instance.inputs.T
        points = np.stack([1 - y, x, 1 - y, x], -1)
        boxes = np.concatenate([np.full((1, 4), np.nan), points])
        polygon = 3 if instance.kind == "delaunay" else len(steps)
        places = Places(boxes, chosen=np.append(indices + 1, 0), polygon=polygon)
    maps = (attention_map(x, steps, keys, ("output", "input")) for x in answer.records)
    return Prediction(
        instance.text(indices),
        answer.score,
        tuple(each._replace(places=places) for each in maps),
        details=(instance, indices),
        source=" ".join(instance.items),
    )
