"""Tables and plots of a sweep: table.md, table.csv and plots/."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from base import storage
from figures import canvas, charts
from sweeps import figures as search
from sweeps import plan as plans
from sweeps import state, tpe
from sweeps.plan import Plan, Trial
from sweeps.state import Progress


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
        complete = len(self.scores) == len(self.runs)
        return statistics.mean(self.scores) if complete else None


def rows(plan: Plan) -> list[Row]:
    """Returns the trials with their progress, best first, the unscored ones last."""
    given = [
        Row(
            trial,
            tuple(
                state.progress(plan, plan.run(trial, seed)) for seed in plan.sweep.seeds
            ),
        )
        for trial in plan.trials
    ]

    def order(row: Row) -> tuple[bool, tuple[bool, float, int]]:
        mean = math.nan if row.mean is None else row.mean
        return row.mean is None, plan.order(mean, row.trial.number)

    return sorted(given, key=order)


def write(plan: Plan) -> list[Path]:
    """Writes the tables and the plots of a sweep; returns their paths."""
    table = rows(plan)
    paths = [_write_csv(plan, table), _write_markdown(plan, table)]
    if canvas.available():
        paths += _plots(plan, table)
    return paths


def _write_csv(plan: Plan, table: Sequence[Row]) -> Path:
    path, metric = plan.workdir / "table.csv", plan.sweep.metric
    fields = _fields(plan)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    seeds = [f"{metric}_seed{seed}" for seed in plan.sweep.seeds]
    writer.writerow(["trial", *fields, metric, f"{metric}_sd", *seeds, "steps"])
    for row in table:
        scores = ["" if run.score is None else repr(run.score) for run in row.runs]
        mean = "" if row.mean is None else repr(row.mean)
        spread = repr(_spread(row.scores)) if len(row.scores) > 1 else ""
        values = [row.trial.point.get(field, "") for field in fields]
        steps = min(run.step for run in row.runs)
        writer.writerow([row.trial.number, *values, mean, spread, *scores, steps])
    storage.write(path, text.getvalue())
    return path


def _write_markdown(plan: Plan, table: Sequence[Row]) -> Path:
    metric, fields = plan.sweep.metric, _fields(plan)
    lines = []
    for row in table:
        total = plan.steps(row.trial)
        scores = row.scores
        cell = f"{statistics.mean(scores):.4g}" if scores else "–"
        if len(scores) > 1:
            cell += f" ± {_spread(scores):.2g}"
        if len(scores) < len(row.runs):
            cell += f" ({len(scores)} of {len(row.runs)} seeds)"
        steps = min(run.step for run in row.runs)
        note = "" if steps >= total else f"{steps} of {total} steps"
        last = [run.values[max(run.values)] for run in row.runs if run.values]
        if note and len(last) == len(row.runs):
            note += f": {statistics.mean(last):.4g}"
        values = [str(row.trial.point.get(field, "–")) for field in fields]
        lines.append([str(row.trial.number), *values, cell, note])
    header = ["trial", *fields, f"{metric} ({plan.sweep.split})", "stopped at"]
    return storage.write_markdown(plan.workdir / "table.md", header, lines)


def _spread(scores: Sequence[float]) -> float:
    """The standard deviation; not a number if a score is not finite."""
    return statistics.stdev(scores) if all(map(math.isfinite, scores)) else math.nan


def _fields(plan: Plan) -> list[str]:
    return plans.space.swept(plan.sweep)


def _plots(plan: Plan, table: Sequence[Row]) -> list[Path]:
    """The learning curves, and plots of the scored trials if there are two."""
    folder = plan.workdir / "plots"
    folder.mkdir(exist_ok=True)
    curves: dict[str, dict[str, list[float]]] = {}
    for row in sorted(table, key=lambda row: row.trial.number):
        line: dict[str, list[float]] = {}
        for run in row.runs:
            for step, value in run.values.items():
                line.setdefault(f"{step}", []).append(value)
        if any(math.isfinite(sum(values)) for values in line.values()):
            name = f"{row.trial.number}: {plans.describe(row.trial.point)}"
            curves[name] = line
    paths = []
    if curves:
        title = f"Validation {plan.sweep.metric} of all trials"
        titles = {"axis_title": "steps", "value_title": plan.sweep.metric}
        path = folder / "learning_curves.png"
        paths.append(charts.lines(curves, title, path, **titles))
    scored = [row for row in table if row.mean is not None and math.isfinite(row.mean)]
    scored.sort(key=lambda row: row.trial.number)
    if len(scored) > 1 and plan.sweep.space:
        paths += _search_plots(plan, scored, folder)
    return paths


def _search_plots(plan: Plan, scored: Sequence[Row], folder: Path) -> list[Path]:
    """Plots of the scored trials; Optuna computes the importance of the fields."""
    scores = {row.trial.number: row.mean or 0.0 for row in scored}
    fields = {
        name: values
        for name in _fields(plan)
        if len(set(values := [row.trial.point.get(name) for row in scored])) > 1
    }
    options = {"metric": plan.sweep.metric, "goal": plan.sweep.goal}
    paths = [search.metric_by_trial(scores, folder / "metric_by_trial.png", **options)]
    values = list(scores.values())
    for name in ("slices", "parallel_coordinates"):
        path = folder / f"{name}.png"
        paths.append(getattr(search, name)(fields, values, path, **options))
    shares = tpe.importance(plan, scores)
    if shares:
        title = f"Importance of the fields for {plan.sweep.metric} (PED-ANOVA)"
        path = folder / "importance.png"
        paths.append(
            charts.bars(shares, title, path, axis_title="field", value_title="share")
        )
    return paths
