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


def call(*command, stdin="", env=None):
    """Runs an entry point; returns the finished process with its texts.

    It compiles without much optimization: what it compiles runs for a second.
    """
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        input=stdin,
        env={**(env or os.environ), "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"},
        capture_output=True,
        encoding="utf-8",
        timeout=540,
    )


@functools.cache
def run(config):
    """The run directory of `configs/<config>.py:smoke`, trained."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    workdir = folder / config
    done = call(
        "train.py",
        f"--config=configs/{config}.py:smoke",
        f"--workdir={workdir}",
        "--tune_memory=false",
    )
    assert done.returncode == 0, done.stderr
    return workdir
