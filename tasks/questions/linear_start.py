"""Training of several models side by side, with a linear start.

Sukhbaatar et al. (2015), section 4.2: the softmax of each hop is left out at first.
When the validation loss stops decreasing, the softmax is restored and training goes on
with a new optimizer state, at the initial learning rate.

Axes: P models, the first axis of every parameter.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from training.objective import Loss, Supervised
from training.state import Batch, Metrics, Scores, TrainState


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
        axis_name: str | None = None,
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
            axis_name: see `training.parallel.total`.
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
            axis_name=axis_name,
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
