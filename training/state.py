"""The state of a training run, its optimizer, and exact gradients of sums."""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from errors import UserError
from training import parallel
from training.task import Metrics

# loss(params, batch, rng) -> (sum of the losses, (count, {name: (sum, count)}))
Loss = Callable[..., tuple[jax.Array, tuple[jax.Array, Metrics]]]


@flax.struct.dataclass
class TrainState:
    """Everything that a checkpoint holds.

    Attributes:
        step: int32, the number of steps done.
        params: of the model.
        opt_state: of the optimizer.
        baseline: moving mean of the reward, where a step estimates gradients by
            REINFORCE; None elsewhere.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    baseline: jax.Array | None = None

    @classmethod
    def create(
        cls, params: Any, optimizer: optax.GradientTransformation
    ) -> "TrainState":
        """Returns the state before the first step."""
        return cls(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    def update(
        self, gradients: Any, optimizer: optax.GradientTransformation
    ) -> "TrainState":
        """Returns the state after one step of `optimizer` along `gradients`."""
        updates, opt_state = optimizer.update(gradients, self.opt_state, self.params)
        params = optax.apply_updates(self.params, updates)
        return self.replace(step=self.step + 1, params=params, opt_state=opt_state)


def make_schedule(
    config: ConfigDict, width: int | None = None, name: str = "optimizer"
) -> optax.Schedule:
    """Returns the learning rate as a function of the number of steps done.

    `noam` is Vaswani et al. (2017), eq. 3, times `learning_rate`:
    width^-0.5 min(s^-0.5, s warmup^-1.5), with s counted from 1. `constant` and
    `warmup_cosine` rise linearly to `learning_rate` in `warmup` steps; the latter then
    falls to 0 at step `decay_steps`.

    Args:
        config: `config.optimizer`, with `schedule`, `learning_rate`, `warmup`, and for
            `warmup_cosine` also `decay_steps`.
        width: the model's width, for `noam`.
        name: of this part of the config, for what is told of it.

    Raises:
        UserError: for an unknown schedule or numbers that do not fit it.
    """
    kind, peak, warmup = config.schedule, config.learning_rate, config.warmup
    if peak < 0:
        raise UserError(f"config.{name}.learning_rate is {peak}: must be at least 0")
    if kind == "noam":
        if width is None or warmup < 1:
            raise UserError(
                f"config.{name}.schedule=noam needs a model's width (got {width}) "
                f"and config.{name}.warmup of at least 1 (got {warmup})"
            )

        def noam(count):
            step = jnp.asarray(count, jnp.float32) + 1
            return peak * width**-0.5 * jnp.minimum(step**-0.5, step * warmup**-1.5)

        return noam
    if kind == "constant":
        return lambda count: peak * jnp.minimum(1.0, (count + 1) / max(warmup, 1))
    if kind == "warmup_cosine":
        if config.decay_steps <= warmup:
            raise UserError(
                f"config.{name}.decay_steps={config.decay_steps} must be greater "
                f"than config.{name}.warmup={warmup}"
            )
        cosine = optax.warmup_cosine_decay_schedule(
            0.0, peak, warmup, config.decay_steps
        )
        return lambda count: cosine(count + 1)
    raise UserError(
        f"config.{name}.schedule={kind} is unknown: "
        "take noam, constant or warmup_cosine"
    )


def make_optimizer(
    config: ConfigDict, *, width: int | None = None, name: str = "optimizer"
) -> optax.GradientTransformation:
    """Returns Adam with a schedule, weight decay and clipping.

    Args:
        config: `config.optimizer`, with what `make_schedule` reads and `b1`, `b2`,
            `eps`, `weight_decay` (decoupled, on matrices only; 0.0 for none) and `clip`
            (largest global norm of the gradients; 0.0 for none).
        width: the model's width, for the `noam` schedule.
        name: of this part of the config, for what is told of it.

    Raises:
        UserError: for an unknown schedule or numbers that do not fit it.
    """
    parts = [optax.clip_by_global_norm(config.clip)] if config.clip else []
    parts.append(optax.scale_by_adam(config.b1, config.b2, config.eps))
    if config.weight_decay:
        parts.append(optax.add_decayed_weights(config.weight_decay, _matrices))
    parts.append(optax.scale_by_learning_rate(make_schedule(config, width, name)))
    return optax.chain(*parts)


def gradients(
    loss: Loss, params: Any, batch: Any, rng: jax.Array, accumulate: int = 1
) -> tuple[Any, Metrics]:
    """Returns the gradients of sum / count over the whole batch, and the metrics.

    Sums and counts are added over micro-batches and devices before they are divided,
    so the result does not depend on how the batch was cut.

    Args:
        loss: `loss(params, batch, rng) -> (sum, (count, {name: (sum, count)}))`.
        params: what to differentiate by.
        batch: pytree of arrays with rows on the first axis.
        rng: of this step; each micro-batch gets its own part.
        accumulate: number of micro-batches, which divides the rows on each device.

    Returns:
        Gradients like `params`, and `{"loss": (sum, count), **metrics}`.

    Raises:
        UserError: if `accumulate` does not divide the rows.
    """
    differentiate = jax.value_and_grad(loss, has_aux=True)
    if accumulate == 1:
        (value, (count, metrics)), grads = differentiate(params, batch, rng)
        sums = value, count, metrics, grads
    else:

        def micro(totals, part):
            (value, (count, metrics)), grads = differentiate(params, *part)
            return jax.tree.map(jnp.add, totals, (value, count, metrics, grads)), None

        parts = jax.tree.map(lambda x: _cut(x, accumulate), batch)
        parts = parts, jax.random.split(rng, accumulate)
        first = jax.tree.map(lambda x: x[0], parts)
        (value, (count, metrics)), grads = jax.eval_shape(differentiate, params, *first)
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), (value, count, metrics, grads)
        )
        sums, _ = jax.lax.scan(micro, zeros, parts)
    value, count, metrics, grads = parallel.total(sums)
    scale = 1 / jnp.maximum(count, 1)
    grads = jax.tree.map(lambda g: (g * scale).astype(g.dtype), grads)
    return grads, {"loss": (value, count), **metrics}


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda p: p.ndim > 1, params)


def _cut(x: jax.Array, parts: int) -> jax.Array:
    # Micro-batch a takes rows a, a + parts, ...: rows stay on the device they are on.
    if x.shape[0] % parts:
        raise UserError(
            f"config.optimizer.accumulate={parts} does not divide the {x.shape[0]} "
            "rows of a batch on a device (see config.data.rows_multiple)"
        )
    return x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1)
