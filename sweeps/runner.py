"""Runs the trials of a sweep on shares of the machine."""

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from base.errors import UserError
from sweeps import state
from sweeps.display import Display
from sweeps.plan import Plan, Run
from sweeps.scheduler import Job, Scheduler
from sweeps.workers import Processes, Share, stopping

ROOT = Path(__file__).parent.parent
_WAIT = 0.5  # polling interval, in seconds


class Runner:
    """Workers in threads, each with a process at a time."""

    def __init__(self, plan: Plan, *, fail_fast: bool = False):
        """Prepares to run a plan.

        Args:
            plan: the plan.
            fail_fast: stop all runs as soon as one has failed.
        """
        self.plan, self._fail_fast = plan, fail_fast
        self.scheduler = Scheduler(plan)
        self._processes = Processes()
        self._error: BaseException | None = None

    def run(self, shares: Sequence[Share], display: Display) -> int:
        """Runs all trials; returns the exit status.

        Returns:
            0, or 128 plus the number of the signal that stopped the sweep.

        Raises:
            UserError: for a metric that the evaluation does not have, or a full disk.
        """
        threads = [
            threading.Thread(target=self._work, args=(share,)) for share in shares
        ]
        with stopping(self._processes):
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                display.update(self.plan)
                time.sleep(_WAIT)
        display.update(self.plan)
        if self._error:
            raise self._error
        return 128 + self._processes.stopped if self._processes.stopped else 0

    def check_failures(self) -> None:
        """Raises a UserError if runs have failed."""
        failed = [run for run in self.plan.runs() if self._has_failed(run)]
        if failed:
            last = state.deaths(self.plan, failed[0])[-1]
            names = ", ".join(run.name for run in failed)
            raise UserError(
                f"{len(failed)} of {len(self.plan.runs())} runs failed "
                f"({names}): {last}; to try again, delete {self.plan.workdir}/deaths"
            )

    def _work(self, share: Share) -> None:
        try:
            while not self._processes.stopped:
                job = self.scheduler.next()
                if job is None:
                    if self.scheduler.is_done():
                        return
                    time.sleep(_WAIT)
                    continue
                try:
                    self._do(job, share)
                finally:
                    job.claim.release()
                if self._fail_fast and self._has_failed(job.run):
                    self._processes.stop(signal.SIGTERM)
                    return
        except OSError as error:
            reason = f"{error.filename or self.plan.workdir}: {error.strerror}"
            self._end(UserError(f"the sweep cannot be written: {reason}"))
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        self._error = self._error or error
        self._processes.stop(signal.SIGTERM)

    def _has_failed(self, run: Run) -> bool:
        return state.has_failed(state.deaths(self.plan, run))

    def _do(self, job: Job, share: Share) -> None:
        """Trains a run to a step, and evaluates it after the last one."""
        plan, run = self.plan, job.run
        logs = plan.workdir / "logs"
        logs.mkdir(exist_ok=True)
        log = logs / f"{run.name}.txt"
        workdir = f"--workdir={run.folder}"
        fields = [f"--config.{x}" for x in (*run.overrides, f"train_steps={job.steps}")]
        calls = [["train.py", f"--config={plan.flag}", workdir, *fields]]
        if job.final:
            split = f"--split={plan.sweep.split}"
            calls.append(["eval.py", workdir, split, "--figures=false"])
        for arguments in calls:
            # The variables of a job of several sweep workers are not for the runs.
            status = self._processes.call(
                [*arguments, "--join=none"],
                share,
                folder=ROOT,
                log=log,
                started=job.claim.started,
            )
            if self._processes.stopped:
                return
            if status:
                state.add_death(plan, run, last_line(log, status))
                return


def last_line(log: Path, status: int) -> str:
    """Returns the last line of a run's output, and its exit status."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").splitlines()
    text = next((line for line in reversed(lines) if line.strip()), "no output")
    ended = f"signal {-status}" if status < 0 else f"status {status}"
    return f"{text} ({ended})"
