"""Config groups for the optimizers and schedules of `training.optimizers`.

A variant with another optimizer replaces the whole group:

    "optimizer": sgd(1.0, warmup=0, scale=30.0, clip=5.0)

Every function also takes

*   `schedule`, a key of `training.optimizers.SCHEDULES`, and its fields: `warmup` for
    "constant" (default: 0) and "noam"; `warmup` and `decay_steps` for "warmup_cosine";
    `decay_begin`, `decay_every` and `decay_factor` for "step_decay" and
    "exponential_decay";
*   `scale`, a factor of the gradients: the mean sequence length if the paper's loss
    sums over a sequence, since losses here are means;
*   `clip`, the bound on the scaled gradients, 0 for none;
*   `clip_by`, a key of `training.optimizers.CLIPPING`.
"""

from typing import Any

from ml_collections import ConfigDict


def adam(
    learning_rate: float,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    **shared: Any,
) -> ConfigDict:
    """Adam, with the defaults of Kingma and Ba (2015), algorithm 1.

    Args:
        learning_rate: peak rate; a factor for "noam".
        b1: decay of the mean of the gradients.
        b2: decay of the mean of the squared gradients.
        eps: added to the root of the mean of the squares.
        **shared: see the module docstring.
    """
    fields = {"b1": b1, "b2": b2, "eps": eps, "weight_decay": 0.0}
    return _group("adam", learning_rate, **fields, **shared)


def adamw(
    learning_rate: float,
    *,
    weight_decay: float,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    **shared: Any,
) -> ConfigDict:
    """AdamW (Loshchilov and Hutter, 2019), with weight decay of matrices only.

    Args:
        learning_rate: peak rate; a factor for "noam".
        weight_decay: lambda of algorithm 2; each step multiplies matrices by 1 -
            learning_rate x weight_decay.
        b1: decay of the mean of the gradients.
        b2: decay of the mean of the squared gradients.
        eps: added to the root of the mean of the squares.
        **shared: see the module docstring.
    """
    fields = {"b1": b1, "b2": b2, "eps": eps, "weight_decay": weight_decay}
    return _group("adamw", learning_rate, **fields, **shared)


def sgd(learning_rate: float, *, momentum: float = 0.0, **shared: Any) -> ConfigDict:
    """Gradient descent.

    Args:
        learning_rate: peak rate.
        momentum: decay of the sum of the updates; 0 for none.
        **shared: see the module docstring.
    """
    return _group("sgd", learning_rate, momentum=momentum, **shared)


def rmsprop(
    learning_rate: float,
    *,
    decay: float = 0.95,
    eps: float = 1e-4,
    centered: bool = True,
    momentum: float = 0.9,
    **shared: Any,
) -> ConfigDict:
    """RMSProp, with the defaults of Graves (2013), eqs. 38 to 45.

    Args:
        learning_rate: peak rate; 1e-4 in the paper.
        decay: decay of the means of the gradients and of their squares.
        eps: added to the variance, under the root.
        centered: whether to divide by the standard deviation of the gradients instead
            of the root of their mean square.
        momentum: decay of the sum of the updates; 0 for none.
        **shared: see the module docstring.
    """
    fields = {"decay": decay, "eps": eps, "centered": centered, "momentum": momentum}
    return _group("rmsprop", learning_rate, **fields, **shared)


def adadelta(
    learning_rate: float = 1.0,
    *,
    rho: float = 0.95,
    eps: float = 1e-6,
    **shared: Any,
) -> ConfigDict:
    """Adadelta, with the defaults of Zeiler (2012), section 4.1.

    Args:
        learning_rate: a factor of the updates; the paper has none.
        rho: decay of the means of the squared gradients and updates.
        eps: added to both means.
        **shared: see the module docstring.
    """
    return _group("adadelta", learning_rate, rho=rho, eps=eps, **shared)


def adafactor(
    learning_rate: float,
    *,
    decay_rate: float = 0.8,
    clipping_threshold: float = 1.0,
    **shared: Any,
) -> ConfigDict:
    """Adafactor, with the defaults of Shazeer and Stern (2018), algorithm 6.

    Args:
        learning_rate: peak rate, relative to the root mean square of a parameter; 0.01
            in the paper.
        decay_rate: exponent c; at step t the mean of the squares decays by 1 - t^-c.
        clipping_threshold: maximum root mean square of an update.
        **shared: see the module docstring.
    """
    fields = {"decay_rate": decay_rate, "clipping_threshold": clipping_threshold}
    return _group("adafactor", learning_rate, **fields, **shared)


def muon(
    learning_rate: float,
    *,
    beta: float = 0.95,
    iterations: int = 5,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    **shared: Any,
) -> ConfigDict:
    """Muon (Jordan et al., 2024) for matrices of hidden layers, Adam for the rest.

    Args:
        learning_rate: peak rate of both; updates are as large as Adam's.
        beta: decay of the momentum.
        iterations: Newton-Schulz iterations; each costs as much as a forward pass of
            a few dozen tokens.
        b1: Adam's decay of the mean of the gradients.
        b2: Adam's decay of the mean of the squared gradients.
        eps: added to norms and to Adam's root of the mean of the squares.
        **shared: see the module docstring.
    """
    fields = {"beta": beta, "iterations": iterations, "b1": b1, "b2": b2, "eps": eps}
    return _group("muon", learning_rate, **fields, **shared)


def _group(
    name: str,
    learning_rate: float,
    *,
    schedule: str = "constant",
    scale: float = 1.0,
    clip: float = 0.0,
    clip_by: str = "norm",
    **fields: Any,
) -> ConfigDict:
    if schedule == "constant":
        fields = {"warmup": 0} | fields
    shared = {"schedule": schedule, "scale": scale, "clip": clip, "clip_by": clip_by}
    return ConfigDict(
        {"name": name, "learning_rate": learning_rate, **shared, **fields}
    )
