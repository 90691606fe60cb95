"""Runs the trials of a sweep on shares of the machine."""

import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from base import storage
from base.errors import UserError
from sweeps import report, scheduler, state, study
from sweeps.plan import Plan, Run
from sweeps.space import describe
from sweeps.workers import Processes, Share, stopping
from training.cluster.lock import Lock

ROOT = Path(__file__).parent.parent
_WAIT = 0.5  # polling interval, in seconds


def run(
    plan: Plan, shares: Sequence[Share], *, joins: bool, fail_fast: bool = False
) -> int:
    """Runs a sweep, or joins it; returns the exit status.

    `joins` says whether another process leads the sweep and writes its tables; with
    `fail_fast`, all runs stop as soon as one has failed.

    Raises:
        UserError: if runs have failed, or the folder cannot be written.
    """
    workdir = plan.workdir
    storage.make_folder(workdir / "trials", f"--workdir={workdir}")
    with Lock(workdir, enabled=not joins):
        try:
            if not joins:
                plan.save()
            status = Runner(plan, fail_fast=fail_fast).run(shares)
            if not joins:
                report.write(plan, state.rows(plan))
                study.plot(plan, state.rows(plan))
        except OSError as error:
            name = error.filename or workdir
            raise UserError(f"{name} cannot be written: {error.strerror}") from error
    runs = {run.name: state.progress(plan, run) for run in plan.runs()}
    if failed := [name for name, progress in runs.items() if progress.has_failed]:
        raise UserError(
            f"{len(failed)} of {len(runs)} runs failed ({', '.join(failed)}): "
            f"{runs[failed[0]].failures[-1]}; to try again, delete {workdir}/failures"
        )
    if status:
        done = sum(progress.score is not None for progress in runs.values())
        line = (
            f"stopped: {done} of {len(runs)} runs are done; the same command continues"
        )
        print(line, file=sys.stderr)
    elif not joins:
        print((workdir / "table.md").read_text("utf-8"), end="")
        print(f"tables and plots are in {workdir}", file=sys.stderr)
    return status


class Job(NamedTuple):
    """Work on a locked run: train it to a step, and evaluate it if that is final."""

    run: Run
    step: int
    final: bool
    lock: Lock


class Runner:
    """Workers in threads, each with a process at a time.

    Attributes:
        plan: the plan.
        is_done: whether no run was left at the last call of `next`, locked or not.
    """

    def __init__(self, plan: Plan, *, fail_fast: bool = False):
        self.plan, self.is_done, self._fail_fast = plan, False, fail_fast
        self._processes, self._mutex = Processes(), threading.Lock()

    def run(self, shares: Sequence[Share]) -> int:
        """Runs all trials; see `run`.

        Returns:
            0, or 128 plus the number of the signal that stopped the sweep.
        """
        with stopping(self._processes), ThreadPoolExecutor(len(shares)) as pool:
            list(pool.map(self._work, shares))
        return 128 + self._processes.stopped if self._processes.stopped else 0

    def next(self) -> Job | None:
        """Returns a job that nobody works on, or None if there is none now.

        Raises:
            UserError: if the sweep of the folder has changed, or lacks its metric.
        """
        with self._mutex:
            runs = scheduler.open_runs(self.plan)
            for run, step in runs:
                if job := self._job(run, step):
                    return job
            self.is_done = not runs and not self.plan.is_growing
            if not self.plan.is_growing:
                return None
            trial = study.suggest(self.plan, state.rows(self.plan))
            run = self.plan.run(trial, self.plan.sweep.seeds[0])
            return self._job(run, self.plan.ladder(trial.point)[0])

    def _job(self, run: Run, step: int) -> Job | None:
        """Returns a job if its run can be locked and still has this work to do."""
        self.plan.verify()
        lock = state.lock(self.plan, run)
        if lock.acquire():
            progress = state.progress(self.plan, run)
            if progress.is_open(step):
                return Job(run, step, step == progress.total, lock)
            lock.release()
        return None

    def _work(self, share: Share) -> None:
        try:
            while not self._processes.stopped:
                if job := self.next():
                    try:
                        self._do(job, share)
                    finally:
                        job.lock.release()
                elif self.is_done:
                    return
                else:
                    time.sleep(_WAIT)
        except BaseException:
            self._processes.stop(signal.SIGTERM)
            raise

    def _do(self, job: Job, share: Share) -> None:
        """Trains a run to a step, and evaluates it after the last one."""
        plan, run = self.plan, job.run
        log = plan.workdir / "logs" / f"{run.name}.txt"
        log.parent.mkdir(exist_ok=True)
        fields = [f"--config.{x}" for x in (*run.overrides, f"train_steps={job.step}")]
        calls = [["train.py", f"--config={plan.flag}", *fields]]
        if job.final:
            calls.append(["eval.py", f"--split={plan.sweep.split}", "--figures=false"])
        name = f"{run.name}  {describe(run.trial.point)}"
        print(f"{name}  running to step {job.step}", file=sys.stderr, flush=True)
        for call in calls:
            # The variables of a job of several sweep workers are not for the runs.
            arguments = [*call, f"--workdir={run.folder}", "--join=none"]
            status = self._processes.call(
                arguments, share, folder=ROOT, log=log, started=job.lock.add
            )
            if self._processes.stopped:
                return
            if status:
                line = last_line(log, status)
                state.record_failure(plan, run, line)
                print(f"{name}  {line}", file=sys.stderr, flush=True)
                if self._fail_fast and state.progress(plan, run).has_failed:
                    self._processes.stop(signal.SIGTERM)
                return
        progress = state.progress(plan, run)
        value = progress.score if job.final else progress.values.get(job.step)
        text = f"{plan.sweep.metric} {value:.4g}" if value is not None else "no metric"
        print(f"{name}  {text}", file=sys.stderr, flush=True)


def last_line(log: Path, status: int) -> str:
    """Returns the last line of a run's output, and its exit status."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").splitlines()
    text = next((line for line in reversed(lines) if line.strip()), "no output")
    ended = f"signal {-status}" if status < 0 else f"status {status}"
    return f"{text} ({ended})"
