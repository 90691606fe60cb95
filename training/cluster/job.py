"""Jobs of several processes: agreement, and the common end.

The only file with jax's private client of the coordination service. Its barriers wait
for minutes, whereas the collective operations of `multihost_utils` fail on CPUs if some
processes arrive 30 seconds after others.
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
from collections.abc import Iterator, Mapping
from typing import Any

from base import errors
from base.errors import OtherProcessError, UserError, one_line, parse_json
from training.cluster import presence

# Exit statuses, with their numbers in sysexits.h.
FAULT = 75  # the same command may succeed (EX_TEMPFAIL)
CRASH = 70  # an unexpected error, with a traceback (EX_SOFTWARE)
_STOP = "attention/stop"  # prefix of the keys of a stop signal
_MAX_DIFFERENCES = 3  # named if processes disagree
_PATIENCE = 5.0  # seconds in which the process that has caused an error says so
_GRACE = 2.0  # seconds in which this process reports an error of its own
_numbers = itertools.count()  # of barriers and agreements, the same in all processes
_ending = threading.Lock()  # of the thread that ends this process
_leaving = threading.Event()  # connections close at the regular end
_timeout = 1800.0


def start(timeout: float) -> None:
    """Sets the seconds that `wait` and `agree` wait in a job that has been joined."""
    global _timeout
    _timeout = timeout
    atexit.register(_leaving.set)  # called before jax's processes wait for each other


def status_of(error: Exception, line: str | None) -> int:
    """Returns the exit status for an error, whose text in one line may be `None`.

    `FAULT` for a fault of a device or a network, an error of another process, or an
    error of jax's runtime, as at the death of another process; otherwise 1 for an error
    with a line, and `CRASH` without one.
    """
    by_jax = _is_by_jax(error, line) and (line is None or _service()[0] is not None)
    if by_jax or errors.is_fault(error) or isinstance(error, OtherProcessError):
        return FAULT
    return CRASH if line is None else 1


def end(error: Exception, line: str | None, status: int) -> None:
    """Ends this process after an error, and the others with it; returns if it is alone.

    Args:
        error: the error.
        line: the error in one line; None to print a traceback.
        status: exit status, such as `status_of(error, line)`.
    """
    client, number = _service()
    if client is None:
        return
    if isinstance(error, OtherProcessError) or _is_by_jax(error, line):
        time.sleep(_PATIENCE)  # `failed` names the process that has caused it
    _ending.acquire()
    reason = " ".join((line or f"{type(error).__name__}: {error}").split())
    presence.tell(f"{status} {number} {reason}")
    if line is None:
        traceback.print_exception(error)
    else:
        print(f"error: {line}", file=sys.stderr)
    _exit(status)


def failed(number: int, line: str) -> None:
    """Ends this process since another one has failed, stops or is gone.

    Args:
        number: the process that has sent the line.
        line: exit status, number and reason of a process; "" if `number` is gone.
    """
    if _leaving.is_set():
        return
    line = line or f"{FAULT} {number} it is gone (killed, or its host has failed)"
    if _service()[1] == 0:
        presence.tell(line)
    time.sleep(_GRACE)
    _ending.acquire()
    status, process, reason = line.split(" ", 2)
    if int(status) in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        print(f"stopped with process {process} of the job", file=sys.stderr)
    else:
        line = f"process {process} of the job has failed: {reason}"
        print(f"error: {line}", file=sys.stderr)
    _exit(int(status))


def leave(status: int) -> None:
    """Ends this process, and the others with it, because of a stop signal."""
    _ending.acquire()
    presence.tell(f"{status} {_service()[1]} stopped")
    _exit(status)


def is_stopping() -> bool:
    """Returns whether a process of the job has called `agree_on_last_step`."""
    with contextlib.suppress(RuntimeError):  # none
        return bool(_service()[0].key_value_try_get(_STOP))
    return False


def agree_on_last_step(call: int) -> int:
    """Returns the maximum of a number over the processes; called once, at a signal."""
    client, number = _service()
    with contextlib.suppress(RuntimeError):  # another process was first
        client.key_value_set(_STOP, str(number))
    client.key_value_set(f"{_STOP}/calls/{number}", str(call))
    client.wait_at_barrier(_STOP, int(1000 * _timeout))
    return max(int(x) for _, x in client.key_value_dir_get(f"{_STOP}/calls/"))


def wait(name: str) -> None:
    """Waits until all processes of the job have called this, up to `--join_timeout`."""
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
    text = json.dumps(values)
    first, values = parse_json(of_first(text)), parse_json(text)
    differing = [
        f"{name} is {one_line(values.get(name))} in process {_service()[1]} and "
        f"{one_line(first.get(name))} in process 0"
        for name in {**first, **values}
        if first.get(name) != values.get(name)
    ]
    if differing:
        raise UserError(
            f"{'; '.join(differing[:_MAX_DIFFERENCES])}: all processes of a job must "
            "have the same command, code and run directory"
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


def _is_by_jax(error: BaseException, line: str | None) -> bool:
    """Returns whether an error, or one that led to it, is of jax's runtime.

    With a line, only one that led to it: a line about jax's own error is about memory,
    a user's mistake.
    """
    if "jax" not in sys.modules:
        return False
    import jax

    # A failed collective operation on CPUs may be a ValueError.
    return any(
        isinstance(x, jax.errors.JaxRuntimeError) or "Gloo" in str(x)
        for x in itertools.islice(errors.chain(error), 1 if line else 0, None)
    )


def _service() -> tuple[Any, int]:
    """Returns the client of jax's coordination service, and the process's number."""
    if "jax" not in sys.modules:
        return None, 0
    from jax._src import distributed

    return distributed.global_state.client, distributed.global_state.process_id


def _exit(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
