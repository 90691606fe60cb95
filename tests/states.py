"""Tasks of configs, and states: trained ones, last ones, and their comparison."""

from pathlib import Path

import jax
import numpy as np

from training import checkpoints, configuration
from training.task import Task, create


def changed(config, fields):
    """Sets fields of a config; `group__field` is one of a group."""
    for name, value in fields.items():
        group, _, field = name.partition("__")
        (config[group] if field else config)[field or group] = value
    return config


def task_of(config, workdir=Path("unused"), **fields):
    """The task of a config with changed fields; see `changed`."""
    configuration.check(changed(config, fields), Task)
    return create(config, workdir, training=True)


def stepped(task, state, batches):
    """The state after a step on each batch, and the metrics of the last one."""
    step = jax.jit(task.objective.step)
    for number, batch in enumerate(batches):
        state, metrics = step(state, batch, jax.random.key(number))
    return state, metrics


def last_state(workdir, config):
    """Returns the state of a finished run."""
    task = create(config, workdir, training=False)
    like = jax.eval_shape(task.objective.init, jax.random.key(0))
    state = checkpoints.restore(workdir, "last", like)
    assert int(state.step) == config.train_steps
    return state


def assert_equal(left, right):
    """Checks that all leaves are equal, bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, left, right)
