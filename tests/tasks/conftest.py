"""Fixtures of tests of a task, whose module has `get_config`."""

import jax
import pytest
from states import task_of


@pytest.fixture(scope="module")
def task(request, tmp_path_factory):
    """The task of the smoke variant."""
    return task_of(request.module.get_config("smoke"), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def state(task):
    """Its state before the first step."""
    return jax.jit(task.objective.init)(jax.random.key(0))
