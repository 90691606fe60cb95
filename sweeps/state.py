"""The state of the runs of a sweep, read from their folders, and their locks."""

import contextlib
import functools
import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from base.errors import UserError, parse_json
from sweeps.plan import Plan, Run, Trial
from training import run_directory
from training.cluster.lock import Lock
from training.log import read_rows

MAX_ERRORS = 3  # of a run without a new checkpoint
_MAX_FAILURES = 10  # the same, kills included
_KILLED = "(signal "  # in the line of a failure that was not the run's own


class Progress(NamedTuple):
    """Progress of a run.

    Attributes:
        step: the last step with a row in its log, 0 if there is none.
        target: the step that it was last started to train to, 0 if never started.
        total: the step that completes it.
        values: validation metric by step.
        score: metric of the final evaluation; None before it.
        failures: last line of output of each failure since the last checkpoint.
    """

    step: int
    target: int
    total: int
    values: Mapping[int, float]
    score: float | None
    failures: tuple[str, ...]

    @property
    def has_failed(self) -> bool:
        """True if the run is not started again; a kill counts less than an error."""
        errors = sum(_KILLED not in line for line in self.failures)
        return errors >= MAX_ERRORS or len(self.failures) >= _MAX_FAILURES

    def is_open(self, step: int) -> bool:
        """Returns whether the run has work to do until a step or its evaluation."""
        is_done = step in self.values if step < self.total else self.score is not None
        return not (is_done or self.has_failed)


class Row(NamedTuple):
    """A trial and the progress of its runs, by seed."""

    trial: Trial
    runs: tuple[Progress, ...]

    @property
    def scores(self) -> list[float]:
        """Metric of the final evaluation of each scored run."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def mean(self) -> float | None:
        """Mean score over all seeds; None unless all are scored."""
        scores = self.scores
        return statistics.mean(scores) if len(scores) == len(self.runs) else None

    @property
    def values(self) -> dict[int, float]:
        """Mean validation metric over all seeds, by steps that all have reached."""
        runs = [run.values for run in self.runs]
        steps = functools.reduce(operator.and_, (values.keys() for values in runs))
        return {x: statistics.mean(values[x] for values in runs) for x in sorted(steps)}


def rows(plan: Plan) -> list[Row]:
    """Returns the trials with the progress of their runs.

    Raises:
        UserError: if an evaluation does not have the metric.
    """
    return [
        Row(trial, tuple(progress(plan, plan.run(trial, x)) for x in plan.sweep.seeds))
        for trial in plan.trials
    ]


def progress(plan: Plan, run: Run) -> Progress:
    """Returns the progress of a run; reads its files only if they have changed.

    Raises:
        UserError: if an evaluation does not have the metric.
    """
    names = "metrics.jsonl", f"eval_{plan.sweep.split}.json", "config.json"
    files = *(run.folder / x for x in names), plan.workdir / "failures" / run.name
    needs_values = bool(plan.sweep.prune or plan.sweep.method == "tpe")
    total, versions = plan.ladder(run.trial.point)[-1], tuple(map(_version, files))
    return _progress(files, versions, plan.sweep.metric, total, needs_values)


def _version(path: Path) -> tuple[int, int] | None:
    """Time and size of a file; None if there is none."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return None


@functools.lru_cache(maxsize=10_000)
def _progress(
    files: Sequence[Path], _: Any, metric: str, total: int, needs_values: bool
) -> Progress:
    log, report, config, failures = files
    rows, scores = read_rows(log), _read_json(report)
    text = failures.read_text("utf-8") if failures.exists() else ""
    pairs = [line.partition(" ") for line in text.splitlines()]
    return Progress(
        step=rows[-1]["step"] if rows else 0,
        target=_read_json(config).get("train_steps") or 0,
        total=total,
        values={
            row["step"]: _metric(row, metric)
            for row in rows
            if row["split"] == "validation" and (needs_values or metric in row)
        },
        # A damaged file counts as none: the run is evaluated again.
        score=_metric(scores, metric) if scores.get("step") == total else None,
        failures=tuple(line for step, _, line in pairs if step == pairs[-1][0]),
    )


def _read_json(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        content = parse_json(path.read_text())
        return content if isinstance(content, dict) else {}
    return {}


def _metric(scores: Mapping[str, Any], metric: str) -> float:
    numbers = [name for name, x in scores.items() if isinstance(x, int | float)]
    if metric not in numbers:
        names = ", ".join(x for x in numbers if x not in ("step", "seconds"))
        raise UserError(f"sweep.metric is {metric}: must be one of {names}")
    return scores[metric]


def record_failure(plan: Plan, run: Run, line: str) -> None:
    """Records a failure of a run, with the last line of its output."""
    path = plan.workdir / "failures" / run.name
    path.parent.mkdir(exist_ok=True)
    saved = run_directory.steps(run.folder)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{max(saved, default=0)} {' '.join(line.split())}\n")


def best_first(plan: Plan, values: Mapping[int, float]) -> list[int]:
    """Returns the numbers of trials by value, best first, values not finite last."""
    sign = -1 if plan.sweep.goal == "max" else 1
    costs = {n: sign * x if math.isfinite(x) else math.inf for n, x in values.items()}
    return sorted(values, key=lambda number: (costs[number], number))


def lock(plan: Plan, run: Run) -> Lock:
    """Returns the lock of a run: the right to work on it."""
    folder = plan.workdir / "locks"
    folder.mkdir(exist_ok=True)
    return Lock(folder, run.name)
