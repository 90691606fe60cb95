"""Tables of a sweep: table.md and table.csv."""

import csv
import io
import math
import statistics
from collections.abc import Sequence

from base import storage
from base.storage import markdown_table
from sweeps import state
from sweeps.plan import Plan
from sweeps.state import Row


def write(plan: Plan, rows: Sequence[Row]) -> None:
    """Writes the tables, the trials without a score last."""
    means = {row.trial.number: row.mean for row in rows if row.mean is not None}
    places = {number: i for i, number in enumerate(state.best_first(plan, means))}
    table = sorted(rows, key=lambda row: places.get(row.trial.number, len(rows)))
    metric, fields = plan.sweep.metric, plan.sweep.fields
    text, cells = io.StringIO(), []
    writer = csv.writer(text, lineterminator="\n")
    seeds = [f"{metric}_seed{seed}" for seed in plan.sweep.seeds]
    writer.writerow(["trial", *fields, metric, f"{metric}_sd", *seeds, "steps"])
    for row in table:
        number, point = row.trial
        step = min(run.step for run in row.runs)
        scores = ["" if run.score is None else repr(run.score) for run in row.runs]
        mean = "" if row.mean is None else repr(row.mean)
        spread = repr(_spread(row)) if len(row.scores) > 1 else ""
        values = [point.get(field, "") for field in fields]
        writer.writerow([number, *values, mean, spread, *scores, step])
        values = [str(point.get(field, "–")) for field in fields]
        cells.append([str(number), *values, _score(row), _unfinished(plan, row)])
    header = ["trial", *fields, f"{metric} ({plan.sweep.split})", "unfinished"]
    storage.write(plan.workdir / "table.csv", text.getvalue())
    table = markdown_table(header, cells, right_aligned=0)
    storage.write(plan.workdir / "table.md", f"{table}\n")


def _spread(row: Row) -> float:
    """The standard deviation; not a number if a score is not finite."""
    finite = all(map(math.isfinite, row.scores))
    return statistics.stdev(row.scores) if finite else math.nan


def _score(row: Row) -> str:
    """Mean and standard deviation over all seeds; a mean of some is not comparable."""
    if row.mean is None:
        return f"– ({len(row.scores)} of {len(row.runs)} seeds)"
    spread = f" ± {_spread(row):.2g}" if len(row.scores) > 1 else ""
    return f"{row.mean:.4g}{spread}"


def _unfinished(plan: Plan, row: Row) -> str:
    """The step and the metric of a trial that was pruned, or the steps of its seeds."""
    total, values = row.runs[0].total, row.values
    if plan.sweep.prune and values and not row.scores:
        step = max(values)
        return f"stopped at {step} of {total} steps: {values[step]:.4g}"
    seeds = zip(plan.sweep.seeds, row.runs, strict=True)
    return ", ".join(
        f"seed {seed}: {run.step} of {total} steps"
        for seed, run in seeds
        if run.step < total
    )
