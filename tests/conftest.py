"""Fixtures that several test modules share, and what holds for every test.

The default tests work without the network: they see an empty cache folder, which all
workers and the commands that tests start have in common, and pip finds no package.
Tests marked `network` see the user's own cache folder.
"""

import gc
import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def pytest_configure(config):
    """Sets the environment of the default tests; workers inherit it."""
    if "ATTENTION_TEST_DATA" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="attention-")
        config.add_cleanup(folder.cleanup)
        os.environ["ATTENTION_TEST_DATA"] = folder.name
        os.environ["ATTENTION_USER_DATA"] = os.environ.get("ATTENTION_DATA", "")
    os.environ["ATTENTION_DATA"] = os.environ["ATTENTION_TEST_DATA"]
    os.environ["PIP_NO_INDEX"] = "true"


@pytest.fixture(autouse=True)
def _network(request, monkeypatch):
    """Gives tests marked `network` the environment of the user."""
    if request.node.get_closest_marker("network"):
        monkeypatch.setenv("ATTENTION_DATA", os.environ["ATTENTION_USER_DATA"])
        monkeypatch.delenv("PIP_NO_INDEX")


@pytest.fixture(autouse=True, scope="module")
def _compiled_programs():
    """Drops compiled programs after each module: together they take gigabytes."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module")
def quick_compilation():
    """Compiles with few optimizations: for large programs that run for a moment."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def x64():
    """Runs the test in float64, where it meets loops and finite differences."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def draw():
    """Standard normal arrays by shape, in the default float dtype."""
    rng = np.random.default_rng(0)
    return lambda *shape: jnp.asarray(rng.standard_normal(shape))
