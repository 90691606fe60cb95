"""Pointing: sorting, convex hulls, Delaunay triangulations and tours.

The tasks of Vinyals, Fortunato and Jaitly (2015), section 3, and of Vinyals, Bengio and
Kudlur (2016), section 4, as `data.pointing` makes them: instances are new in every
batch, and what is held out is always the same. The loss is the cross-entropy of the
pointers up to the first 0, the end. Answers are found by beam search, which may be
constrained to permutations where an answer is one; those of `validate` are greedy.

Works with any model of this protocol (`models.pointer.PointerNetwork` shows it):
`model.apply(variables, batch, train=...) -> logits [B, T, S + 1]`, and the methods that
`generation.search.Model` names.

Axes: B instances; S inputs, padded; T pointers.
"""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from data import pointing, pointing_text
from data.pointing_text import Instance
from errors import FieldError, UserError
from figures import geometry, heatmaps
from figures.attention import AttentionMap
from generation.options import BeamOptions, NBestOptions
from generation.pointers import PointerSearch
from generation.search import Search
from metrics.pointing import pointing_scores
from ops.cross_entropy import smoothed_cross_entropy
from training import checks
from training.objective import Supervised
from training.optimizers import make_optimizer
from training.state import Batch, LossResult, TrainState
from training.task import Evaluation, Lines, Prediction, Scores, Task

_PERMUTED = ("sorting", "tsp")  # the kinds whose answers are permutations
_FIGURES = 3  # instances that are drawn
_END = 0  # the pointer that ends an answer, and starts and pads one


class Pointing(Task):
    """Trains, evaluates and draws a model that points; see the module's docstring."""

    metric = ("accuracy", "max")  # which all kinds have
    EvaluationOptions = BeamOptions
    Options = NBestOptions
    figure_name = "pointing"

    @classmethod
    def check(cls, config: ConfigDict) -> None:
        """Checks the data's fields, the sizes to evaluate, the search and the model."""
        kind, evaluation = config.data.kind, config.evaluation
        pointing.Batches(seed=config.seed, **config.data)  # which checks its fields
        checks.at_least(config, {"evaluation.instances": 1})
        if config.data.max_size not in evaluation.sizes:
            raise UserError(
                f"config.evaluation.sizes is {evaluation.sizes}: must hold "
                f"config.data.max_size, which is {config.data.max_size}"
            )
        for size in evaluation.sizes:
            name = "config.evaluation.sizes: the number of inputs"
            pointing.check_size(kind, name, size)
        if evaluation.constrain and kind not in _PERMUTED:
            raise UserError(
                f"config.evaluation.constrain is true, but the answers of {kind!r} are "
                "no permutations: set it to false"
            )
        super().check(config)

    def __init__(
        self, config: ConfigDict, assets: None = None, *, axis_name: str | None = None
    ):
        """Builds the model and the objective; see `Task`."""
        self.config, self.kind = config, config.data.kind
        evaluation = config.evaluation
        self.model = checks.build_model(config.architecture, config.model)
        self.objective = Supervised(
            lambda rng: self.model.init(rng, self.blank, train=False)["params"],
            self.loss,
            make_optimizer(config),
            axis_name=axis_name,
        )
        self.search = Search.configured(evaluation)
        self.pointers = PointerSearch(
            self.model,
            batch_size=config.data.batch_size,
            steps=functools.partial(pointing.steps, self.kind),
            constrain=evaluation.constrain,
        )
        held_out = functools.partial(pointing.held_out, count=evaluation.instances)
        self.held_out = functools.cache(functools.partial(held_out, self.kind))
        self.blank = pointing.blank(self.kind, max(evaluation.sizes))  # the widest

    def train_data(self) -> pointing.Batches:
        """Returns the training batches."""
        return pointing.Batches(seed=self.config.seed, **self.config.data)

    def loss(
        self, params: Any, batch: Batch, rng: Any, state: Any = None
    ) -> LossResult:
        """Cross-entropy of the pointers."""
        logits = self.model.apply({"params": params}, batch, train=True)
        target = batch["target"]
        ends = target == _END
        # Up to the first 0, which is the end; the others are padding.
        real = (jnp.cumsum(ends, axis=1) - ends == 0).astype(jnp.float32)
        loss, count = smoothed_cross_entropy(logits, target, 0.0, real)
        right = jnp.sum((logits.argmax(-1) == target) * real)
        return loss, (count, {"pointer_accuracy": (right, count)})

    def validate(self, state: TrainState) -> Scores:
        """Scores greedy answers of the validation split."""
        return self._scores(state.params, "validation", Search())

    def evaluate(
        self, state: TrainState, split: str, options: BeamOptions
    ) -> Evaluation:
        """Scores the held-out instances of every size; see `Task`.

        The scores are those of `metrics.pointing.pointing_scores`, by name for
        `config.data.max_size` and by `<name>_<size>` for each of
        `config.evaluation.sizes`; `instances` (of each size) and `beam`; and, where the
        search is constrained to tours, `valid_free`, `length_free` and `excess_free` of
        one that is not, the last two of its tours alone. The output is the search.
        """
        search, evaluation = options.search(self.search), self.config.evaluation
        free = self.kind == "tsp" and evaluation.constrain
        scores = self._scores(state.params, split, search, free=free)
        scores |= {"instances": evaluation.instances, "beam": search.beam}
        return Evaluation(split, scores, search)

    def _scores(self, params, split: str, search: Search, free: bool = False) -> Scores:
        scores: Scores = {}
        for size in self.config.evaluation.sizes:
            batch = self.held_out(split, size)
            tokens = self.pointers.tokens(params, batch, search)
            metrics = pointing_scores(self.kind, batch, tokens)
            if free:
                tokens = self.pointers.tokens(params, batch, search, constrain=False)
                others = pointing_scores(self.kind, batch, tokens)
                names = [x for x in ("valid", "length", "excess") if x in others]
                metrics |= {f"{name}_free": others[name] for name in names}
            if size == self.config.data.max_size:
                scores = metrics | scores
            scores |= {f"{name}_{size}": value for name, value in metrics.items()}
        return scores

    def figures(
        self, state: TrainState, evaluation: Evaluation, folder: Path
    ) -> list[Path]:
        """Draws a few instances of the largest training size; see `Task`."""
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
        self, state: TrainState, lines: Lines, options: NBestOptions, attention: bool
    ) -> Iterable[Prediction]:
        """Yields the answers of instances in the form of `data.pointing_text`.

        Scores are log-probabilities. Warns of sizes that training never had.
        """
        search, instances = options.search(self.search), []
        sizes = self.config.data.min_size, self.config.data.max_size
        unit = "inputs: the model learned from"
        for line, text in lines.items():
            instances.append(pointing_text.parse(self.kind, text, f"line {line}"))
            checks.warn_out_of_range(line, len(instances[-1].inputs), *sizes, unit)
        if not instances:
            return
        try:
            answers = self._answers(state.params, instances, search, attention)
        except FieldError as error:  # of a model that takes only so many inputs
            raise UserError(f"config.model.{error}") from error
        for best, *others in answers:
            yield best._replace(others=tuple(others))

    def _answers(
        self, params, instances: list[Instance], search: Search, attention: bool
    ) -> list[list[Prediction]]:
        keep, batch = attention and self._attends(), pointing_text.stack(instances)
        answers = self.pointers.answers(params, batch, search, keep_weights=keep)
        pairs = zip(instances, answers, strict=True)
        return [[_prediction(x, *answer) for answer in ranked] for x, ranked in pairs]

    def _attends(self) -> bool:
        params = jax.eval_shape(self.objective.init, jax.random.key(0)).params
        return self.pointers.attends(params, self.blank)

    def can_draw(self) -> bool:
        """Returns True if there are points, or weights; see `Task`."""
        return self.kind != "sorting" or self._attends()

    def draw(self, prediction: Prediction, title: str, path: Path) -> Path:
        """Draws an answer beside the true one; of numbers, the weights; see `Task`."""
        instance, indices = prediction.details
        title, steps, weights = f"{title}: {self.kind}", None, None
        if prediction.attention:
            (weights,), steps = prediction.attention[0][1:3]
        if self.kind == "sorting":
            return heatmaps.pointers(weights, steps, instance.labels(), title, path)
        return geometry.pointing(
            instance.inputs,
            instance.polygons(instance.solution()),
            instance.polygons(indices),
            title + instance.caveat(),
            path,
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
