"""The trials of a sweep with their parameters, and the time that it will take."""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from base.errors import UserError, bounds, counted
from sweeps import space
from sweeps.plan import Plan, Run, Trial
from sweeps.runner import ROOT, last_line
from sweeps.workers import Processes, Share
from training import checks, configuration
from training.log import read_rows

_TIMED_STEPS = 20


def show(plan: Plan, shares: Sequence[Share]) -> None:
    """Prints the trials with their parameters, and the estimated time."""
    trials = plan.trials or [Trial(0, {})]
    assets: dict[tuple, Any] = {}  # of trials that have the same
    for trial in plan.trials:
        config = configuration.read(plan.flag, plan.run(trial, 0).overrides)
        encoder = config.model.get("encoder")  # which may need feature maps
        key = config.task, config.seed, str(config.data), encoder
        if key not in assets:
            with tempfile.TemporaryDirectory() as folder:
                workdir = Path(folder)
                assets[key] = config.task.prepare(config, workdir, training=True)
        with checks.model_errors(config):
            task = config.task(config, assets[key])
        abstract = jax.eval_shape(task.objective.init, jax.random.key(0))
        size = counted(
            sum(x.size for x in jax.tree.leaves(abstract.params)), "parameter"
        )
        print(f"{trial.number:03}  {space.describe(trial.point)}  {size}")
    if plan.is_growing:
        print(f"{plan.sweep.trials} trials, chosen during the sweep")
    count = plan.sweep.trials if plan.is_growing else len(trials)
    runs = (count or 1) * len(plan.sweep.seeds)
    steps = [plan.ladder(trial.point)[-1] for trial in trials]
    run = plan.run(trials[0], plan.sweep.seeds[0])
    seconds = _seconds_per_step(plan, run, min(steps[0], _TIMED_STEPS), shares)
    total = seconds * statistics.mean(steps) * runs / len(shares)
    print(
        f"{counted(runs, 'run')} of {bounds(min(steps), max(steps))} steps: "
        f"{_duration(total)} with "
        f"{counted(len(shares), 'worker')} at the speed of the first "
        "trial, without start, compilation, evaluation and pruning"
    )


def _duration(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if seconds >= size:
            return f"about {seconds / size:.1f} {unit}"
    return "less than a second"


def _seconds_per_step(
    plan: Plan, run: Run, steps: int, shares: Sequence[Share]
) -> float:
    """Times the first steps of a run, after compilation."""
    settings = {"train_steps": steps, "eval_every": 10**6, "log_every": 5}
    fields = [f"--config.{x}" for x in run.overrides]
    fields += [f"--config.{name}={value}" for name, value in settings.items()]
    with tempfile.TemporaryDirectory() as folder:
        log, workdir = Path(folder) / "log.txt", Path(folder) / "run"
        command = ["train.py", f"--config={plan.flag}", f"--workdir={workdir}", *fields]
        status = Processes().call(command, shares[0], folder=ROOT, log=log)
        rows = read_rows(workdir / "metrics.jsonl")
        rates = [row["steps_per_second"] for row in rows if "steps_per_second" in row]
        if not rates:
            raise UserError(f"the timing failed: {last_line(log, status)}")
    return 1 / rates[-1]
