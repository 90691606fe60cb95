"""Processes that run on a share of the machine: some of its cores, or one GPU.

Each process has its own process group, so Ctrl-C at the terminal reaches only the
parent, which decides what to stop. Under Linux a process gets SIGTERM when its parent
dies, even by `kill -9`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from base.errors import UserError

_LAUNCH = Path(__file__).parents[1] / "launch/on_cores.py"


class Share(NamedTuple):
    """A share of the machine: its cores, () for all, and its GPU, None for any."""

    cores: tuple[int, ...] = ()
    gpu: str | None = None


def shares(count: int, flag: str) -> list[Share]:
    """Divides the machine among processes: a GPU each if there are any, else cores.

    `flag` names the flag with this number in errors.

    Raises:
        UserError: if `count` is below 1 or above the number of cores or GPUs.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    gpus = _gpus()
    maximum = len(gpus) or max(len(cores), 1)
    if not 1 <= count <= maximum:
        raise UserError(f"{flag} is {count}: must be at least 1 and at most {maximum}")
    parts = [tuple(cores[i::count]) for i in range(count)]
    return [Share(part, gpus[i] if gpus else None) for i, part in enumerate(parts)]


def _gpus() -> list[str]:
    """The GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [part.strip() for part in visible.split(",") if part.strip()]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    count = listed.stdout.count("GPU ") if listed.returncode == 0 else 0
    return list(map(str, range(count)))


class Processes:
    """The running processes of this program; stops them together."""

    def __init__(self):
        self._running: set[subprocess.Popen] = set()
        self._lock = threading.Lock()
        self.stopped: int | None = None  # the signal that ended the program

    def call(
        self,
        arguments: Sequence[str],
        share: Share,
        *,
        folder: Path,
        log: Path | None = None,
        started: Callable[[int], None] | None = None,
    ) -> int:
        """Runs a Python program; returns its exit status.

        Args:
            arguments: script and arguments.
            share: the part of the machine to use.
            folder: working directory.
            log: file to append its output to; None for this program's output.
            started: called with the number of the process.
        """
        cores = ",".join(map(str, share.cores))
        launch = [sys.executable, str(_LAUNCH), str(os.getpid()), cores]
        environment = os.environ.copy()
        if share.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = share.gpu
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(log.open("ab")) if log else None
            with self._lock:
                if self.stopped:
                    return 128 + self.stopped
                process = subprocess.Popen(
                    [*launch, *arguments],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                if started:
                    started(process.pid)
                return process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)

    def stop(self, number: int) -> None:
        """Sends SIGTERM to all running processes and starts no further ones."""
        with self._lock:
            self.stopped = self.stopped or number
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)


@contextlib.contextmanager
def stopping(processes: Processes) -> Iterator[None]:
    """Stops the processes upon SIGINT or SIGTERM; call it in the main thread."""
    old = {
        number: signal.signal(number, lambda number, _: processes.stop(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
