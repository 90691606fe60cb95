"""Stop signals: at the end of a step, and the same one in all processes of a job.

The process that receives a signal announces it to the others. In each process, a thread
notices this within a second. The threads agree on a future call of `should_stop`, which
no process has made yet. JAX's own protocol ignores SIGINT, and does not report a signal
before a step ends.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

from training.cluster import job

_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_POLL = 1.0  # polling interval for announcements of other processes, in seconds


class StopSignal:
    """Notes SIGTERM and SIGINT, so that a loop can stop at the end of a step.

    A second signal has its usual effect.

    Attributes:
        received: number of the signal; None before it arrives.
        leave: called with the number of the signal, in another thread, while there is
            nothing to save; ends the process. None to only note a signal.
    """

    def __init__(self):
        self.received: int | None = None
        self.leave: Callable[[int], None] | None = None
        self._calls, self._lock = 0, threading.Lock()
        self._last_call: int | None = None  # at which all processes stop
        self._closed = threading.Event()
        self._before: dict[int, Any] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "StopSignal":
        import jax

        self._shared = jax.process_count() > 1
        self._reader, self._writer = os.pipe()
        with contextlib.suppress(ValueError):  # not the main thread
            # The main thread handles a signal only when it leaves XLA's compiler.
            os.set_blocking(self._writer, False)
            self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            for number in _NUMBERS:
                handler = signal.signal(number, self._note)
                self._before[number] = handler or signal.SIG_DFL  # None: set by jax
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._restore()
        self._closed.set()
        self._thread.join(5 * _POLL)  # others may be dead, or never call `should_stop`
        with contextlib.suppress(ValueError, AttributeError):
            signal.set_wakeup_fd(self._wakeup)
        os.close(self._reader)
        os.close(self._writer)

    def should_stop(self) -> bool:
        """Returns whether to stop; all processes of a job call it equally often."""
        if not self._shared:
            return self.received is not None
        with self._lock:
            self._calls += 1
            return self._last_call is not None and self._calls >= self._last_call

    def _note(self, number: int, _frame: Any) -> None:
        self.received = self.received or number
        self._restore()

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _watch(self) -> None:
        while not self.received and not self._closed.is_set():
            if select.select([self._reader], [], [], _POLL)[0]:
                numbers = [x for x in os.read(self._reader, 64) if x in _NUMBERS]
                self.received = self.received or next(iter(numbers), None)
            elif self._shared and job.is_stopping():
                self.received = signal.SIGTERM
        if self.received and self._shared:
            with self._lock, contextlib.suppress(RuntimeError):  # a process is dead
                self._last_call = 1 + job.agree_on_last_step(self._calls)
        while self.received and not self._closed.wait(_POLL / 10):
            if leave := self.leave:
                leave(self.received)
