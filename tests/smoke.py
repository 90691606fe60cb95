"""Entry points as processes, and runs of the `smoke` variants shared by tests."""

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import in_process
from in_process import ROOT
from tracing import traced

# With these variables XLA optimizes little, and compiles in less than half the time.
QUICK_COMPILATION = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
if metadata.version("jaxlib").startswith(("0.10.", "0.11.")):  # later versions lack it
    QUICK_COMPILATION["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"
# All of XLA's optimizations, as in a user's runs.
FULL_COMPILATION = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "XLA_FLAGS": ""}


def copy_project(folder, names=(), suffixes=(".py",)):
    """Copies the files of the root with a suffix, the packages, and folders by name."""
    ignored = shutil.ignore_patterns("__pycache__", "*.json", "*.tar.gz")
    for path in ROOT.iterdir():
        if path.suffix in suffixes:
            shutil.copy(path, folder)
        elif (path / "__init__.py").exists() or path.name in names:
            shutil.copytree(path, folder / path.name, ignore=ignored)


def call(*command, stdin="", env=None, folder=ROOT):
    """Runs an entry point; returns the completed process with its output as text.

    Args:
        *command: the entry point and its flags.
        stdin: its standard input.
        env: its environment; by default that of the tests.
        folder: the project, or a copy of it.
    """
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        input=stdin,
        env=(env or os.environ) | {"PYTHONPATH": str(folder)},
        capture_output=True,
        encoding="utf-8",
        timeout=540,
    )


@functools.cache
def run(config):
    """Trains `configs/<config>.py:smoke` once for all workers; returns its folder.

    The file `trained` next to it lists the config fields that training read. Only the
    tests of all configs write into the folder; others copy it.
    """
    folder = Path(os.environ["ATTENTION_TEST_DATA"]) / "smoke" / config
    folder.mkdir(parents=True, exist_ok=True)
    workdir, trained = folder / config, folder / "trained"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not trained.exists():
            with traced() as trace:
                result = in_process.call(
                    "train.py",
                    f"--config={ROOT}/configs/{config}.py:smoke",
                    f"--workdir={workdir}",
                    "--tune_memory=false",
                )
            assert result.status == 0, result.errors
            trained.write_text("\n".join(trace.fields))
    return workdir
