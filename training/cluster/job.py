"""Jobs of several processes: errors, barriers, agreement.

At exit, jax's processes wait for each other, for five minutes if one is missing. So a
process with an error tells the others by the key-value store of jax's coordination
service, and all of them end at once with its exit status.
"""

import atexit
import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from base.errors import (
    OtherProcessError,
    UserError,
    chain,
    is_fault,
    one_line,
    parse_json,
)

# Exit statuses, with their numbers in sysexits.h.
FAULT = 75  # the same command may succeed (EX_TEMPFAIL)
CRASH = 70  # an unexpected error, with a traceback (EX_SOFTWARE)
_FAILURE = "attention/failure"  # key of the first failure of the job
_STOP = "attention/stop"  # prefix of the keys of a stop signal
_CALLS = f"{_STOP}/calls/"
_STOPPED = 128 + signal.SIGINT, 128 + signal.SIGTERM
_MAX_DIFFERENCES = 3  # named if processes disagree
_POLL = 1.0  # polling interval for the key, in seconds
_PATIENCE = 10.0  # seconds in which another process reports the error that it shared
_NOTICED = 3.0  # seconds in which the death of another process is noticed
_numbers = itertools.count()  # of barriers and agreements, the same in all processes
_ending = threading.Event()  # this process reports an error of its own
_joined = threading.Event()
_leaving = threading.Event()  # connections close at the regular end
_last = threading.Lock()  # of the thread that ends this process
_GONE = "it is gone (killed, or its host has failed)"
_timeout = 1800.0


def watch(timeout: float) -> None:
    """Watches in a thread for failures of other processes, which end this one.

    Args:
        timeout: seconds that `wait` and `agree` wait for the other processes.
    """
    global _timeout
    _timeout = timeout
    _joined.set()
    watcher = threading.Thread(target=_watch, daemon=True)
    watcher.start()
    atexit.register(_finish, watcher)


def status_of(error: Exception, line: str | None) -> int:
    """Returns the exit status for an error.

    Args:
        error: the error.
        line: the error in one line; None for an unexpected error.

    Returns:
        `FAULT` for a fault of a device or a network, an error of another process, or an
        error of jax's runtime, as at the death of another process; otherwise 1 for an
        error with a line, and `CRASH` without one.
    """
    by_jax = _is_by_jax(error, line) and (line is None or _joined.is_set())
    if by_jax or is_fault(error) or isinstance(error, OtherProcessError):
        return FAULT
    return CRASH if line is None else 1


def end(error: Exception, line: str | None, status: int) -> None:
    """Ends this process after an error, and the others with it; returns if it is alone.

    The error is printed, unless it was raised because another process has failed: then
    that process is named. The status is that of the first failure of the job.

    Args:
        error: the error.
        line: the error in one line; None to print a traceback.
        status: exit status, such as `status_of(error, line)`.
    """
    if not _joined.is_set():
        return
    # Another process reports its error, or is found to be gone, at the same time.
    by_other = isinstance(error, OtherProcessError)
    if by_other or _is_by_jax(error, line):
        _await_failure(_PATIENCE if by_other else _NOTICED)
    _ending.set()
    client, number = _service()
    reason = " ".join((line or f"{type(error).__name__}: {error}").split())
    with _last:
        with contextlib.suppress(RuntimeError):  # another process was first, or is dead
            client.key_value_set(_FAILURE, f"{status} {number} {reason}")
        first = _failure() or (status, number, reason)
        if (by_other or _is_by_jax(error, line)) and first[1] != number:
            _print(first)
        elif line:
            print(f"error: {line}", file=sys.stderr)
        else:
            traceback.print_exception(error)
        _exit(first[0], number)


def gone(number: int, tell: Callable[[], None] = lambda: None) -> None:
    """Ends this process since another one is gone, unless the job ends anyway.

    Args:
        number: the process whose connection has closed.
        tell: tells the others.
    """
    _, this = _service()
    # The watching thread reports a failure that the process has shared before.
    if _leaving.is_set() or _ending.is_set() or (this == 0 and _failure()):
        return
    tell()
    _last.acquire(timeout=_PATIENCE)
    _print((FAULT, number, _GONE))
    _exit(FAULT)


def leave(status: int) -> None:
    """Ends this process, and the others with it, because of a stop signal.

    Args:
        status: exit status.
    """
    client, number = _service()
    if client is not None:
        _ending.set()
        with contextlib.suppress(RuntimeError):  # another process was first
            client.key_value_set(_FAILURE, f"{status} {number} stopped")
    _exit(status, number if client else None)


def is_stopping() -> bool:
    """Returns whether a process of the job has called `last_call`."""
    with contextlib.suppress(RuntimeError, AttributeError):  # none, or jax has ended
        return bool(_service()[0].key_value_try_get(_STOP))
    return False


def last_call(call: int) -> int:
    """Returns the maximum of a number over the processes of the job.

    Called once, because of a stop signal.
    """
    client, number = _service()
    with contextlib.suppress(RuntimeError):  # another process was first
        client.key_value_set(_STOP, str(number))
    client.key_value_set(f"{_CALLS}{number}", str(call))
    client.wait_at_barrier(_STOP, int(1000 * _timeout))
    return max(int(text) for _, text in client.key_value_dir_get(_CALLS))


def wait(name: str) -> None:
    """Waits until all processes of the job have called this, up to `--join_timeout`.

    Collective operations on CPUs fail if some processes arrive 30 seconds after others.
    """
    client, _ = _service()
    if client is not None:
        client.wait_at_barrier(f"{name} {next(_numbers)}", int(1000 * _timeout))


@contextlib.contextmanager
def first_alone(name: str) -> Iterator[None]:
    """Runs the block in process 0, then in the others, which find its files."""
    _, number = _service()
    if number > 0:
        wait(name)
    yield
    if number == 0:
        wait(name)


def agree(values: Mapping[str, Any]) -> None:
    """Checks that all processes of the job have the same values, and waits for them.

    Args:
        values: values with JSON forms, by name.

    Raises:
        UserError: if the values of this process differ from those of process 0.
    """
    client, number = _service()
    if client is None:
        return
    text = json.dumps(values)
    first, values = parse_json(of_first(text)), parse_json(text)
    if number > 0:
        differing = [
            f"{name} is {one_line(values.get(name))} in process {number} and "
            f"{one_line(first.get(name))} in process 0"
            for name in {**first, **values}
            if first.get(name) != values.get(name)
        ]
        if differing:
            raise UserError(
                f"{'; '.join(differing[:_MAX_DIFFERENCES])}: all processes of a job "
                "must have the same command, code and run directory"
            )
    wait("agree")


def of_first(text: str) -> str:
    """Returns the text that process 0 passes; all processes of the job call this."""
    client, number = _service()
    if client is None:
        return text
    key = f"attention/first/{next(_numbers)}"
    if number > 0:
        return client.blocking_key_value_get(key, int(1000 * _timeout))
    client.key_value_set(key, text)
    return text


def _is_by_jax(error: BaseException | None, line: str | None = None) -> bool:
    """Returns whether an error, or one that led to it, is of jax's runtime.

    With a line, only one that led to it: a line about jax's own error is about memory,
    a user's mistake.
    """
    if "jax" not in sys.modules:
        return False
    import jax

    causes = itertools.islice(chain(error), 1 if line else 0, None)
    # A failed collective operation on CPUs may be a ValueError.
    return any(
        isinstance(x, jax.errors.JaxRuntimeError) or "Gloo" in str(x) for x in causes
    )


def _finish(watcher: threading.Thread) -> None:
    """Waits for the other processes at exit, and then for the thread that watches them.

    Python would abort with the status 134 if it ended while the thread is in jax's
    client.
    """
    import jax

    _leaving.set()
    try:
        jax.distributed.shutdown()
    finally:
        _ending.set()
        watcher.join()


def _watch() -> None:
    while not _ending.wait(_POLL):
        if failure := _failure():
            # The main thread may be about to report an error of its own.
            if not _ending.wait(2 * _POLL):
                with _last:
                    _print(failure)
                    _exit(failure[0])
            return


def _service() -> tuple[Any, int]:
    """Returns the client of jax's coordination service, and the process's number."""
    from jax._src import distributed

    state = distributed.global_state
    return state.client, state.process_id


def _await_failure(seconds: float) -> None:
    """Waits until a process of the job has reported an error, for some seconds."""
    deadline = time.monotonic() + seconds
    while not _failure() and time.monotonic() < deadline:
        time.sleep(_POLL / 10)


def _failure() -> tuple[int, int, str] | None:
    """Returns status, process and reason of the first failure; None before it."""
    with contextlib.suppress(RuntimeError, AttributeError):  # none, or jax has ended
        status, number, reason = _service()[0].key_value_try_get(_FAILURE).split(" ", 2)
        return int(status), int(number), reason
    return None


def _print(failure: tuple[int, int, str]) -> None:
    status, number, reason = failure
    line = f"error: process {number} of the job has failed: {reason}"
    if status in _STOPPED:
        line = f"stopped with process {number} of the job"
    print(line, file=sys.stderr)


def _exit(status: int, number: int | None = None) -> None:
    """Ends this process; process 0 waits, since it has the store that others read."""
    if number == 0:
        time.sleep(4 * _POLL)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
