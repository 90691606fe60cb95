"""Supervised objectives of tasks."""

from typing import Any

from training.objective import Supervised
from training.optimizers import make_optimizer


def supervised(
    task: Any,
    *blank: Any,
    kind: type[Supervised] = Supervised,
    **options: Any,
) -> Supervised:
    """Returns the objective of a task with one model and one optimizer.

    Args:
        task: a task with `config`, `model` and `loss`.
        *blank: inputs from which the model initialises its parameters.
        kind: class of the objective.
        **options: further options of it, such as `extra`.
    """

    def init_params(rng):
        return task.model.init(rng, *blank, train=False)["params"]

    optimizer = make_optimizer(task.config)
    return kind(init_params, task.loss, optimizer, **options)
