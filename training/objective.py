"""Objectives: initial state and training step.

`Supervised` has one model, one loss and one optimizer. `training.adversarial` has two
networks.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import optax

from training.state import LossResult, Metrics, Scores, TrainState, gradients

Loss = Callable[..., LossResult]  # (params, batch, rng, state) -> LossResult


class Objective(abc.ABC):
    """Initial state, training step, and reaction to an evaluation."""

    @abc.abstractmethod
    def init(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""

    @abc.abstractmethod
    def step(
        self, state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """Takes one training step; a pure function.

        Sums over the batch must pass through `parallel.psum` (as in
        `state.gradients`), so that the same step runs on many devices.

        Args:
            state: the state before the step.
            batch: an element of the task's `train_data`.
            rng: a PRNG key for this step only.

        Returns:
            The state with `step` incremented, and metrics {name: (sum, count)}.
        """

    def after_evaluation(self, state: TrainState, scores: Scores) -> TrainState:
        """Returns the state to continue from, given its validation scores.

        It is saved with these scores, so evaluating it must give them again.
        """
        return state


class Supervised(Objective):
    """Minimisation of one loss with one optimizer."""

    def __init__(
        self,
        init_params: Callable[[jax.Array], Any],
        loss: Loss,
        optimizer: optax.GradientTransformation,
        *,
        extra: Any = None,
        update_extra: Callable[[Any, Metrics], Any] | None = None,
        accumulate: int = 1,
    ):
        """Creates the objective.

        Args:
            init_params: `init_params(rng) -> params`.
            loss: `loss(params, batch, rng, state) -> (sum, (count, {name: (sum,
                count)}))`; `state` is the state before the step.
            optimizer: receives the gradient of sum / count.
            extra: initial `TrainState.extra`.
            update_extra: `update_extra(extra, metrics) -> extra`, called after each
                step; None keeps `extra` constant.
            accumulate: number of micro-batches that a batch is split into.
        """
        self.init_params, self.loss, self.optimizer = init_params, loss, optimizer
        self.extra, self.update_extra = extra, update_extra
        self.accumulate = accumulate

    def init(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        return TrainState.create(self.init_params(rng), self.optimizer, self.extra)

    def step(
        self, state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """Takes one step of the optimizer."""
        loss = functools.partial(self.loss, state=state)
        grads, metrics = gradients(loss, state.params, batch, rng, self.accumulate)
        state = state.update(grads, self.optimizer)
        if self.update_extra is not None:
            extra = self.update_extra(state.extra, metrics)
            state = dataclasses.replace(state, extra=extra)
        return state, metrics
