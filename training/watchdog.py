"""Watchdog that ends a process whose steps no longer finish.

In a job of several processes, one that is alive but stuck would block all others for
ever, and a scheduler would see nothing wrong.
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

FAULT = 75  # exit status: the same command may succeed (EX_TEMPFAIL of sysexits.h)
_SLOW = 10  # times the median step


class Watchdog:
    """Ends the process if no step finishes for a long time.

    The time is the maximum of `seconds` and ten times the median of the last steps.
    Compiling, saving, evaluating and drawing do not count.
    """

    def __init__(self, seconds: float):
        """Creates the watchdog, not yet active.

        Args:
            seconds: minimum of the time; 0 for no watchdog.
        """
        self._seconds = seconds
        self._steps: deque[float] = deque(maxlen=101)  # seconds per step
        self._last: float | None = None  # time of the last step; None while off
        self._closed = threading.Event()

    def __enter__(self) -> "Watchdog":
        """Starts to watch in a thread."""
        if self._seconds:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops to watch."""
        self._closed.set()

    def step(self) -> None:
        """Notes that a step has finished."""
        now = time.monotonic()
        if self._last is not None:
            self._steps.append(now - self._last)
        self._last = now

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Does not watch during the block."""
        self._last = None
        try:
            yield
        finally:
            self._last = time.monotonic()

    def _limit(self) -> float:
        median = statistics.median(self._steps) if self._steps else 0.0
        return max(self._seconds, _SLOW * median)

    def _watch(self) -> None:
        while not self._closed.wait(min(self._seconds / 4, 10)):
            last, limit = self._last, self._limit()
            if last is None or time.monotonic() - last <= limit:
                continue
            faulthandler.dump_traceback(all_threads=True)
            print(
                f"error: no step has finished for {limit:.0f} s (--watchdog); the same "
                "command resumes from the last checkpoint",
                file=sys.stderr,
                flush=True,
            )
            os._exit(FAULT)
