"""Runs of the `smoke` variants, made once for all tests that look at them."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def call(*command, stdin="", env=None, reads=None):
    """Runs an entry point; returns the finished process with its texts.

    It compiles without much optimization: what it compiles runs for a second.

    Args:
        *command: the entry point and its flags.
        stdin: its standard input.
        env: its environment; by default that of the tests.
        reads: a file that gets the fields of the config that are read, see `tracing`.
    """
    tracing = ["tests/tracing.py", str(reads)] if reads else []
    env = {**(env or os.environ), "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
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
    """The run directory of `configs/<config>.py:smoke`, trained.

    Beside it, in `reads`, are the fields of the config that training has read.
    """
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    workdir = folder / config
    done = call(
        "train.py",
        f"--config=configs/{config}.py:smoke",
        f"--workdir={workdir}",
        "--tune_memory=false",
        reads=folder / "reads",
    )
    assert done.returncode == 0, done.stderr
    return workdir
