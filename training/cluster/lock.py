"""Locks: one process at a time trains in a run directory, sweeps, or works on a run.

The file of a lock names its holder, which refreshes the file's time. A lock is void if
its holder is a dead process of this machine, or has not refreshed it for two minutes
from another machine, such as an earlier pod of the same job.
Evaluation and prediction take no lock.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from base import storage
from base.errors import UserError

NAME = "lock"
_UNKNOWN = "unknown"  # start of a process
STALE = 120.0  # seconds without a refresh after which a lock is void
_REFRESH = 20.0  # seconds between two refreshes
_POLL = 1.0  # polling interval, in seconds
_SETTLE = 1.0  # seconds until all that take over a void lock have replaced it
_VISIBLE = 60.0  # seconds until all hosts see a file: NFS keeps listings for so long


class _HeldError(UserError):
    """A lock that another process holds."""


class Lock:
    """The right to work in a folder, or on a part of it; a context manager.

    It waits first if the lock may be that of a dead process elsewhere, and raises a
    UserError if another process holds it or it cannot be written. With `enabled=False`
    it takes no lock, as on hosts other than the first of a run.

    Attributes:
        owner: this process, as the lock names it: host, number, start and machine.
    """

    def __init__(self, workdir: Path, name: str = NAME, *, enabled: bool = True):
        self._workdir, self._path, self._enabled = workdir, workdir / name, enabled
        host, pid = socket.gethostname(), os.getpid()
        self.owner = f"{host} {pid} {started(pid)} {_machine()}"
        self._new = workdir / f".{name}.{host}.{pid}"  # to replace a void lock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._refresh, daemon=True)

    def __enter__(self) -> "Lock":
        self._enter(waits=True)
        return self

    def acquire(self) -> bool:
        """Returns whether this process now has the lock; `release` gives it back."""
        try:
            self._enter(waits=False)
        except _HeldError:
            return False
        return True

    def add(self, pid: int) -> None:
        """Adds a process to the holder, which may outlive this one to save."""
        if self._is_mine():
            storage.write(self._path, f"{self.owner} {pid} {started(pid)}")

    def _enter(self, *, waits: bool) -> None:
        if self._enabled:
            try:
                self._take(waits)
            except OSError as error:
                raise UserError(
                    f"{self._path} cannot be written: {error.strerror}; a run "
                    "directory must be writable"
                ) from error
            finally:
                with contextlib.suppress(OSError):
                    self._new.unlink()
            self._thread.start()

    def _take(self, waits: bool) -> None:
        watched: float | None = None  # last refresh by a holder elsewhere
        while True:
            with contextlib.suppress(FileExistsError), self._path.open("x") as file:
                file.write(self.owner)
                return
            try:
                holder, refreshed = self._read(), self._path.stat().st_mtime
            except FileNotFoundError:
                continue
            _, pid, start, machine, *added = [*holder.split(), *[""] * 4]
            here = machine == _machine() and pid.isdecimal()
            if here and any(
                begun and started(int(number)) in (begun, _UNKNOWN)
                for number, begun in zip(
                    [pid, *added[::2]], [start, *added[1::2]], strict=False
                )
                if number.isdecimal()
            ):
                raise _HeldError(self._refusal(holder))
            self._new.write_text(self.owner)
            # Both times are those of the file system: clocks of hosts may differ.
            if here or self._new.stat().st_mtime - refreshed > STALE:
                with contextlib.suppress(FileNotFoundError):
                    if self._read() != holder:
                        continue  # another process has taken it over since
                self._new.replace(self._path)
                time.sleep(_SETTLE)
                with contextlib.suppress(FileNotFoundError):
                    if self._is_mine():
                        return
                continue  # another process has taken it over
            if not waits or watched not in (None, refreshed):
                raise _HeldError(self._refusal(holder))
            if watched is None:
                print(
                    f"{self._workdir} is locked by {_name(holder)}, which may be dead; "
                    f"waiting up to {STALE:.0f} seconds for a sign of life",
                    file=sys.stderr,
                    flush=True,
                )
            watched = refreshed
            time.sleep(_POLL)

    def __exit__(self, *_: Any) -> None:
        self.release()

    def release(self) -> None:
        """Gives the lock back, unless another process has taken it over."""
        self._over.set()
        with contextlib.suppress(OSError):
            if self._enabled and self._is_mine():
                self._path.unlink()

    def check(self) -> None:
        """Raises a UserError if this process was suspended, and another took over."""
        with contextlib.suppress(OSError):
            if self._enabled and not self._is_mine():
                raise UserError(self._refusal(self._read()))

    def check_shared(self, owner: str) -> None:
        """Raises a UserError unless the lock is that of `owner`, process 0."""
        end = time.monotonic() + _VISIBLE
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if self._read() == owner:
                    return
            time.sleep(_POLL)
        raise UserError(
            f"--workdir={self._workdir} is another folder here than in process 0: all "
            "processes of a job must have the same run directory, in a folder that "
            "their hosts share"
        )

    def _read(self) -> str:
        return self._path.read_text("utf-8", errors="replace")

    def _is_mine(self) -> bool:
        return self._read().startswith(self.owner)

    def _refusal(self, holder: str) -> str:
        return (
            f"{self._workdir} is in use: {_name(holder)} works in it; stop it first, "
            "or take another --workdir (a lock without a sign of life for "
            f"{STALE:.0f} seconds is void)"
        )

    def _refresh(self) -> None:
        while not self._over.wait(_REFRESH):
            with contextlib.suppress(OSError):
                if self._is_mine():
                    os.utime(self._path)


def _name(holder: str) -> str:
    host, pid = [*holder.split(), "", ""][:2]
    return f"process {pid} on host {host}" if pid.isdecimal() else "another process"


def _machine() -> str:
    """Returns a name of this machine or container; two may have the same host name."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def started(pid: int) -> str:
    """Returns when a process of this host started, in ticks; "" if it has ended.

    The start distinguishes it from a later process with its number.
    """
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if status[0] == "Z" else status[19]  # a zombie has ended
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return _UNKNOWN
