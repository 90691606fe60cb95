"""Watchdog that ends a process, and its job, if it makes no progress.

In a job of several processes, one that is alive but stuck would block all others for
ever. `faulthandler.dump_traceback_later` would end it with status 1, that of a user's
mistake, and not tell the others.
"""

import contextlib
import faulthandler
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

from training.cluster import job

_SLOW = 10  # times the median step


class Watchdog:
    """Ends the process if no step, evaluation batch or figure finishes within a limit.

    The limit is the maximum of `seconds` (0 for no watchdog) and ten times the median
    of the last steps. Starting, compiling and saving do not count.
    """

    def __init__(self, seconds: float):
        self._seconds, self._closed = seconds, threading.Event()
        self._steps: deque[float] = deque(maxlen=101)  # seconds per step
        self._last: float | None = None  # time of the last progress; None while off

    def __enter__(self) -> "Watchdog":
        if self._seconds:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def step(self) -> None:
        """Notes that a step has finished."""
        if self._last is not None:
            self._steps.append(time.monotonic() - self._last)
        self.progress()

    def progress(self) -> None:
        """Notes progress other than a step, and watches from now on."""
        self._last = time.monotonic()

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Does not watch during the block."""
        self._last = None
        try:
            yield
        finally:
            self.progress()

    def _watch(self) -> None:
        while not self._closed.wait(min(self._seconds / 4, 10)):
            last, median = self._last, statistics.median(self._steps or [0.0])
            limit = max(self._seconds, _SLOW * median)
            if last is not None and time.monotonic() - last > limit:
                faulthandler.dump_traceback(all_threads=True)
                line = (
                    "no step, part of an evaluation or figure has finished for "
                    f"{limit:.0f} s (--watchdog); start the same command again"
                )
                job.end(TimeoutError(line), line, job.FAULT)
                print(f"error: {line}", file=sys.stderr, flush=True)
                os._exit(job.FAULT)
