"""The work that is left of a sweep, a function of its run directories.

So a sweep continues after any of its processes is killed. With pruning this is
asynchronous successive halving (Li et al., 2020), algorithm 2: a trial whose value at a
rung is among the best goes on to the next rung before a new trial starts.
"""

from collections.abc import Mapping, Sequence

from sweeps import state
from sweeps.plan import Plan, Run
from sweeps.state import Row


def open_runs(plan: Plan) -> list[tuple[Run, int]]:
    """Returns the runs with work to do and their next step, the highest rung first.

    Raises:
        UserError: if an evaluation does not have the metric.
    """
    rows = state.rows(plan)
    levels = _levels(plan, rows)
    runs, highest = _open(plan, rows, levels), max(levels.values(), default=0)
    # With few trials, the best 1 / factor of those at a rung may be none: the best goes
    # on if all have stopped before the last step.
    if not runs and highest < len(plan.rungs) and not plan.is_growing:
        best = _best_at(plan, rows, plan.rungs[highest])[:1]
        runs = _open(plan, rows, levels | dict.fromkeys(best, highest + 1))
    return runs


def _open(
    plan: Plan, rows: Sequence[Row], levels: Mapping[int, int]
) -> list[tuple[Run, int]]:
    runs = []
    for row in sorted(rows, key=lambda row: -levels[row.trial.number]):  # stable
        step = plan.ladder(row.trial.point)[levels[row.trial.number]]
        for seed, progress in zip(plan.sweep.seeds, row.runs, strict=True):
            if progress.is_open(step):
                runs.append((plan.run(row.trial, seed), step))
    return runs


def _levels(plan: Plan, rows: Sequence[Row]) -> dict[int, int]:
    """The position in its ladder that each trial may train to, by number."""
    promoted = []  # by rung
    for step in plan.rungs:
        order = _best_at(plan, rows, step)
        promoted.append(order[: len(order) // plan.sweep.prune.factor])
    levels = {}
    for row in rows:
        # A trial that has begun a rung stays there.
        target = max(run.target for run in row.runs)
        level = sum(step <= target for step in plan.ladder(row.trial.point)[1:])
        while level < len(promoted) and row.trial.number in promoted[level]:
            level += 1
        levels[row.trial.number] = level
    return levels


def _best_at(plan: Plan, rows: Sequence[Row], step: int) -> list[int]:
    """The numbers of the trials that have reached a rung, best first."""
    values = {row.trial.number: row.values.get(step) for row in rows}
    reached = {number: x for number, x in values.items() if x is not None}
    return state.best_first(plan, reached)
