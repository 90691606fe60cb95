"""Last states of runs, and their comparison."""

import jax
import numpy as np

from training import checkpoints
from training.task import create


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
