"""Shows the runs of a sweep while they train: a live table, or lines."""

import sys
from typing import Any

from sweeps import plan as plans
from sweeps import state
from sweeps.plan import Plan, Run
from sweeps.state import Progress

_MAX_ROWS = 30  # of the live table


class Display:
    """A live table in a terminal; otherwise a line for every change."""

    def __init__(self):
        self._live: Any = None
        self._shown: dict[str, str] = {}
        if sys.stderr.isatty():
            from rich import console, live

            terminal = console.Console(stderr=True)
            self._live = live.Live(console=terminal, refresh_per_second=1)
            self._live.start()

    def update(self, plan: Plan) -> None:
        """Shows the state of all runs."""
        claimed = set(state.claimed(plan))
        rows = []
        for run in plan.runs():
            try:
                progress = state.progress(plan, run)
            except KeyError:  # reported by the scheduler
                continue
            rows.append((run, progress, status(run, progress, claimed)))
        if self._live:
            self._live.update(_table(plan, rows))
            return
        for run, progress, text in rows:
            value = _last(progress)
            line = f"{run.name}  {plans.describe(run.trial.point)}  {text}{value}"
            key = f"{text} {value}"
            if self._shown.get(run.name) != key and (text != "waiting"):
                print(line, file=sys.stderr, flush=True)
            self._shown[run.name] = key

    def close(self) -> None:
        """Ends the display."""
        if self._live:
            self._live.stop()


def status(run: Run, progress: Progress, claimed: set[str]) -> str:
    """Returns what a run is doing: done, failed, running, stopped or waiting."""
    if progress.score is not None:
        return "done"
    if state.has_failed(progress.deaths):
        return "failed"
    if run.name in claimed:
        return "running"
    return "stopped" if progress.step else "waiting"


def _last(progress: Progress) -> str:
    if progress.score is not None:
        return f"  {progress.score:.4g}"
    if not progress.values:
        return ""
    step = max(progress.values)
    return f"  {progress.values[step]:.4g} at step {step}"


def _table(plan: Plan, rows: list[tuple[Run, Progress, str]]) -> Any:
    """The live table; runs that are done or waiting are left out if it is long."""
    from rich.table import Table

    done = sum(text == "done" for *_, text in rows)
    if len(rows) > _MAX_ROWS:
        rows = [row for row in rows if row[2] not in ("done", "waiting")]
    table = Table(title=f"{plan.workdir}: {done} of {len(plan.runs())} runs done")
    for name in ("run", "overrides", "state", "step", plan.sweep.metric, "left"):
        table.add_column(name)
    for run, progress, text in rows[:_MAX_ROWS]:
        total = plan.steps(run.trial)
        rate = progress.rate if text == "running" else 0.0
        left = f"{(total - progress.step) / rate / 60:.1f} min" if rate else ""
        step, point = f"{progress.step}/{total}", plans.describe(run.trial.point)
        table.add_row(run.name, point, text, step, _last(progress).strip(), left)
    return table
