"""The state of a run of a sweep, read from its folder, and claims on runs."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from base.errors import parse_json
from sweeps.plan import Plan, Run
from training.checkpoint_folder import CheckpointFolder
from training.cluster.lock import started
from training.log import read_rows

_REFRESH = 30.0  # seconds between two refreshes of a claim
_STALE = 120.0  # seconds without a refresh after which a claim is void
MAX_ERRORS = 3  # of a run without a new checkpoint
_MAX_DEATHS = 10  # the same, kills included
_KILLED = "(signal "  # in the line of a death that was not the run's own


class Progress(NamedTuple):
    """Progress of a run.

    Attributes:
        step: the last step with a row in its log, 0 if there is none.
        values: validation metric by step.
        rate: steps per second of the last row, 0 if unknown.
        score: metric of the final evaluation; None before it.
        deaths: last line of output of each death since the last checkpoint.
    """

    step: int
    values: dict[int, float]
    rate: float
    score: float | None
    deaths: tuple[str, ...]


# By file of a run's log: time and size of the files that were read, and the result.
_read: dict[Path, tuple[Any, Progress]] = {}


def progress(plan: Plan, run: Run) -> Progress:
    """Returns the progress of a run; reads its files only if they have changed.

    Raises:
        KeyError: if an evaluation does not have the metric; its argument is the text
            of the names that it has.
    """
    log = run.folder / "metrics.jsonl"
    report = run.folder / f"eval_{plan.sweep.split}.json"
    files = log, report, plan.workdir / "deaths" / run.name
    version = plan.sweep.metric, plan.steps(run.trial), *map(_version, files)
    if log not in _read or _read[log][0] != version:
        _read[log] = version, _progress(plan, run, log, report)
    return _read[log][1]


def _version(path: Path) -> tuple[int, int] | None:
    """Time and size of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _progress(plan: Plan, run: Run, log: Path, report: Path) -> Progress:
    rows = read_rows(log)
    metric, values = plan.sweep.metric, {}
    needs_values = plan.sweep.prune or plan.sweep.method == "tpe"
    for row in rows:
        if row["split"] == "validation" and metric in row:
            values[row["step"]] = row[metric]
        elif row["split"] == "validation" and needs_values:
            raise KeyError(", ".join(_numbers(row)))
    rates = [row["steps_per_second"] for row in rows if "steps_per_second" in row]
    score = None
    with contextlib.suppress(OSError, ValueError):
        scores = parse_json(report.read_text())
        # A damaged file counts as none: the run is evaluated again.
        if isinstance(scores, dict) and scores.get("step") == plan.steps(run.trial):
            if metric not in _numbers(scores):
                raise KeyError(", ".join(_numbers(scores)))
            score = scores[metric]
    return Progress(
        step=rows[-1]["step"] if rows else 0,
        values=values,
        rate=rates[-1] if rates else 0.0,
        score=score,
        deaths=deaths(plan, run),
    )


def _numbers(report: dict) -> list[str]:
    names = [name for name, value in report.items() if isinstance(value, int | float)]
    return [name for name in names if name not in ("step", "seconds")]


def target(run: Run) -> int:
    """Returns the step that a run was last started to train to; 0 if never started."""
    try:
        return parse_json((run.folder / "config.json").read_text())["train_steps"]
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def deaths(plan: Plan, run: Run) -> tuple[str, ...]:
    """Returns the last line of each death of a run since its last checkpoint."""
    try:
        text = (plan.workdir / "deaths" / run.name).read_text("utf-8")
    except FileNotFoundError:
        return ()
    pairs = [line.partition(" ") for line in text.splitlines()]
    return tuple(line for step, _, line in pairs if step == pairs[-1][0])


def has_failed(lines: Sequence[str]) -> bool:
    """Returns whether a run with these deaths has failed.

    A kill, such as by a scheduler, counts less than an error.
    """
    errors = sum(_KILLED not in line for line in lines)
    return errors >= MAX_ERRORS or len(lines) >= _MAX_DEATHS


def add_death(plan: Plan, run: Run, line: str) -> None:
    """Adds a death of a run."""
    folder = plan.workdir / "deaths"
    folder.mkdir(exist_ok=True)
    saved = CheckpointFolder(run.folder).steps()
    with (folder / run.name).open("a", encoding="utf-8") as file:
        file.write(f"{max(saved, default=0)} {' '.join(line.split())}\n")


class Claim:
    """The exclusive right to work on a run, on all hosts that share the folder.

    A claim is a folder, which only one process can create. It names its owner. It is
    void if the owner is a dead process of this host, or has not refreshed it for two
    minutes.
    """

    def __init__(self, plan: Plan, run: Run):
        self._folder = plan.workdir / "claims" / run.name
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> bool:
        """Returns whether the claim is now this process's."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        if self._folder.exists() and self._is_void():
            self._bury()
        try:
            self._folder.mkdir()
        except FileExistsError:
            return False
        _write_process(self._folder / "owner", os.getpid())
        self._thread = threading.Thread(target=self._refresh, daemon=True)
        self._thread.start()
        return True

    def started(self, pid: int) -> None:
        """Records the process of the run, for whoever takes over the claim."""
        _write_process(self._folder / "process", pid)

    def release(self) -> None:
        """Releases the claim."""
        self._over.set()
        if self._thread:
            self._thread.join()
        self._bury(wait=False)

    def _refresh(self) -> None:
        while not self._over.wait(_REFRESH):
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._folder)

    def _is_void(self) -> bool:
        if _runs_here(self._folder / "owner") is False:
            return True
        try:
            return time.time() - self._folder.stat().st_mtime > _STALE
        except FileNotFoundError:
            return False

    def _bury(self, wait: bool = True) -> None:
        """Removes the claim; only one of several processes succeeds.

        Args:
            wait: wait for the owner's process on this host, which may still be saving.
        """
        grave = self._folder.with_name(f".{self._folder.name}.{os.getpid()}")
        try:
            self._folder.rename(grave)
        except OSError:
            return
        while wait and _runs_here(grave / "process"):
            time.sleep(0.1)
        for path in grave.iterdir():
            path.unlink()
        grave.rmdir()


def _write_process(path: Path, pid: int) -> None:
    """Writes the host, the number and the start of a process."""
    path.write_text(f"{socket.gethostname()} {pid} {started(pid)}")


def _runs_here(path: Path) -> bool | None:
    """Returns whether a written process runs; None on another host, or if unknown."""
    try:
        host, pid, *start = path.read_text().split()
        if host != socket.gethostname():
            return None
        return start == [started(int(pid))]
    except (OSError, ValueError):
        return None


def claimed(plan: Plan) -> Iterator[str]:
    """Yields the names of the runs that have a claim."""
    folder = plan.workdir / "claims"
    for path in sorted(folder.glob("[0-9]*")) if folder.exists() else ():
        yield path.name
