"""The lock of a folder: one process at a time trains in a run directory or sweeps.

The file `lock` names its holder: host, process, and the start of the process, so that
another process with the same number is not taken for it. The holder refreshes the file.
A lock is void if its holder is a dead process of this machine, or has not refreshed it
for two minutes: for a holder on another machine, such as the pod that has been replaced
by this one, the lock is watched for as long. Evaluation and prediction take no lock.
"""

import contextlib
import fcntl
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from base.errors import UserError, parse_json
from training.cluster import job

NAME = "lock"
_REFRESH = 20.0  # seconds between two refreshes
_POLL = 1.0  # polling interval for the lock of another machine, in seconds
_VISIBLE = 60.0  # seconds until all hosts see a file: NFS keeps listings for so long
STALE = 120.0  # seconds without a refresh after which a lock is void


class Lock:
    """The right to train in a run directory, or to sweep; a context manager."""

    def __init__(self, workdir: Path, *, enabled: bool = True):
        """Prepares the lock.

        Args:
            workdir: the run directory or the folder of a sweep, which exists.
            enabled: False to take no lock, on hosts other than the first of a run.
        """
        self._enabled = enabled
        self._workdir, self._path = workdir, workdir / NAME
        self._owner = _owner(os.getpid())
        self._seen: float | None = None  # last refresh of a holder elsewhere
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._refresh, daemon=True)

    def __enter__(self) -> "Lock":
        """Takes the lock; waits first if it may be that of a dead process elsewhere.

        Raises:
            UserError: if another process holds it, or it cannot be written.
        """
        if not self._enabled:
            return self
        try:
            while not self._take():
                time.sleep(_POLL)
        except OSError as error:
            raise UserError(
                f"{self._path} cannot be written: {error.strerror}; a run directory "
                "must be writable"
            ) from error
        self._thread.start()
        return self

    def _take(self) -> bool:
        """Takes the lock; returns whether it was free or void.

        Raises:
            UserError: if a process of this machine holds it, or the holder has
                refreshed it since the last call.
        """
        with _opened(self._path) as file:
            holder, refreshed = _parse(file.read()), self._path.stat().st_mtime
            if holder != self._owner and not self._is_void(holder):
                is_here = holder and holder["machine"] == self._owner["machine"]
                if is_here or self._seen not in (None, refreshed):
                    raise UserError(self._refusal(holder))
                if self._seen is None:
                    print(
                        f"{self._workdir} is locked by {_name(holder)}, which may be "
                        f"dead; waiting up to {STALE:.0f} seconds for a sign of life",
                        file=sys.stderr,
                        flush=True,
                    )
                self._seen = refreshed
                return False
            file.seek(0)
            file.truncate()
            file.write(json.dumps(self._owner) + "\n")
        return True

    def __exit__(self, *_: Any) -> None:
        """Gives the lock back."""
        self.release()

    def release(self) -> None:
        """Gives the lock back, unless another process has taken it over."""
        if not self._enabled:
            return
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError), _opened(self._path) as file:
            if _parse(file.read()) in (self._owner, {}):
                self._path.unlink()

    def check(self) -> None:
        """Checks that no other process has taken the lock over.

        Raises:
            UserError: if one has, because this process was suspended for too long.
        """
        holder = self._read()
        if self._enabled and holder and holder != self._owner:
            raise UserError(self._refusal(holder))

    def check_shared(self) -> None:
        """Checks that all processes of the job see the lock that process 0 has taken.

        Raises:
            UserError: in a process whose run directory is another folder.
        """
        holder = parse_json(job.of_first(json.dumps(self._owner)))
        end = time.monotonic() + _VISIBLE
        while not self._enabled and self._read() != holder:
            if time.monotonic() > end:
                raise UserError(
                    f"--workdir={self._workdir} is another folder here than in process "
                    "0: all processes of a job must have the same run directory, in a "
                    "folder that their hosts share"
                )
            time.sleep(_POLL)

    def _read(self) -> dict[str, Any]:
        try:
            return _parse(self._path.read_text(errors="replace"))
        except OSError:
            return {}

    def _refusal(self, holder: dict[str, Any]) -> str:
        return (
            f"{self._workdir} is in use: {_name(holder)} works in it; stop it first, "
            "or take another --workdir (a lock without a sign of life for "
            f"{STALE:.0f} seconds is void)"
        )

    def _is_void(self, holder: dict[str, Any]) -> bool:
        if holder and holder["machine"] == self._owner["machine"]:
            if not is_alive(holder["pid"]):
                return True
            return holder["started"] != started(holder["pid"])
        if not holder and self._path.stat().st_size == 0:
            return True  # new, or its holder died before it wrote its name
        # Both times are those of the file system: clocks of hosts may differ.
        with tempfile.NamedTemporaryFile(dir=self._workdir, prefix=".") as file:
            now = os.fstat(file.fileno()).st_mtime
        return now - self._path.stat().st_mtime > STALE

    def _refresh(self) -> None:
        while not self._over.wait(_REFRESH):
            with contextlib.suppress(OSError):
                if self._read() == self._owner:
                    os.utime(self._path)


def is_alive(pid: int) -> bool:
    """Returns whether a process of this host runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _status(pid)[:1] != ["Z"]  # a zombie has ended


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yields a file, created if missing, that no other process has opened in this way.

    The file system's own lock is held only in this block: where there is none, two
    processes that start within milliseconds may both get through.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        with os.fdopen(descriptor, "r+", errors="replace") as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            try:
                is_current = os.path.samestat(os.fstat(file.fileno()), path.stat())
            except FileNotFoundError:
                is_current = False
            if is_current:  # not removed while we waited
                yield file
                return


def _parse(text: str) -> dict[str, Any]:
    """Returns the holder that a lock names; {} if it is damaged."""
    with contextlib.suppress(ValueError, AttributeError):
        holder = parse_json(text)
        kinds = {"host": str, "pid": int, "started": str, "machine": str}
        if {name: type(value) for name, value in holder.items()} == kinds:
            return holder
    return {}


def _name(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder['pid']} on host {holder['host']}"


def _owner(pid: int) -> dict[str, Any]:
    host = socket.gethostname()
    # Two machines, or two containers, may have the same name.
    parts = [host]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    machine = " ".join(parts)
    return {"host": host, "pid": pid, "started": started(pid), "machine": machine}


def started(pid: int) -> str:
    """Returns when a process started, in ticks since the boot; "" if unknown."""
    status = _status(pid)
    return status[19] if len(status) > 19 else ""


def _status(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name; [] if there are none."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text()
        return text.rpartition(")")[2].split()
    return []
