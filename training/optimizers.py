"""Optimizers and learning-rate schedules by name, from a group of the config.

A group such as `config.optimizer` has

*   `name`, a key of `OPTIMIZERS`, and the keyword arguments of the optimizer;
*   `schedule`, a key of `SCHEDULES`, and the keyword arguments of the schedule;
*   `scale`, a factor of the gradients, applied before clipping;
*   `clip`, the bound on the scaled gradients, 0.0 for none;
*   `clip_by`, the kind of clipping, a key of `CLIPPING`.

`config_group` makes such a group, with the defaults of the papers; `adam`, `sgd`, ...
are its forms for one optimizer:

    config.optimizer = adam(1e-3, schedule="warmup_cosine", warmup=9, decay_steps=99)

Losses here are means over tokens (or bits, or pointers); many papers sum over a
sequence and average over the batch. Adam is invariant to that factor, up to eps; SGD,
Adadelta, RMSProp and clipping are not. With the mean sequence length as `scale`, a
paper's learning rate, clipping bound and eps can be used as printed.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from ml_collections import ConfigDict

from base import ranges
from base.errors import FieldError, UserError
from base.ranges import FRACTION, POSITIVE, SIZE, STEPS, WEIGHT, Accepted, Choice, Range

_FACTOR = Range(0, 1, open_min=True)
_TABLES = ("embedding", "positions", "output")  # matrices with one row per symbol
_UPDATES = dataclasses.replace(STEPS, min=0)  # numbers of steps, 0 for none

Transformations = list[optax.GradientTransformation]


def _noam(
    learning_rate: float, width: int, *, warmup: Annotated[int, _UPDATES]
) -> optax.Schedule:
    """Vaswani et al. (2017), eq. 3, times `learning_rate`; optax has no such schedule.

    learning_rate width^-0.5 min(s^-0.5, s warmup^-1.5), with the step s from 1.

    Args:
        learning_rate: a factor.
        width: width of the model.
        warmup: steps until the maximum of the learning rate.
    """

    def schedule(count):
        step = jnp.asarray(count, jnp.float32) + 1
        scale = jnp.minimum(step**-0.5, step * warmup**-1.5)
        return learning_rate * width**-0.5 * scale

    return schedule


def _constant(
    learning_rate: float, *, warmup: Annotated[int, _UPDATES] = 0
) -> optax.Schedule:
    """Linear warmup over `warmup` steps, then constant.

    `optax.warmup_constant_schedule` rounds differently: it computes the first rates as
    differences of larger numbers.

    Args:
        learning_rate: peak rate.
        warmup: steps until the maximum of the learning rate.
    """
    return lambda count: learning_rate * jnp.minimum(1.0, (count + 1) / max(warmup, 1))


def _warmup_cosine(
    learning_rate: float,
    *,
    warmup: Annotated[int, _UPDATES],
    decay_steps: Annotated[int, STEPS],
) -> optax.Schedule:
    """Linear warmup over `warmup` steps, then cosine decay to 0 at `decay_steps`.

    Args:
        learning_rate: peak rate.
        warmup: steps until the maximum of the learning rate.
        decay_steps: step at which the learning rate is 0.
    """
    cosine = optax.warmup_cosine_decay_schedule(0.0, learning_rate, warmup, decay_steps)
    return lambda count: cosine(count + 1)  # optax's rate at step 0 is 0


def _exponential_decay(
    learning_rate: float,
    *,
    decay_begin: Annotated[int, _UPDATES],
    decay_every: Annotated[int, STEPS],
    decay_factor: Annotated[float, _FACTOR],
) -> optax.Schedule:
    """Exponential decay from `decay_begin`: `decay_factor` per `decay_every` steps.

    Args:
        learning_rate: peak rate.
        decay_begin: first step of the decay.
        decay_every: steps in which the rate decays by `decay_factor`.
        decay_factor: factor by which the learning rate decays.
    """
    return optax.exponential_decay(
        learning_rate, decay_every, decay_factor, transition_begin=decay_begin
    )


def _step_decay(
    learning_rate: float,
    *,
    decay_begin: Annotated[int, _UPDATES],
    decay_every: Annotated[int, STEPS],
    decay_factor: Annotated[float, _FACTOR],
) -> optax.Schedule:
    """Decay by `decay_factor` at `decay_begin` and every `decay_every` steps after it.

    Sutskever et al. (2014), section 3.4, and Luong et al. (2015), section 4.1, halve
    the rate in this way.

    Args:
        learning_rate: peak rate.
        decay_begin: first step of the decay.
        decay_every: steps between decays by `decay_factor`.
        decay_factor: factor by which the learning rate decays.
    """
    decaying = optax.exponential_decay(
        learning_rate * decay_factor, decay_every, decay_factor, staircase=True
    )
    constant = optax.constant_schedule(learning_rate)
    return optax.join_schedules([constant, decaying], [decay_begin])


def _adam(
    rate: optax.Schedule,
    *,
    b1: Annotated[float, FRACTION] = 0.9,
    b2: Annotated[float, FRACTION] = 0.999,
    eps: Annotated[float, POSITIVE] = 1e-8,
    weight_decay: Annotated[float, WEIGHT] = 0.0,
) -> Transformations:
    """Adam, Kingma and Ba (2015), algorithm 1; AdamW with `weight_decay`.

    As in Loshchilov and Hutter (2019), algorithm 2, the weight decay is decoupled and
    multiplied by the learning rate. It applies to matrices only.

    Args:
        rate: schedule of the learning rate.
        b1: decay of the moving mean of the gradients.
        b2: decay of the moving mean of the squared gradients.
        eps: added to the root of the mean square.
        weight_decay: factor of the weights in the step, 0 for none.
    """
    parts = [optax.scale_by_adam(b1, b2, eps)]
    if weight_decay:
        parts.append(optax.add_decayed_weights(weight_decay, _matrices))
    return [*parts, optax.scale_by_learning_rate(rate)]


def _sgd(
    rate: optax.Schedule, *, momentum: Annotated[float, FRACTION] = 0.0
) -> Transformations:
    """Gradient descent; with `momentum` above 0, Polyak (1964).

    Args:
        rate: schedule of the learning rate.
        momentum: decay of the sum of the gradients, 0 for none.
    """
    return [optax.sgd(rate, momentum or None)]


def _rmsprop(
    rate: optax.Schedule,
    *,
    decay: Annotated[float, FRACTION] = 0.95,
    eps: Annotated[float, POSITIVE] = 1e-4,
    centered: bool = True,
    momentum: Annotated[float, FRACTION] = 0.9,
) -> Transformations:
    """RMSProp; centered and with momentum: Graves (2013), eqs. 38 to 45.

    `eps` is added to the variance, under the root.

    Args:
        rate: schedule of the learning rate.
        decay: decay of the means of gradients and of their squares.
        eps: added to the variance.
        centered: whether the squared mean is subtracted.
        momentum: decay of the sum of the steps, 0 for none.
    """
    rmsprop = optax.rmsprop(
        rate, decay=decay, eps=eps, centered=centered, momentum=momentum or None
    )
    return [rmsprop]


def _adadelta(
    rate: optax.Schedule,
    *,
    rho: Annotated[float, FRACTION] = 0.95,
    eps: Annotated[float, POSITIVE] = 1e-6,
) -> Transformations:
    """Adadelta, Zeiler (2012), algorithm 1, with a learning rate of 1.0.

    Args:
        rate: schedule of the learning rate.
        rho: decay of the mean squares.
        eps: added to the mean squares.
    """
    return [optax.adadelta(rate, rho=rho, eps=eps)]


def _adafactor(
    rate: optax.Schedule,
    *,
    decay_rate: Annotated[float, _FACTOR] = 0.8,
    clipping_threshold: Annotated[float, POSITIVE] = 1.0,
) -> Transformations:
    """Adafactor, Shazeer and Stern (2018), algorithms 4 and 5, without momentum.

    Args:
        rate: schedule of the learning rate.
        decay_rate: exponent of the decay of the mean squares.
        clipping_threshold: bound on the root mean square of a step.
    """
    adafactor = optax.adafactor(
        rate, decay_rate=decay_rate, clipping_threshold=clipping_threshold
    )
    return [adafactor]


def _muon(
    rate: optax.Schedule,
    *,
    beta: Annotated[float, FRACTION] = 0.95,
    iterations: Annotated[int, STEPS] = 5,
    b1: Annotated[float, FRACTION] = 0.9,
    b2: Annotated[float, FRACTION] = 0.999,
    eps: Annotated[float, POSITIVE] = 1e-8,
) -> Transformations:
    """Muon, Jordan et al. (2024), scaled as in Liu et al. (2025), section 2.2.

    The step is the momentum of each matrix, orthogonalised by Newton-Schulz iterations.
    Adam with Nesterov momentum (Dozat, 2016) updates the rest: vectors, arrays of three
    axes, tables of embeddings.

    Args:
        rate: schedule of the learning rate.
        beta: decay of the momentum.
        iterations: number of Newton-Schulz iterations.
        b1: decay of the moving mean of the gradients, in Adam.
        b2: decay of the moving mean of the squared gradients, in Adam.
        eps: added to the root of the mean square, in Adam.
    """
    muon = optax.contrib.muon(
        rate,
        ns_steps=iterations,
        beta=beta,
        eps=eps,
        adam_b1=b1,
        adam_b2=b2,
        muon_weight_dimension_numbers=_orthogonal,
        consistent_rms=0.2,  # as large as Adam's updates
    )
    return [muon]


def _orthogonal(params: Any) -> Any:
    """Marks the parameters that Muon orthogonalises; None for the others."""

    def mark(path, parameter):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        matrix = parameter.ndim == 2 and not any(table in name for table in _TABLES)
        return optax.contrib.MuonDimensionNumbers() if matrix else None

    return jax.tree_util.tree_map_with_path(mark, params)


def _clip_by_matrix_norm(bound: float) -> optax.GradientTransformation:
    """Clips the gradient of each parameter to a Frobenius norm of at most `bound`.

    For memory networks, whose authors' code clips the spectral norm of each matrix.
    """

    def clip(gradient, _):
        norm = jnp.linalg.norm(gradient.ravel())
        return gradient * (bound / jnp.maximum(norm, bound)).astype(gradient.dtype)

    return optax.stateless_with_tree_map(clip)


def _matrices(params: Any) -> Any:
    return jax.tree.map(lambda p: p.ndim > 1, params)


SCHEDULES: dict[str, Callable[..., optax.Schedule]] = {
    "noam": _noam,
    "constant": _constant,
    "warmup_cosine": _warmup_cosine,
    "step_decay": _step_decay,
    "exponential_decay": _exponential_decay,
}
OPTIMIZERS: dict[str, Callable[..., Transformations]] = {
    "adam": _adam,
    "adamw": _adam,
    "sgd": _sgd,
    "rmsprop": _rmsprop,
    "adadelta": _adadelta,
    "adafactor": _adafactor,
    "muon": _muon,
}
CLIPPING: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "norm": optax.clip_by_global_norm,
    "value": optax.clip,
    "matrix": _clip_by_matrix_norm,
}
# Effects of fields above `config.train_steps`.
_UNFINISHED = {
    "warmup": "the learning rate does not reach its peak",
    "decay_steps": "the learning rate does not reach 0",
}
# Accepted values of the fields of a group, whether or not its optimizer reads them.
RANGES: dict[str, Accepted] = {
    "name": Choice(OPTIMIZERS),
    "schedule": Choice(SCHEDULES),
    "clip_by": Choice(CLIPPING),
    "learning_rate": WEIGHT,
    "scale": POSITIVE,
    "clip": WEIGHT,
    "accumulate": SIZE,
}
for _make in (*OPTIMIZERS.values(), *SCHEDULES.values()):
    RANGES |= ranges.declared(_make)


def config_group(
    name: str,
    learning_rate: float = 1.0,
    *,
    schedule: str = "constant",
    scale: float = 1.0,
    clip: float = 0.0,
    clip_by: str = "norm",
    **fields: Any,
) -> ConfigDict:
    """Returns a config group; see the module docstring.

    Args:
        name: optimizer.
        learning_rate: peak learning rate; a factor of it for "noam".
        schedule: schedule of the learning rate.
        scale: factor of the gradients: the mean sequence length if the paper's loss
            sums over a sequence.
        clip: bound on the scaled gradients; 0 for none.
        clip_by: bounded quantity: the norm of all gradients, each value, or the norm of
            each matrix.
        **fields: keyword arguments of the optimizer and the schedule.
    """
    shared = {"schedule": schedule, "scale": scale, "clip": clip, "clip_by": clip_by}
    makers = OPTIMIZERS[name], SCHEDULES[schedule]
    defaults = {k: x for make in makers for k, x in (make.__kwdefaults__ or {}).items()}
    rate = {"name": name, "learning_rate": learning_rate}
    return ConfigDict(rate | shared | defaults | fields)


adam = functools.partial(config_group, "adam")
adamw = functools.partial(config_group, "adamw")
sgd = functools.partial(config_group, "sgd")
rmsprop = functools.partial(config_group, "rmsprop")
adadelta = functools.partial(config_group, "adadelta")
adafactor = functools.partial(config_group, "adafactor")
muon = functools.partial(config_group, "muon")


def groups(config: ConfigDict) -> Iterator[tuple[str, ConfigDict]]:
    """Yields the names and groups of the optimizers of a config."""
    for name, group in config.items():
        if isinstance(group, ConfigDict) and "schedule" in group:
            yield name, group


def check(config: ConfigDict) -> None:
    """Raises a UserError for an unknown or unaccepted field of an optimizer."""
    for name, group in groups(config):
        for field in group:
            if field not in RANGES:
                raise UserError(f"config.{name}.{field} is unknown: remove it")
        ranges.check(RANGES, group, f"config.{name}.")


def warnings(config: ConfigDict) -> list[str]:
    """Returns a line for each schedule or phase that does not fit `train_steps`."""
    lines, steps = [], config.train_steps
    for name, group in groups(config):
        for field in _fields(SCHEDULES[group.schedule]):
            if field in _UNFINISHED and group[field] > steps:
                lines.append(
                    f"config.{name}.{field} is {group[field]}, which is more than "
                    f"config.train_steps={steps}: {_UNFINISHED[field]}"
                )
                break
    loss = config.get("loss")
    for field, value in loss.items() if isinstance(loss, ConfigDict) else ():
        if field.endswith("_steps") and value >= steps:
            lines.append(
                f"config.loss.{field} is {value}, which is not less than "
                f"config.train_steps={steps}: that phase lasts until the end"
            )
    return lines


def make_schedule(config: ConfigDict, name: str = "optimizer") -> optax.Schedule:
    """Returns the learning-rate schedule of a config group.

    Args:
        config: has a group `name` that `check` accepts, whose `schedule` is a key of
            `SCHEDULES` and whose `learning_rate` is the peak rate (a factor for "noam",
            which reads `config.model.d_model`).
        name: name of the group.

    Raises:
        UserError: for a field of the group that is missing, or a schedule that reaches
            0 before `config.train_steps`.
    """
    optimizer = config[name]
    _require(optimizer, ("schedule", "learning_rate"), f"config.{name}", name)
    kind, peak = optimizer.schedule, optimizer.learning_rate
    make = SCHEDULES[kind]
    fields = _fields(make)
    _require(optimizer, fields, f"config.{name}.schedule={kind}", name)
    values = {field: optimizer[field] for field in fields}
    if kind == "noam":
        width = config.get("model", {}).get("d_model")
        if width is None:
            others = ", ".join(other for other in SCHEDULES if other != kind)
            accepted = f"one of {others}, as the model has no field d_model"
            raise FieldError(f"config.{name}.schedule", kind, accepted)
        if optimizer.warmup < 1:
            accepted = f"at least 1 for config.{name}.schedule=noam"
            raise FieldError(f"config.{name}.warmup", optimizer.warmup, accepted)
        return make(peak, width, **values)
    if kind == "warmup_cosine":
        end = optimizer.decay_steps
        if end <= optimizer.warmup:
            raise UserError(
                f"config.{name}.decay_steps is {end}: must be greater than "
                f"config.{name}.warmup={optimizer.warmup}"
            )
        if end < (steps := config.train_steps):
            flags = [f"--config.train_steps={steps}"]
            for other, group in groups(config):
                if group.schedule == kind and group.get("decay_steps", steps) < steps:
                    flags.append(f"--config.{other}.decay_steps={steps}")
            raise UserError(
                f"config.{name}.decay_steps is {end}, where the learning rate reaches "
                f"0: must be at least config.train_steps={steps}; give "
                f"{' '.join(flags)} together"
            )
    return make(peak, **values)


def make_optimizer(
    config: ConfigDict, *, name: str = "optimizer"
) -> optax.GradientTransformation:
    """Returns the optimizer of a config group, with its clipping and schedule.

    For "adam" and "adamw" it is chain(scale, clip, scale_by_adam, add_decayed_weights,
    scale_by_learning_rate). Transformations without effect are left out: `scale` of 1,
    `clip` of 0 and `weight_decay` of 0.

    Args:
        config: has a group `name`; see the module docstring.
        name: name of the group.

    Raises:
        UserError: as for `make_schedule`.
    """
    optimizer = config[name]
    _require(optimizer, ("name", "scale", "clip", "clip_by"), f"config.{name}", name)
    rate = make_schedule(config, name)
    make = OPTIMIZERS[optimizer.name]
    fields = _fields(make)
    _require(optimizer, fields, f"config.{name}.name={optimizer.name}", name)
    parts = [optax.scale(optimizer.scale)] if optimizer.scale != 1 else []
    clip = CLIPPING[optimizer.clip_by]
    if optimizer.clip:
        parts.append(clip(optimizer.clip))
    parts += make(rate, **{field: optimizer[field] for field in fields})
    return optax.chain(*parts)


def _fields(make: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the fields that an optimizer or schedule reads."""
    parameters = inspect.signature(make).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def _require(
    optimizer: ConfigDict, fields: tuple[str, ...], owner: str, name: str
) -> None:
    if missing := [field for field in fields if field not in optimizer]:
        names = ", ".join(f"config.{name}.{field}" for field in missing)
        raise UserError(
            f"{owner} needs {names}: a flag cannot add a field; set the whole group in "
            "a variant of the config with a function of training/optimizers.py"
        )
