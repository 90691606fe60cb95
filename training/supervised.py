"""A task of one model, one loss and one optimizer, whose data need no preparation."""

import abc
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from training.state import TrainState, gradients, make_optimizer
from training.task import Metrics, Task


class Supervised(Task):
    """Descends the gradient of its `loss`; subclasses set `model` and evaluate it."""

    def __init__(self, config: ConfigDict):
        """Builds the optimizer of `config.optimizer`; see `Task`."""
        super().__init__(config)
        self._optimizer = make_optimizer(config.optimizer)

    @abc.abstractmethod
    def blank(self) -> Any:
        """Returns inputs of the model of the right shapes, to make its parameters."""

    @abc.abstractmethod
    def loss(self, params: Any, batch: Any, rng: jax.Array) -> Any:
        """Returns the sum of the losses and what goes with it; see `state.Loss`."""

    def prepare(self, workdir: Path, *, training: bool) -> None:
        """Does nothing: the config has it all; see `Task`."""

    def init_state(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        params = self.model.init(rng, self.blank(), train=False)["params"]
        return TrainState.create(params, self._optimizer)

    def train_step(
        self, state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """One step of the optimizer on `loss`."""
        grads, metrics = gradients(self.loss, state.params, batch, rng)
        return state.update(grads, self._optimizer), metrics
