"""Question-answering models, trained and evaluated side by side.

The parameters of P models are arrays with P as the first axis. Models whose memories
have the same number of slots form a group: one array of questions, one call.

Axes: B batch; Q questions; P models; R repeats of a model; K hops; N memory slots; F
supporting facts; W vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from base import spread
from base.records import AttentionRecord, collect
from tasks.questions.babi.encoding import Questions
from training.state import Batch, LossResult, TrainState

_BATCH = 200  # questions evaluated at a time


class Outputs(NamedTuple):
    """Outputs of R models for Q questions.

    Attributes:
        losses: float [R, Q] cross-entropy of the answers.
        correct: bool [R, Q].
        top: int [R, Q, K], slot of the maximum weight of each hop.
    """

    losses: np.ndarray
    correct: np.ndarray
    top: np.ndarray


class QuestionModels:
    """Losses and outputs of P models.

    Attributes:
        groups: numbers of the models of each group, by number of slots.

    Args:
        model: a model such as `models.memory_network.MemoryNetwork`.
        slots: number of memory slots of each of the P models.
        memory: maximum time index.
        supervision: weight of the loss of the attention.
    """

    def __init__(
        self, model: nn.Module, slots: Sequence[int], *, memory: int, supervision: float
    ):
        self.model, self.memory, self.supervision = model, memory, supervision
        self.groups = {
            size: np.flatnonzero(np.array(slots) == size) for size in sorted(set(slots))
        }
        self.count = len(slots)
        self.answer = jax.jit(jax.vmap(self._answer, in_axes=(0, 0, None)))

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
        texts: Mapping[int, np.ndarray | None],
    ) -> LossResult:
        """Returns the sum of the losses of all models, and the batch size of one model.

        Args:
            params: parameters of the P models.
            batch: a batch of `tasks.questions.babi.encoding.Batches`.
            rng: PRNG key.
            state: the training state.
            texts: by number of slots, the word ids of each task's statements whose
                numbers are in the batch; None where the batch has words.
        """
        total, wrong = jnp.zeros(()), jnp.zeros(())
        for number, (size, group) in enumerate(self.groups.items()):
            part = batch[str(size)]
            members = jax.tree.map(lambda x, group=group: x[group], params)
            rngs = jax.random.split(jax.random.fold_in(rng, number), len(group))
            rows = texts[size]
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
            (record,) = collect(sown, AttentionRecord)
            attention = fact_losses(record.weights[:, 0], batch["facts"])
            losses += self.supervision * attention
        return losses, logits.argmax(-1) == batch["answer"]

    def _answer(self, params, linear, batch):
        """Logits [B, W] and the attention record of one model in evaluation."""
        logits, sown = self.model.apply(
            {"params": params}, batch, train=False, linear=linear, mutable=["attention"]
        )
        (record,) = collect(sown, AttentionRecord)
        return logits, record

    def outputs(
        self, state: TrainState, members: slice, questions: Questions, slots: int
    ) -> Outputs:
        """Returns the outputs of some models for all questions.

        Args:
            state: a training state.
            members: range of the R models.
            questions: Q questions.
            slots: N.
        """

        def part(start: int) -> list[np.ndarray]:
            index = np.arange(start, min(start + _BATCH, len(questions)))
            batch = questions.batch(index, slots, memory=self.memory)
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
