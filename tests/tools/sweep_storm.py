"""Kills of a sweep, of its coordinator and its runs, at random moments."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from smoke import ROOT

CONFIG = str(ROOT / "configs/kernel_regression.py:smoke")  # 6 steps, evaluated at 3, 6


def command(workdir, *flags):
    """The command of a sweep."""
    given = f"--config={CONFIG}", f"--workdir={workdir}", *flags
    return [sys.executable, "sweep.py", *given]


MAX_KILLS = 8  # of a run; after ten exits without a checkpoint, a sweep gives it up


def processes(workdir):
    """Numbers of the processes that work on runs that have not been killed often."""
    pids = set()
    for path in (workdir / "locks").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError):  # it was never killed
            failures = workdir / "failures" / path.name
            if len(failures.read_text().splitlines()) >= MAX_KILLS:
                continue
        with contextlib.suppress(OSError, IndexError):  # just removed or made
            # Host, number, start and machine of the worker, then the run.
            pids.add(int(path.read_text().split()[4]))
    return pids


def is_running(pid):
    """Returns whether a process runs; one that has ended may still have its number."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def saving(workdir):
    """Returns whether a checkpoint is being written."""
    return any(workdir.glob("trials/*/checkpoints/*tmp*"))


SECONDS = 3.0  # latest moment of a kill after the start of a process


def storm(workdir, flags, number, rng):
    """Kills processes of a sweep as they start, and starts the sweep again.

    In turn a run, the coordinator, and a run that is writing a checkpoint (or any run,
    if none writes one in time).

    Args:
        workdir: folder of the sweep.
        flags: its flags.
        number: number of kills.
        rng: numpy generator of the moments of the kills.

    Returns:
        The exit status of the last coordinator, and the number of kills of each kind.
    """
    earlier, kills, status = set(), {"run": 0, "coordinator": 0, "save": 0}, None
    while status is None:
        process = subprocess.Popen(
            command(workdir, *flags),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while (status := process.poll()) is None:
            time.sleep(0.1)
            pids = processes(workdir)
            if pids <= earlier or sum(kills.values()) == number:
                continue
            earlier |= pids
            kind = tuple(kills)[sum(kills.values()) % 3]
            if kind == "save":
                end = time.monotonic() + 4 * SECONDS
                while not saving(workdir) and time.monotonic() < end:
                    time.sleep(0.001)
                kind = "save" if saving(workdir) else "run"
            else:
                time.sleep(rng.uniform(0, SECONDS))
            if kind == "coordinator":
                kills[kind] += process.poll() is None
                process.kill()
                process.wait()
                break  # the same command continues
            alive = [pid for pid in processes(workdir) if is_running(pid)]
            kills[kind] += bool(alive)
            for pid in alive:
                os.kill(pid, 9)  # the coordinator starts it again
    return status, kills
