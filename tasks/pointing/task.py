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

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attention.fast.cross_entropy import smoothed_cross_entropy
from base.errors import FieldError, UserError
from base.options import option
from base.ranges import BATCH, FLAG, SHAPES, TEXT, Range
from figures import heatmaps
from figures.attention import AttentionMap
from generation.constraints import triangles, visit_once
from generation.options import BeamOptions, NBestOptions
from generation.pointers import PointerSearch
from generation.search import BEAM, Search
from tasks.pointing import data as pointing
from tasks.pointing import figures as geometry
from tasks.pointing import text as pointing_text
from tasks.pointing.metrics import pointing_scores
from tasks.pointing.text import Instance
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, Prediction, Scores, Task

_PERMUTED = ("sorting", "tsp")  # kinds whose answers are permutations
# What each kind promises of an answer.
_CONSTRAINTS: dict[str, Any] = {
    **dict.fromkeys(_PERMUTED, visit_once),
    "hull": functools.partial(visit_once, minimum=3),
    "delaunay": triangles,
}
_INPUTS = Range(1, 1000, whole=True)
_FIGURES = 3  # instances that are drawn
_END = 0  # pointer that ends, starts and pads an answer


@dataclasses.dataclass(frozen=True)
class PointingOptions(NBestOptions):
    """Flags of predict.py for pointer tasks."""

    constrain: bool = option(
        True,
        "Whether answers keep what the task promises: permutations of the inputs, a "
        "hull without a repeated point, different triangles.",
    )


class Pointing(Task):
    """Training, evaluation and figures of pointing; see the module docstring."""

    metric = ("accuracy", "max")  # a metric of every kind
    model_methods = ("encode", "start", "step")
    EvaluationOptions = BeamOptions
    Options = PointingOptions
    figure_name = "pointing"
    ranges = {
        **checks.SUPERVISED,
        "data.kind": TEXT,
        **dict.fromkeys(("data.min_size", "data.max_size"), _INPUTS),
        "data.buckets": SHAPES,
        "data.batch_size": BATCH,
        "evaluation.sizes": _INPUTS.each(),
        "evaluation.instances": BATCH,
        "evaluation.beam": BEAM,
        "evaluation.constrain": FLAG,
    }
    arrays = {  # logits of each input at each step
        ("data.batch_size", "data.max_size", "data.max_size"): 4,
        ("data.batch_size", "evaluation.beam", "evaluation.sizes"): 4,
        ("evaluation.instances", "evaluation.sizes"): 8,
    }

    @classmethod
    def check_rules(cls, config: ConfigDict) -> None:
        """Checks `config.data` and the evaluation sizes; see `Task`."""
        kind, evaluation = config.data.kind, config.evaluation
        pointing.batches(config.data, config.seed)  # checks its arguments
        if config.data.max_size not in evaluation.sizes:
            accepted = f"a list with config.data.max_size={config.data.max_size}"
            raise FieldError("config.evaluation.sizes", evaluation.sizes, accepted)
        for size in evaluation.sizes:
            pointing.check_size(kind, "a size of config.evaluation.sizes", size)
        if evaluation.constrain and kind not in _PERMUTED:
            accepted = f"False, as answers of {kind!r} are not permutations"
            raise FieldError("config.evaluation.constrain", True, accepted)

    def __init__(
        self, config: ConfigDict, assets: None = None, *, axis_name: str | None = None
    ):
        """Builds the model and the objective; see `Task`."""
        self.config, self.kind = config, config.data.kind
        self.model = checks.build_model(config.architecture, config.model)
        self.objective = Supervised(
            lambda rng: self.model.init(rng, self.blank, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )
        evaluation = config.evaluation
        self.search = Search.configured(evaluation)
        self.pointers = PointerSearch(
            self.model,
            batch_size=config.data.batch_size,
            steps=functools.partial(pointing.steps, self.kind),
            constraint=_CONSTRAINTS[self.kind],
            constrain=evaluation.constrain,
        )
        held_out = functools.partial(pointing.held_out, count=evaluation.instances)
        self.held_out = functools.cache(functools.partial(held_out, self.kind))
        self.blank = pointing.blank(self.kind, max(evaluation.sizes))

    def train_data(self) -> pointing.Batches:
        """Returns the training batches."""
        return pointing.batches(self.config.data, self.config.seed)

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

    def validate(self, state: TrainState) -> Scores:
        """Returns the metrics of greedy answers of the validation split."""
        return self._scores(state.params, "validation", Search())

    def evaluate(
        self, state: TrainState, split: str, options: BeamOptions
    ) -> Evaluation:
        """Evaluates the instances of a split at every size; see `Task`.

        Scores are the metrics of `tasks.pointing.metrics.pointing_scores`, as `<name>`
        for `config.data.max_size` and as `<name>_<size>` for each of
        `config.evaluation.sizes`; and the number of `instances` per size and the `beam`
        size. The search is constrained if `config.evaluation.constrain` says so; the
        metrics of the other search are `<name>_constrained`, or else `<name>_free`. The
        output is the `Search` that was used.
        """
        search, evaluation = options.search(self.search), self.config.evaluation
        scores = self._scores(state.params, split, search, both=True)
        scores |= {"instances": evaluation.instances, "beam": search.beam}
        return Evaluation(split, scores, search)

    def _scores(self, params, split: str, search: Search, both: bool = False) -> Scores:
        scores: Scores = {}
        constrain = not self.config.evaluation.constrain  # of the other search
        suffix = "constrained" if constrain else "free"
        for size in self.config.evaluation.sizes:
            batch = self.held_out(split, size)
            tokens = self.pointers.tokens(params, batch, search)
            metrics = pointing_scores(self.kind, batch, tokens)
            if both:
                options = {"constrain": constrain}
                tokens = self.pointers.tokens(params, batch, search, **options)
                other = pointing_scores(self.kind, batch, tokens)
                names = other.keys() - {"optimum", "reference"}  # of the labels
                metrics |= {f"{name}_{suffix}": other[name] for name in sorted(names)}
            if size == self.config.data.max_size:
                scores = metrics | scores
            scores |= {f"{name}_{size}": value for name, value in metrics.items()}
        return scores

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws a few instances of the maximum training size; see `Task`."""
        split = evaluation.split
        if not self.can_draw():
            return []
        batch = self.held_out(split, self.config.data.max_size)
        instances = pointing_text.unstack(self.kind, batch)[:_FIGURES]
        search = self.search if not evaluation.scores else evaluation.outputs
        answers = self._answers(state.params, instances, search, attention=True)
        paths = []
        for number, (best, *_) in enumerate(answers, 1):
            title = f"{split.capitalize()} instance {number}"
            path = folder / f"{self.kind}_{split}_{number}.png"
            paths.append(self.draw(best, title, path))
        return paths

    def predict(
        self,
        state: TrainState,
        lines: Lines,
        options: PointingOptions,
        attention: bool,
    ) -> Iterable[Prediction]:
        """Yields the answers to instances in the format of `tasks.pointing.text`.

        Scores are log-probabilities. Warns about sizes outside the training range.
        """
        search, instances = options.search(self.search), []
        sizes = self.config.data.min_size, self.config.data.max_size
        unit = "inputs: the model was trained on"
        for line, text in lines.items():
            instances.append(pointing_text.parse(self.kind, text, f"line {line}"))
            checks.warn_out_of_range(line, len(instances[-1].inputs), *sizes, unit)
        if not instances:
            return
        try:
            answers = self._answers(
                state.params,
                instances,
                search,
                attention=attention,
                constrain=options.constrain,
            )
        except FieldError as error:  # a model may limit the number of inputs
            raise UserError(f"config.model.{error}") from error
        for best, *others in answers:
            yield best._replace(others=tuple(others))

    def _answers(
        self, params, instances: list[Instance], search, *, attention, constrain=None
    ) -> list[list[Prediction]]:
        keep, batch = attention and self._attends(), pointing_text.stack(instances)
        options = {"constrain": constrain, "keep_weights": keep}
        answers = self.pointers.answers(params, batch, search, **options)
        pairs = zip(instances, answers, strict=True)
        return [[_prediction(x, *answer) for answer in ranked] for x, ranked in pairs]

    def _attends(self) -> bool:
        params = jax.eval_shape(self.objective.init, jax.random.key(0)).params
        return self.pointers.attends(params, self.blank)

    def can_draw(self) -> bool:
        """Returns True if inputs are points or the model has weights; see `Task`."""
        return self.kind != "sorting" or self._attends()

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws an answer next to the true one, or the weights of sorting."""
        instance, indices = prediction.details
        title, steps, weights = f"{title}: {self.kind}", None, None
        if prediction.attention:
            (weights,), steps = prediction.attention[0][1:3]
        if self.kind == "sorting":
            labels = instance.labels()
            return heatmaps.pointers(weights, steps, labels, title=title, path=path)
        return geometry.pointing(
            instance.inputs,
            instance.polygons(instance.solution()),
            instance.polygons(indices),
            title=title + instance.caveat(),
            path=path,
            weights=weights,
            weight_rows=steps,
        )


def _prediction(instance: Instance, ids, score, weights) -> Prediction:
    indices, maps = np.array(ids[:-1], np.int32) - 1, ()
    if weights is not None:
        labels = instance.labels()
        steps, keys = [*(labels[i] for i in indices), "end"], ["end", *labels]
        maps = (AttentionMap("pointer", weights[None, :, : len(keys)], steps, keys),)
    return Prediction(instance.text(indices), score, maps, details=(instance, indices))
