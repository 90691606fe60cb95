"""Training state, and exact gradients of a mean over micro-batches and devices."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from base.errors import UserError
from training import parallel, sharding

# Metrics by name, and the settings they were computed with, such as signatures.
Scores = dict[str, Any]
# Metrics of a step: {name: (sum, count)}. The log shows sum / count over the steps
# since its last row; the metric `tokens` is shown as tokens per second.
Metrics = dict[str, tuple[jax.Array, jax.Array]]

SKIPPED = "skipped"  # metric: number of updates that were left out; its count is 0

Batch = dict[str, jax.Array]
# (sum of the losses, (count, {name: (sum, count)}))
LossResult = tuple[jax.Array, tuple[jax.Array, Metrics]]
Loss = Callable[..., LossResult]  # (params, batch, rng) -> LossResult


@flax.struct.dataclass
class TrainState:
    """Training state; everything that a checkpoint contains.

    Attributes:
        step: int32, number of steps done.
        params: parameters of the model.
        opt_state: state of the optimizer.
        extra: pytree of other state of the objective, such as batch statistics, moving
            averages, a baseline, or recurrent state carried between batches.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    extra: Any = None

    @classmethod
    def create(
        cls, params: Any, optimizer: optax.GradientTransformation, extra: Any = None
    ) -> "TrainState":
        """Returns the state before the first step."""
        return cls(jnp.zeros((), jnp.int32), params, optimizer.init(params), extra)

    def update(
        self, gradients: Any, optimizer: optax.GradientTransformation
    ) -> "TrainState":
        """Returns the state after one step of `optimizer` along `gradients`."""
        updates, opt_state = optimizer.update(gradients, self.opt_state, self.params)
        params = optax.apply_updates(self.params, updates)
        return dataclasses.replace(
            self, step=self.step + 1, params=params, opt_state=opt_state
        )


def all_finite(tree: Any) -> jax.Array:
    """Returns whether all numbers of a pytree are finite."""
    numbers = (x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact))
    return jnp.stack([jnp.isfinite(x).all() for x in numbers]).all()


def skip_non_finite(
    step: Callable[..., tuple[TrainState, Metrics]],
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Returns a training step that leaves out updates that are not finite.

    If a metric, or a number in the new state, is not finite, only the step count of the
    state changes: so the next step has other random numbers. The metrics of the step
    are then 0 of 0, and "skipped" is 1 instead of 0.

    Args:
        step: `step` of an objective.
    """

    def guarded(
        state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        new, metrics = step(state, batch, rng)
        old = dataclasses.replace(state, step=new.step)
        keeps = all_finite((new, metrics))
        result = jax.tree.map(lambda a, b: jnp.where(keeps, a, b), new, old)
        metrics = jax.tree.map(
            lambda x: jnp.where(keeps, x, jnp.zeros_like(x)), metrics
        )
        skipped = 1 - keeps.astype(jnp.float32)
        return result, metrics | {SKIPPED: (skipped, jnp.zeros(()))}

    return guarded


def gradients(
    loss: Loss,
    params: Any,
    batch: Any,
    rng: jax.Array,
    accumulate: int = 1,
) -> tuple[Any, Metrics]:
    """Returns the gradients of sum / count over the whole batch, and the metrics.

    Sums and counts are added over micro-batches and devices before the division, so the
    result does not depend on how the batch is split.

    Args:
        loss: `loss(params, batch, rng) -> (sum, (count, {name: (sum, count)}))`.
        params: parameters to differentiate by.
        batch: pytree of arrays with the batch on the first axis.
        rng: a PRNG key for this step; it is split over micro-batches.
        accumulate: number of micro-batches; divides the batch size per device.

    Returns:
        Gradients like `params`, and `{"loss": (sum, count), **metrics}`.

    Raises:
        UserError: if `accumulate` does not divide the batch size per device.
    """

    def collected_loss(params, batch, rng):
        return loss(sharding.all_gather(params), batch, rng)

    differentiate = jax.value_and_grad(collected_loss, has_aux=True)
    if accumulate == 1:
        (value, (count, metrics)), grads = differentiate(params, batch, rng)
        sums = value, count, metrics, grads
    else:

        def micro(totals, part):
            (value, (count, metrics)), grads = differentiate(params, *part)
            return jax.tree.map(jnp.add, totals, (value, count, metrics, grads)), None

        parts = jax.tree.map(lambda x: _micro_batches(x, accumulate), batch)
        parts = parts, jax.random.split(rng, accumulate)
        first = jax.tree.map(lambda x: x[0], parts)
        (value, (count, metrics)), grads = jax.eval_shape(differentiate, params, *first)
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), (value, count, metrics, grads)
        )
        sums, _ = jax.lax.scan(micro, zeros, parts)
    value, count, metrics, grads = parallel.psum(sums)
    scale = 1 / jnp.maximum(count, 1)
    grads = jax.tree.map(lambda g: (g * scale).astype(g.dtype), grads)
    return grads, {"loss": (value, count), **metrics}


def _micro_batches(x: jax.Array, parts: int) -> jax.Array:
    # Micro-batch i takes examples i, i + parts, ..., so examples stay on their device.
    if x.shape[0] % parts:
        raise UserError(
            f"config.optimizer.accumulate is {parts}: must divide {x.shape[0]}, the "
            "batch size per device (see config.data.batch_size_multiple)"
        )
    return x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1)
