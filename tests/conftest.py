"""Environment of all tests, and fixtures that several test modules share.

The default tests do not use the network: pip finds no package, and the cache folder is
empty at first, shared by all workers and by the commands that tests run. Tests marked
`network` use the user's cache folder.

Most tests compile many small programs that run once, so all tests and their commands
compile with few of XLA's optimizations, which takes less than half as long;
`JAX_DISABLE_MOST_OPTIMIZATIONS=false XLA_FLAGS= make test` runs them with all. Compiled
programs are kept in .pytest_cache/xla, which all workers, their commands and later
calls share.
"""

import gc
import os
import shutil
import signal
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from smoke import QUICK_COMPILATION, ROOT

COMPILED = ROOT / ".pytest_cache/xla"
# Most programs are small; by default jax keeps those that compile for a second.
CACHE = {
    "jax_compilation_cache_dir": str(COMPILED),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def pytest_configure(config):
    """Sets the environment of the default tests; workers inherit it."""
    # A shell starts a background job with Ctrl-C ignored, which commands would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "ATTENTION_TEST_DATA" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="attention-")
        config.add_cleanup(folder.cleanup)
        os.environ["ATTENTION_TEST_DATA"] = folder.name
        os.environ["ATTENTION_USER_DATA"] = os.environ.get("ATTENTION_DATA", "")
        if sum(path.stat().st_size for path in COMPILED.glob("*")) > 2**31:
            shutil.rmtree(COMPILED, ignore_errors=True)
    os.environ["ATTENTION_DATA"] = os.environ["ATTENTION_TEST_DATA"]
    os.environ["PIP_NO_INDEX"] = "true"
    for name, value in CACHE.items():
        value = os.environ.setdefault(name.upper(), str(value))
        jax.config.update(name, type(CACHE[name])(value))  # jax is imported
    for name, value in QUICK_COMPILATION.items():
        os.environ.setdefault(name, value)
    quick = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "true"
    jax.config.update("jax_disable_most_optimizations", quick)  # jax is imported


def pytest_collection_finish():
    """Collects garbage seldom, and not in modules and tests: jax makes much of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(autouse=True)
def _network(request, monkeypatch):
    """Restores the user's environment for tests marked `network`."""
    if request.node.get_closest_marker("network"):
        monkeypatch.setenv("ATTENTION_DATA", os.environ["ATTENTION_USER_DATA"])
        monkeypatch.delenv("PIP_NO_INDEX")


@pytest.fixture(autouse=True, scope="module")
def _compiled_programs():
    """Drops compiled programs after each module; together they take gigabytes."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def x64():
    """Runs the test in float64, for comparison with loops and finite differences."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def draw():
    """Function draw(*shape) for standard normal arrays of the default float dtype."""
    rng = np.random.default_rng(0)
    return lambda *shape: jnp.asarray(rng.standard_normal(shape))
