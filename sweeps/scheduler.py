"""Chooses the next run of a sweep from the state of its folder.

The choice is a function of the run directories, so a sweep continues after any of its
processes is killed. With pruning this is asynchronous successive halving (Li et
al., 2020), algorithm 2: a trial whose value at a rung is among the best goes on to the
next rung before a new trial starts.
"""

import math
import statistics
import threading
from collections.abc import Sequence
from typing import NamedTuple

from base.errors import UserError
from sweeps import tpe
from sweeps.plan import Plan, Run, Trial
from sweeps.state import Claim, Progress, has_failed, progress, target


class Job(NamedTuple):
    """Work on a run.

    Attributes:
        run: the run.
        steps: the step to train to.
        final: whether to evaluate the run afterwards.
        claim: the claim, to be released at the end.
    """

    run: Run
    steps: int
    final: bool
    claim: Claim


class Scheduler:
    """Hands out jobs to the workers of this process; see the module docstring."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._lock = threading.Lock()
        self.rungs = rungs(plan)

    def next(self) -> Job | None:
        """Returns a job that nobody works on, or None if there is none now."""
        with self._lock:
            for run, rung in self._candidates():
                claim = Claim(self.plan, run)
                if not claim.acquire():
                    continue
                try:
                    self.plan.verify(run)
                    if self._is_open(run, rung):  # it may have changed before the claim
                        return self._job(run, rung, claim)
                except UserError:
                    claim.release()
                    raise
                claim.release()
            if self.plan.sweep.method != "tpe":
                return None
            trial = tpe.suggest(self.plan, self._values())
            if trial is None:
                return None
            run = self.plan.run(trial, self.plan.sweep.seeds[0])
            claim = Claim(self.plan, run)
            if not claim.acquire():
                return None
            return self._job(run, 0, claim)

    def _job(self, run: Run, rung: int, claim: Claim) -> Job:
        steps = self._steps(run.trial)
        return Job(run, steps[rung], rung == len(steps) - 1, claim)

    def _steps(self, trial: Trial) -> Sequence[int]:
        """The steps at which a trial stops, the last step included."""
        return (*self.rungs, self.plan.steps(trial))

    def is_done(self) -> bool:
        """Returns whether no job is left, claimed or not."""
        with self._lock:
            complete = len(self.plan.trials) >= (self.plan.sweep.trials or 0)
            return not self._candidates() and (
                complete or self.plan.sweep.method != "tpe"
            )

    def _values(self) -> dict[int, dict[int, float]]:
        """By number of the trial, the mean value over seeds at each reached rung."""
        return {
            trial.number: {
                step: value
                for step in self._steps(trial)
                if (value := self._value(trial, step)) is not None
            }
            for trial in self.plan.trials
        }

    def _value(self, trial: Trial, step: int) -> float | None:
        values = [
            self._progress(trial, seed).values.get(step)
            for seed in self.plan.sweep.seeds
        ]
        present = [value for value in values if value is not None]
        return statistics.mean(present) if len(present) == len(values) else None

    def _progress(self, trial: Trial, seed: int) -> Progress:
        run = self.plan.run(trial, seed)
        try:
            return progress(self.plan, run)
        except KeyError as error:
            raise UserError(
                f"sweep.metric is {self.plan.sweep.metric}: must be one of "
                f"{error.args[0]}"
            ) from error

    def _candidates(self) -> list[tuple[Run, int]]:
        """Runs with work to do and the rung to train to, the highest rung first."""
        allowed = self._allowed()
        pairs = [
            (self.plan.run(trial, seed), allowed[trial.number])
            for trial in self.plan.trials
            for seed in self.plan.sweep.seeds
        ]
        pairs = [pair for pair in pairs if self._is_open(*pair)]
        return sorted(pairs, key=lambda pair: -pair[1])  # stable

    def _is_open(self, run: Run, rung: int) -> bool:
        state = self._progress(run.trial, run.seed)
        if has_failed(state.deaths):
            return False
        if rung == len(self.rungs):
            return state.score is None
        return self.rungs[rung] not in state.values

    def _allowed(self) -> dict[int, int]:
        """The rung that each trial may train to, by number."""
        last = len(self.rungs)
        if not last:
            return {trial.number: 0 for trial in self.plan.trials}
        values = self._values()
        allowed = {}
        for trial in self.plan.trials:
            rung = 0
            while rung < last and self._goes_on(trial, self.rungs[rung], values):
                rung += 1
            # A trial that has begun a rung stays there.
            begun = [target(self.plan.run(trial, x)) for x in self.plan.sweep.seeds]
            steps = self._steps(trial)
            started = [i for i, step in enumerate(steps) if step <= max(begun)]
            allowed[trial.number] = max([rung, *started])
        self._finish_one(allowed, values)
        return allowed

    def _finish_one(
        self, allowed: dict[int, int], values: dict[int, dict[int, float]]
    ) -> None:
        """Lets the best trial go on if all have stopped before the last step.

        With few trials the best 1 / factor of those at a rung may be none.
        """
        if max(allowed.values(), default=0) == len(self.rungs) or any(
            self._is_open(self.plan.run(trial, seed), allowed[trial.number])
            for trial in self.plan.trials
            for seed in self.plan.sweep.seeds
        ):
            return
        if self.plan.sweep.method == "tpe" and len(self.plan.trials) < (
            self.plan.sweep.trials or 0
        ):
            return
        rung = max(allowed.values(), default=0)
        step = self.rungs[rung]
        reached = {n: x[step] for n, x in values.items() if step in x}
        if reached:
            allowed[min(reached, key=lambda n: self.plan.order(reached[n], n))] = (
                rung + 1
            )

    def _goes_on(
        self, trial: Trial, step: int, values: dict[int, dict[int, float]]
    ) -> bool:
        """Returns whether a trial is among the best 1 / factor at a rung."""
        reached = {number: x[step] for number, x in values.items() if step in x}
        if trial.number not in reached or self.plan.sweep.prune is None:
            return False
        order = sorted(reached, key=lambda n: self.plan.order(reached[n], n))
        return trial.number in order[: len(reached) // self.plan.sweep.prune.factor]


def rungs(plan: Plan) -> Sequence[int]:
    """Returns the steps at which trials stop and may go on, before the last step.

    Raises:
        UserError: if pruning would begin after the last step.
    """
    prune, total = plan.sweep.prune, plan.config.train_steps
    if prune is None:
        return ()
    first = prune.after * plan.config.eval_every
    if first >= total:
        raise UserError(
            f"sweep.prune.after is {prune.after}: must be below "
            f"{math.ceil(total / plan.config.eval_every)}, the number of evaluations"
        )
    steps = []
    while first < total:
        steps.append(first)
        first *= prune.factor
    return steps
