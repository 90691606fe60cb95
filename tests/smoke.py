"""Entry points as processes, and runs of the `smoke` variants shared by tests."""

import fcntl
import functools
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent

# With these variables XLA optimizes little, and compiles in less than half the time.
QUICK_COMPILATION = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
if metadata.version("jaxlib").startswith(("0.10.", "0.11.")):  # later versions lack it
    QUICK_COMPILATION["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"
# All of XLA's optimizations, as in a user's runs.
FULL_COMPILATION = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "XLA_FLAGS": ""}


def call(*command, stdin="", env=None, reads=None):
    """Runs an entry point; returns the completed process with its output as text.

    It compiles quickly, since the programs run for about a second, unless `env` has
    other values of the variables.

    Args:
        *command: the entry point and its flags.
        stdin: its standard input.
        env: its environment; by default that of the tests.
        reads: file for the names of the config fields that are read, see `tracing`.
    """
    tracing = ["tests/tracing.py", str(reads)] if reads else []
    env = {**QUICK_COMPILATION, **(env or os.environ)}
    return subprocess.run(
        [sys.executable, *tracing, *command],
        cwd=ROOT,
        input=stdin,
        env=env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=540,
    )


@functools.cache
def run(config):
    """Trains `configs/<config>.py:smoke` once for all workers; returns its folder.

    The file `reads` next to it lists the config fields that training read. Only the
    tests of all configs write into the folder; others copy it.
    """
    folder = Path(os.environ["ATTENTION_TEST_DATA"]) / "smoke" / config
    folder.mkdir(parents=True, exist_ok=True)
    workdir, trained = folder / config, folder / "trained"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not trained.exists():
            process = call(
                "train.py",
                f"--config=configs/{config}.py:smoke",
                f"--workdir={workdir}",
                "--tune_memory=false",
                reads=folder / "reads",
            )
            assert process.returncode == 0, process.stderr
            trained.touch()
    return workdir
