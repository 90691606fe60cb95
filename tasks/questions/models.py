"""Question-answering models and their questions, trained and evaluated side by side.

The parameters of P models are arrays with P as the first axis. Models whose memories
have the same number of slots form a group: one array of questions, one call.

A linear start (Sukhbaatar et al. 2015, section 4.2) leaves out the softmax of each hop
at first. When the validation loss stops decreasing, the softmax is restored and
training goes on with a new optimizer state, at the initial learning rate.

Axes: B batch; Q questions; P models; R repeats of a model; K hops; N memory slots; F
supporting facts; W vocabulary; D distinct statements; J words of a statement.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from ml_collections import ConfigDict

from base import spread
from base.records import DETAILS, AttentionRecord, records_of
from tasks.common.batches import EndlessBatches
from tasks.questions.babi import sources
from tasks.questions.babi.encoding import (
    Questions,
    concatenate,
    deduplicate,
    same_widths,
)
from tasks.questions.babi.sources import Source
from training.objective import Loss, Supervised
from training.state import Batch, LossResult, Metrics, Scores, TrainState


class QuestionData:
    """The questions of a run.

    Attributes:
        tasks: numbers of the tasks.
        joint: whether one model, with its repeats, learns all tasks.
        slots: number of memory slots by task.
        groups: numbers of the models of each group, by number of slots.
    """

    def __init__(self, config: ConfigDict, source: Source):
        """Counts the slots of each task."""
        data = self.config = config.data
        self.seed = config.seed
        self.questions = functools.cache(source.questions)  # encoded once
        self.tasks = [sources.OWN_STORIES]
        if data.source == "generated":
            self.tasks = list(data.tasks)
        self.joint = data.training == "joint"
        # Maximum number of statements before a training question.
        slots = [min(x.longest, data.memory) for x in self._by_model()]
        by_task = slots * len(self.tasks) if self.joint else slots
        self.slots = dict(zip(self.tasks, by_task, strict=True))
        of_models = np.repeat(slots, data.repeats)  # [P]
        sizes = sorted(set(slots))
        self.groups = {size: np.flatnonzero(of_models == size) for size in sizes}

    def _by_model(self) -> list[Questions]:
        """The training questions of each model, once for all its repeats."""
        models = list(self.questions("train").values())
        return [concatenate(models)] if self.joint else models

    def members(self, task: int) -> slice:
        """Returns the indices of the models trained for a task, one for each repeat."""
        repeats = self.config.repeats
        start = 0 if self.joint else self.tasks.index(task) * repeats
        return slice(start, start + repeats)

    @functools.cached_property
    def training(self) -> dict[int, tuple[list[Questions], np.ndarray | None]]:
        """The training questions of each group, by number of slots; see `deduplicate`.

        With the questions of each task are the word ids [tasks, D, J] of the statements
        whose numbers they have, or None.
        """
        repeats, models = self.config.repeats, self._by_model()
        return {
            size: deduplicate(
                [models[n] for n in group[::repeats] // repeats],
                self.config.batch_size * size // 2,  # with more, few are repeated
            )
            for size, group in self.groups.items()
        }

    def batches(self) -> EndlessBatches:
        """Returns the training batches of all models, drawn with replacement.

        A batch has an entry for each number of slots N, named str(N): arrays [B, P,
        ...] of `Questions.batch` for the models with N slots, in order.
        """
        data = self.config
        shape = data.batch_size, data.repeats  # each model has questions of its own
        groups = {slots: same_widths(x) for slots, (x, _) in self.training.items()}

        def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Any:
            options = {"memory": data.memory, "noise": data.time_noise}
            options |= {"rng": rng, "rows": rows}
            batch = {}
            for slots, tasks in groups.items():
                parts = [
                    x.batch(rng.integers(len(x), size=shape), slots, **options)
                    for x in tasks
                ]
                batch[str(slots)] = {
                    name: np.concatenate([part[name] for part in parts], 1)
                    for name in parts[0]
                }
            return batch

        return EndlessBatches(make, data.batch_size, self.seed)


_BATCH = 200  # questions evaluated at a time


class Outputs(NamedTuple):
    """Outputs of R models for Q questions."""

    losses: np.ndarray  # float [R, Q] cross-entropy of the answers
    correct: np.ndarray  # bool [R, Q]
    top: np.ndarray  # int [R, Q, K], slot of the maximum weight of each hop


class QuestionModels:
    """Losses and outputs of P models such as `models.memory_network.MemoryNetwork`.

    `supervision` is the weight of the loss of the attention.
    """

    def __init__(self, model: nn.Module, data: QuestionData, supervision: float):
        self.model, self.data, self.supervision = model, data, supervision
        self.count = sum(map(len, data.groups.values()))
        self.answer, self.detailed = (
            jax.jit(jax.vmap(functools.partial(self._answer, x), in_axes=(0, 0, None)))
            for x in (["attention"], ["attention", DETAILS])
        )

    def init(self, rng: jax.Array) -> Any:
        """Returns the parameters of one model."""
        batch = {"sentences": (1, 1, 1), "times": (1, 1), "question": (1, 1)}
        batch = {name: jnp.ones(shape, jnp.int32) for name, shape in batch.items()}
        return self.model.init(rng, batch, train=False)["params"]

    def loss(
        self,
        params: Any,
        batch: Mapping[str, Batch],
        rng: jax.Array,
        state: TrainState,
    ) -> LossResult:
        """Returns the sum of the losses of all models, and the batch size of one model.

        `batch` is one of `QuestionData.batches`.
        """
        total, wrong = jnp.zeros(()), jnp.zeros(())
        for number, (size, group) in enumerate(self.data.groups.items()):
            part, (_, rows) = batch[str(size)], self.data.training[size]
            members = jax.tree.map(lambda x, group=group: x[group], params)
            rngs = jax.random.split(jax.random.fold_in(rng, number), len(group))
            if rows is not None:  # for each repeat
                rows = rows.repeat(len(group) // len(rows), 0)
            linear = state.extra["linear"][group]
            losses, correct = jax.vmap(self._losses, in_axes=(0, 0, 1, 0, 0))(
                members, linear, part, rows, rngs
            )
            total += losses.sum()
            wrong += (~correct).sum(dtype=jnp.float32)
        count = jnp.asarray(len(part["answer"]), jnp.float32)
        return total, (count, {"training_error": (100 * wrong / self.count, count)})

    def _losses(self, params, linear, batch, texts, rng):
        """Losses [B] and correctness [B] of one model in training."""
        if texts is not None:
            slots = batch["sentences"][..., 0]
            batch = batch | {"sentences": texts, "slots": slots}
        logits, sown = self.model.apply(
            {"params": params},
            batch,
            train=True,
            linear=linear,
            mutable=["attention"],
            rngs={"alignment": rng},
        )
        losses = _cross_entropy(logits, batch["answer"])
        if self.supervision:
            (record,) = records_of(sown, AttentionRecord)
            attention = fact_losses(record.weights[:, 0], batch["facts"])
            losses += self.supervision * attention
        return losses, logits.argmax(-1) == batch["answer"]

    def _answer(self, collections, params, linear, batch):
        """Logits [B, W] and the attention record of one model in evaluation."""
        logits, sown = self.model.apply(
            {"params": params}, batch, train=False, linear=linear, mutable=collections
        )
        (record,) = records_of(sown, AttentionRecord)
        return logits, record

    def outputs(self, state: TrainState, task: int, questions: Questions) -> Outputs:
        """Returns the outputs of the models of a task, R, for Q questions."""
        members, slots = self.data.members(task), self.data.slots[task]

        def part(start: int) -> list[np.ndarray]:
            index = np.arange(start, min(start + _BATCH, len(questions)))
            batch = questions.batch(index, slots, memory=self.data.config.memory)
            logits, record = self.answer(*select(state, members), batch)
            target = np.broadcast_to(batch["answer"], logits.shape[:-1])
            losses = _cross_entropy(logits, target)
            top = record.weights[:, :, 0].argmax(-1)
            return jax.device_get([losses, logits.argmax(-1) == target, top])

        parts = spread.each(part, range(0, len(questions), _BATCH))
        return Outputs(*(np.concatenate(x, 1) for x in zip(*parts, strict=True)))


def select(state: TrainState, members: slice) -> tuple[Any, jax.Array]:
    """Returns the parameters and the linear-start flags of some models."""
    every = state.params, state.extra["linear"]
    return jax.tree.map(lambda x: x[members], every)


def fact_losses(weights: jax.Array, facts: jax.Array) -> jax.Array:
    """Cross-entropy of the attention with the supporting facts.

    The target of hop k is the k-th fact. The last hop has all facts from the K-th on as
    targets; hops after the last fact repeat it.

    Args:
        weights: [B, K, N].
        facts: int [B, F] slots, -1 at padding and for facts outside of the memory.

    Returns:
        [B], sums over hops of -log of the total weight of the targets; 0 for a hop
        without a target in memory.
    """
    hops, slots = weights.shape[1:]
    number = jnp.arange(facts.shape[-1])  # [F]
    count = (number * (facts >= 0)).max(-1) + 1  # up to the last fact in memory
    hop = jnp.minimum(jnp.arange(hops), count[:, None] - 1)[..., None]  # [B, K, 1]
    last = jnp.arange(hops)[:, None] == hops - 1
    target = (number == hop) | (last & (number >= hop))  # [B, K, F]
    chosen = facts[:, None, :, None] == jnp.arange(slots)  # [B, 1, F, N]
    marks = (target[..., None] & chosen).any(-2)  # [B, K, N]
    mass = jnp.sum(weights * marks, -1)
    return jnp.where(marks.any(-1), -jnp.log(jnp.maximum(mass, 1e-9)), 0).sum(-1)


def _cross_entropy(logits: Any, answer: Any) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, answer)


class LinearStart(Supervised):
    """Minimisation of the losses of P models, each with its own clipping.

    `TrainState.extra` has, for each model, `linear` (whether its softmax is left out),
    `ends` (whether it is restored in the next step) and `best` (the minimum validation
    loss so far).
    """

    def __init__(
        self,
        init_params: Callable[[jax.Array], Any],
        loss: Loss,
        optimizer: optax.GradientTransformation,
        *,
        models: int,
        linear_steps: int,
        validation_losses: Callable[[TrainState], jax.Array],
    ):
        """Creates the objective.

        Args:
            init_params: `init_params(rng) -> params` of one model.
            loss: sum of the losses of all models, see `Supervised`; the count is that
                of one model.
            optimizer: optimizer of one model.
            models: P.
            linear_steps: maximum number of steps without the softmax; 0 for no linear
                start.
            validation_losses: `validation_losses(state) -> losses [P]`.
        """
        self.linear_steps, self.validation_losses = linear_steps, validation_losses
        side_by_side = optax.GradientTransformation(
            jax.vmap(optimizer.init), jax.vmap(optimizer.update)
        )
        super().__init__(
            lambda rng: jax.vmap(init_params)(jax.random.split(rng, models)),
            loss,
            side_by_side,
            extra={
                "linear": jnp.full(models, linear_steps > 0),
                "ends": jnp.full(models, False),
                "best": jnp.full(models, jnp.inf),
            },
        )

    def step(
        self, state: TrainState, batch: Batch, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """Takes one step, with the softmax of the models whose linear start ends."""
        linear = state.extra["linear"] & ~state.extra["ends"]
        extra = state.extra | {"linear": linear}
        return super().step(dataclasses.replace(state, extra=extra), batch, rng)

    def after_evaluation(self, state: TrainState, scores: Scores) -> TrainState:
        """Decides which models get their softmax back in the next step.

        During the linear start, the optimizer state is new after each evaluation, so
        that the learning rate does not decay.
        """
        linear, best = state.extra["linear"], state.extra["best"]
        if not linear.any():
            return state
        losses = jnp.asarray(self.validation_losses(state))
        ends = linear & ((losses >= best) | (state.step >= self.linear_steps))
        initial = self.optimizer.init(state.params)

        def restart(new, old):
            return jnp.where(linear.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        extra = {"linear": linear, "ends": ends, "best": jnp.minimum(best, losses)}
        opt_state = jax.tree.map(restart, initial, state.opt_state)
        return dataclasses.replace(state, opt_state=opt_state, extra=extra)
