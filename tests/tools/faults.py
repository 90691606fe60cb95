"""Faults of a run directory: damaged files, a full disk, a process that is killed.

Each function makes one fault, so that tests and tables of faults can repeat it.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
from smoke import ROOT

from training.log import read_rows

# Fields of a row of the log that are times.
TIMES = {"seconds", "steps_per_second", "tokens_per_second", "waiting"}


def untimed_rows(workdir):
    """The rows of a run's log without times."""
    return [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in read_rows(workdir / "metrics.jsonl")
    ]


def files(folder):
    """Names of the files in a folder, in order."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in paths)


DAMAGE = "bit", "truncated", "deleted", "folder"


def damage(kind, path, seed=0):
    """Damages a file in one of the ways of `DAMAGE`; the seed chooses the bit."""
    content = bytearray(path.read_bytes())
    path.unlink()
    if kind == "bit":  # flipped; an empty file gets a byte
        content, rng = content or bytearray(1), np.random.default_rng(seed)
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(content)
    elif kind == "truncated":
        path.write_bytes(content[:-1])
    elif kind == "folder":
        path.mkdir()


def damaged_copy(workdir, target, kind, name, seed=0):
    """Copies a run directory to `target` and damages one of the copied files."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(workdir, target)
    damage(kind, target / name, seed)
    return target


def _environment():
    path = f"{ROOT}:{ROOT / 'tests'}"
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}


def start(*command):
    """Starts a Python program of this project; returns its process."""
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def halted(event, number, marker, *flags):
    """Starts a training that halts at an event (see `halting`); returns its process."""
    process = start("tests/tools/halting.py", event, str(number), marker, *flags)
    while not marker.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    return process


def kill(process):
    """Kills a process with SIGKILL."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def can_mount():
    """Returns whether this user may mount a small disk of their own."""
    command = [*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


_NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def on_small_disk(folder, kib, *commands):
    """Runs commands one after another with a disk of a given size at `folder`.

    Args:
        folder: the folder, which is empty again at the end.
        kib: size of the disk in KiB.
        *commands: lists of words, or lines for the shell.

    Returns:
        The exit status of each command, and their output and errors together.
    """
    lines = [c if isinstance(c, str) else shlex.join(map(str, c)) for c in commands]
    script = f"mount -t tmpfs -o size={kib}k tmpfs {shlex.quote(str(folder))} || exit 9"
    script += "".join(f"\n{line}\necho status $?" for line in lines)
    process = subprocess.run(
        [*_NAMESPACE, "sh", "-c", script],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=540,
    )
    output = process.stdout.splitlines()
    states = [int(x.split()[1]) for x in output if x.startswith("status ")]
    return states, [line for line in output if not line.startswith("status ")]
