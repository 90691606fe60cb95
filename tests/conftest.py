"""Fixtures that several test modules share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


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
