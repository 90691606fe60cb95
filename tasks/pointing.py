"""Pointing: sorting, convex hulls, Delaunay triangulations and tours.

The tasks of Vinyals, Fortunato and Jaitly (2015), section 3, and of Vinyals, Bengio and
Kudlur (2016), section 4, as `data.pointing` makes them: instances are new in every
batch, and what is held out is always the same. The loss is the cross-entropy of the
pointers up to the first 0, the end. What a model answers is found by beam search, and
where an answer is a permutation the search may be kept to permutations.

Works with any model of this protocol (`models.pointer.PointerNetwork` shows it):
`model.apply(variables, batch, train=...) -> logits [B, T, S + 1]`, and the methods
`encode(batch) -> memory`, `start(memory, rows, length) -> carry` and
`step(carry, token, memory) -> (carry, logits, Attention or None)` for decoding.

Axes: B instances, S inputs, F numbers an input, T pointers, R hypotheses of an
instance, N those that are returned.
"""

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data import pointing
from data.pointing import Batch
from errors import UserError
from generation import Decoded, beam_search, greedy
from generation.types import Carry, Step
from ops.cross_entropy import smoothed_cross_entropy
from tasks.beam import attends, check_beam, check_n_best
from training import plots
from training.state import TrainState
from training.supervised import Supervised
from training.task import Prediction, warn_of_size

_PERMUTED = ("sorting", "tsp")  # the kinds whose answers are permutations
_FIGURES = 3  # instances that are drawn
_END = 0  # the pointer that ends an answer, and starts and pads one


class Visits(NamedTuple):
    """A decoder's state, and what its hypotheses have pointed at."""

    carry: Carry
    visited: jax.Array  # [B, R, S + 1] bool

    def take(self, parents: jax.Array) -> "Visits":
        """Goes on from rows `parents` [B, R]."""
        visited = jnp.take_along_axis(self.visited, parents[..., None], axis=1)
        return Visits(self.carry.take(parents), visited)


def visit_all(step: Step, carry: Carry, mask: jax.Array, rows: int) -> tuple[Step, Any]:
    """Keeps a search to permutations: Vinyals et al. (2015), section 4.4, of tours.

    Args:
        step: what decodes; see `generation.types.Step`.
        carry: where it starts.
        mask: [B, S] bool, False at padding.
        rows: R.

    Returns:
        A step that points at every input once and then at the end, and its start.
    """

    def constrained(carry, token):
        inner, logits, weights = step(carry.carry, token)
        numbers = jnp.arange(logits.shape[-1])
        visited = carry.visited | (numbers == token[..., None])
        done = visited[..., 1:].all(-1, keepdims=True)
        allowed = jnp.where(numbers == _END, done, ~visited)
        logits = jnp.where(allowed, logits, -jnp.inf)
        return Visits(inner, visited), logits, weights

    # Padding counts as visited.
    visited = jnp.pad(~mask, ((0, 0), (1, 0)))[:, None]
    shape = len(mask), rows, mask.shape[1] + 1
    return constrained, Visits(carry, jnp.broadcast_to(visited, shape))


class Pointing(Supervised):
    """Trains, scores and shows a model that points; see the module's docstring."""

    metric = ("accuracy", "max")  # which all kinds have

    def __init__(self, config):
        """Checks what must fit together; see `Task`."""
        super().__init__(config)
        data, evaluation = config.data, config.evaluation
        self._batches = pointing.Batches(
            data.kind,
            smallest=data.smallest,
            largest=data.largest,
            buckets=data.buckets,
            rows=data.rows,
            seed=config.seed,
        )
        for name in ("instances", "beam"):
            if evaluation[name] < 1:
                raise UserError(
                    f"config.evaluation.{name} is {evaluation[name]}: must be at least "
                    "1"
                )
        if data.largest not in evaluation.sizes:
            raise UserError(
                f"config.evaluation.sizes is {evaluation.sizes}: must hold "
                f"config.data.largest, which is {data.largest}"
            )
        for size in evaluation.sizes:
            _check_size(data.kind, size, "config.evaluation.sizes")
        if evaluation.constrain and data.kind not in _PERMUTED:
            raise UserError(
                "config.evaluation.constrain is true, but the answers of "
                f"{data.kind!r} are no permutations: set it to false"
            )
        self.model = config.architecture(**config.model)
        self._jit_decode = jax.jit(
            self._decode,
            static_argnames=("length", "beam", "n_best", "constrain", "keep"),
        )
        self._held_out = functools.cache(
            lambda split, size: pointing.held_out(
                data.kind, split, size, evaluation.instances
            )
        )
        self.check_model()

    def train_data(self) -> pointing.Batches:
        """Returns the training batches."""
        return self._batches

    def loss(self, params, batch, rng):
        """Cross-entropy of the pointers; see `Supervised`."""
        logits = self.model.apply({"params": params}, batch, train=True)
        target = batch["target"]
        ends = target == _END
        # Up to the first 0, which is the end; the others are padding.
        real = (jnp.cumsum(ends, axis=1) - ends == 0).astype(jnp.float32)
        loss, count = smoothed_cross_entropy(logits, target, 0.0, real)
        right = jnp.sum((logits.argmax(-1) == target) * real)
        return loss, (count, {"pointer_accuracy": (right, count)})

    def evaluate(
        self,
        state: TrainState,
        split: str,
        *,
        out_dir: Path | None = None,
        beam: int | None = None,
    ) -> dict[str, float]:
        """Scores the held-out instances of every size; see `Task`.

        Args:
            state: whose parameters to use.
            split: "validation" or "test".
            out_dir: where the figures of a final evaluation go; without it the answers
                are greedy.
            beam: width of the search; `config.evaluation.beam` by default.

        Returns:
            What `data.pointing.score` measures, by name for `config.data.largest` and
            by `<name>_<size>` for each of `config.evaluation.sizes`; with `out_dir`
            also `instances` (of each size) and `beam`, and, where the search is kept to
            tours, `valid_free`, `length_free` and `excess_free` of one that is not, the
            last two of its tours alone.
        """
        evaluation, kind = self.config.evaluation, self.config.data.kind
        beam = 1 if out_dir is None else check_beam(beam, evaluation.beam)
        scores: dict[str, float] = {}
        for size in evaluation.sizes:
            batch = self._held_out(split, size)
            answers = self._search(state.params, batch, beam, evaluation.constrain)
            found = pointing.score(kind, batch, answers.tokens[:, 0])
            if out_dir is not None and kind == "tsp" and evaluation.constrain:
                answers = self._search(state.params, batch, beam, False)
                free = pointing.score(kind, batch, answers.tokens[:, 0])
                wanted = "valid", "length", "excess"
                found |= {f"{name}_free": free[name] for name in wanted if name in free}
            if size == self.config.data.largest:
                scores = found | scores
            scores |= {f"{name}_{size}": value for name, value in found.items()}
        if out_dir is None:
            return scores
        if plots.available():
            self._draw(state.params, split, out_dir / "figures", beam)
        return scores | {"instances": evaluation.instances, "beam": beam}

    def figures(self, state: TrainState, out_dir: Path) -> list[Path]:
        """Draws a few validation instances, their answers and the pointers' weights.

        The weights are the model's own, whatever a search is kept to.
        """
        beam = self.config.evaluation.beam
        return self._draw(state.params, "validation", out_dir, beam)

    def predict(
        self,
        state: TrainState,
        inputs: Sequence[str],
        *,
        beam: int | None = None,
        n_best: int = 1,
        figures: Path | str | None = None,
    ) -> list[list[Prediction]]:
        """Answers instances: numbers to sort as "0.3 0.1", else points as "0.3,0.8".

        Args:
            state: whose parameters to use.
            inputs: an instance each; an empty one has the empty answer.
            beam: width of the search; `config.evaluation.beam` by default.
            n_best: answers of each instance.
            figures: a folder for a picture of each instance.

        Returns:
            For each instance its answers and their log-probabilities, best first: the
            numbers in their order; the numbers of the points, from 1, in theirs;
            triangles as "1,2,4 2,3,4", of which the last may lack corners.

        Raises:
            UserError: for an input that is no such instance, or an option out of range.
        """
        if figures is not None:
            plots.require()
        beam = check_beam(beam, self.config.evaluation.beam)
        check_n_best(n_best, beam)
        kind, constrain = self.config.data.kind, self.config.evaluation.constrain
        keep = figures is not None and self._attends()
        if figures is not None and kind == "sorting" and not keep:
            raise UserError("figures: this model has no attention to draw")
        lines = {i: text.split() for i, text in enumerate(inputs) if text.strip()}
        answers = [[Prediction("", 0.0)] for _ in inputs]
        if not lines:
            return answers
        batch = _batch([_parse(kind, items, i + 1) for i, items in lines.items()])
        sizes = self.config.data.smallest, self.config.data.largest
        told = {"of": "inputs", "learned": "the model learned from"}
        for i, items in lines.items():
            warn_of_size(i + 1, len(items), *sizes, **told)
        if figures is not None or kind != "tsp":  # points on a line have a tour, too
            batch["target"] = _answers(kind, batch, [i + 1 for i in lines])
        try:
            found = self._search(state.params, batch, beam, constrain, n_best, keep)
        except ValueError as error:  # of a model that takes only so many inputs
            if not self.is_of_a_field(error):
                raise
            raise UserError(f"config.model.{error}") from None
        for row, (i, items) in enumerate(lines.items()):
            hypotheses = pointing.sequences(found.tokens[row])
            answers[i] = [
                Prediction(_text(kind, items, indices), float(score))
                for indices, score in zip(hypotheses, found.scores[row], strict=True)
                if score > -np.inf
            ]
            if figures is not None:
                path = Path(figures) / f"pointing_{i + 1:04d}.png"
                self._draw_one(batch, found, row, f"Line {i + 1}", path)
        return answers

    # Decoding.

    def _search(
        self,
        params: Any,
        batch: Batch,
        beam: int,
        constrain: bool,
        n_best: int = 1,
        keep: bool = False,
    ) -> Decoded:
        """Answers of all instances, decoded so many at a time as a batch has rows."""
        count = len(batch["lengths"])
        rows = min(self.config.data.rows, count)
        steps = functools.partial(pointing.steps, self.config.data.kind)
        parts = []
        for start in range(0, count, rows):
            # The last instance fills up the last part, for parts of one shape.
            chosen = np.minimum(np.arange(start, start + rows), count - 1)
            part = {name: batch[name][chosen] for name in ("inputs", "lengths")}
            parts.append(
                self._jit_decode(
                    params,
                    part,
                    np.array([steps(n) for n in part["lengths"]]),
                    length=steps(batch["inputs"].shape[1]),
                    beam=beam,
                    n_best=n_best,
                    constrain=constrain,
                    keep=keep,
                )
            )
        parts = jax.device_get(parts)
        return jax.tree.map(lambda *x: np.concatenate(x)[:count], *parts)

    def _decode(
        self, params, batch, limit, *, length, beam, n_best, constrain, keep
    ) -> Decoded:
        rows, size, _ = batch["inputs"].shape
        step, carry = self._decoder(params, batch, beam, length)
        if constrain:
            mask = jnp.arange(size) < batch["lengths"][:, None]
            step, carry = visit_all(step, carry, mask, beam)
        common = dict(batch=rows, max_length=length, limit=limit, keep_weights=keep)
        common |= dict(bos=_END, eos=_END, pad=_END)
        if beam == 1:
            return greedy(step, carry, **common)
        return beam_search(step, carry, beam=beam, alpha=0.0, n_best=n_best, **common)

    def _decoder(self, params, batch, rows, length) -> tuple[Step, Carry]:
        apply = functools.partial(self.model.apply, {"params": params})
        memory = apply(batch, method="encode")

        def step(carry, token):
            carry, logits, attention = apply(carry, token, memory, method="step")
            return carry, logits, None if attention is None else attention.weights

        return step, apply(memory, rows, length, method="start")

    def _attends(self) -> bool:
        """Whether the model has weights to show."""
        return attends(lambda p: self._decoder(p, self.blank(), 1, 1), self.init_state)

    def blank(self) -> dict[str, jax.Array]:
        """Returns an instance of as many inputs as there ever are.

        So that a model can refuse them when it is built.
        """
        kind, size = self.config.data.kind, max(self.config.evaluation.sizes)
        return {
            "inputs": jnp.zeros((1, size, pointing.features(kind))),
            "lengths": jnp.full(1, size),
            "target": jnp.zeros((1, pointing.steps(kind, size)), jnp.int32),
        }

    # Figures.

    def _draw(self, params: Any, split: str, folder: Path, beam: int) -> list[Path]:
        kind, size = self.config.data.kind, self.config.data.largest
        batch = self._held_out(split, size)
        batch = {name: values[:_FIGURES] for name, values in batch.items()}
        keep = self._attends()
        if kind == "sorting" and not keep:
            return []
        constrain = self.config.evaluation.constrain
        found = self._search(params, batch, beam, constrain, keep=keep)
        return [
            self._draw_one(
                *(batch, found, row, f"{split} instance {row + 1}".capitalize()),
                folder / f"{kind}_{split}_{row + 1}.png",
            )
            for row in range(len(batch["lengths"]))
        ]

    def _draw_one(
        self, batch: Batch, found: Decoded, row: int, title: str, path: Path
    ) -> Path:
        """Draws an instance's answer beside the right one; of numbers, the weights."""
        kind, size = self.config.data.kind, batch["lengths"][row]
        inputs, title = batch["inputs"][row, :size], f"{title}: {kind}"
        (indices,) = pointing.sequences(found.tokens[row, :1])
        weights = found.weights
        if weights is not None:
            weights = weights[row, 0, : found.lengths[row, 0], : size + 1]
        names = [str(k + 1) for k in range(size)]
        if kind == "sorting":
            names = [f"{number:.3f}" for number in inputs[:, 0]]
        rows = [*(names[k] for k in indices), "end"]
        if kind == "tsp" and size > pointing.HELD_OUT_EXACT:
            title += ", its truth a tour that may not be the shortest"
        if kind == "sorting":
            return plots.attention_heatmaps(
                *(weights[None], rows, ["end", *names], title, path),
                panels=["weights"],
                row_title="answer",
                column_title="inputs",
            )
        (right,) = pointing.sequences(batch["target"][row : row + 1])
        shapes = _shapes(kind, right), _shapes(kind, indices)
        return plots.pointing(
            inputs, *shapes, title, path, weights=weights, weight_rows=rows
        )


def _check_size(kind: str, size: int, where: str) -> None:
    """Raises a UserError, which says where, for fewer inputs than a kind needs."""
    if type(size) is not int:
        raise UserError(f"{where} has {size!r}: must be whole numbers")
    try:
        pointing.steps(kind, size)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _shapes(kind: str, indices: np.ndarray) -> list[np.ndarray]:
    """The polygons that indices make: one, or many triangles."""
    if kind != "delaunay":
        return [indices]
    return [indices[i : i + 3] for i in range(0, len(indices), 3)]


def _parse(kind: str, items: Sequence[str], line: int) -> np.ndarray:
    """Numbers [n, F] of the items of a line.

    Raises:
        UserError: for an item that is not made of so many numbers, or too few items.
    """
    count = pointing.features(kind)
    form = "a finite number" if count == 1 else "two finite numbers, such as 0.3,0.8"
    values = []
    for place, item in enumerate(items, 1):
        try:
            numbers = np.array([float(number) for number in item.split(",")])
        except ValueError:
            numbers = np.full(count, np.nan)
        finite = np.abs(numbers) <= np.finfo(np.float32).max
        if len(numbers) != count or not finite.all():
            raise UserError(
                f"line {line}, item {place} is {item[:40]!r}: must be {form}"
            )
        values.append(numbers)
    _check_size(kind, len(items), f"line {line}")
    values = np.array(values, np.float32)
    if values.min() < 0 or values.max() > 1:
        print(
            f"warning: line {line} has numbers outside of [0, 1], where the model has "
            "learned nothing",
            file=sys.stderr,
        )
    return values


def _batch(instances: Sequence[np.ndarray]) -> Batch:
    """Instances [n, F] side by side, without their answers."""
    lengths = np.array([len(instance) for instance in instances], np.int32)
    shape = len(lengths), lengths.max(), instances[0].shape[1]
    inputs = np.zeros(shape, np.float32)
    for row, instance in zip(inputs, instances, strict=True):
        row[: len(instance)] = instance
    return {"inputs": inputs, "lengths": lengths}


def _answers(kind: str, batch: Batch, lines: Sequence[int]) -> np.ndarray:
    """The right answers [B, T] of instances from so numbered lines."""
    found = []
    for row, line in enumerate(lines):
        lengths = batch["lengths"][row : row + 1]
        inputs = np.array(batch["inputs"][row : row + 1], np.float64)
        real = inputs[:, : lengths[0]]
        # Where solvers expect them, which changes no answer.
        real -= real.min((0, 1))
        real /= max(real.max(), np.finfo(np.float32).tiny)
        try:
            found.append(pointing.answers(kind, inputs, lengths))
        except UserError as error:
            raise UserError(f"line {line}: {error}") from None
    return np.concatenate(found)


def _text(kind: str, items: Sequence[str], indices: np.ndarray) -> str:
    """An answer as a line: the items to sort, or the numbers of points."""
    if kind == "sorting":
        return " ".join(items[k] for k in indices)
    numbers = [",".join(str(k + 1) for k in shape) for shape in _shapes(kind, indices)]
    return " ".join(numbers) if kind == "delaunay" else numbers[0].replace(",", " ")
