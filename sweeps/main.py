"""The work of `sweep.py`: a sweep from its flags to its tables."""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax

from base.errors import UserError, parse_whole, shorten
from sweeps import plan as plans
from sweeps import report, space, state, workers
from sweeps.display import Display
from sweeps.plan import Plan, Trial
from sweeps.runner import ROOT, Runner, last_line
from sweeps.space import Sweep
from training import configuration
from training.cluster.lock import Lock
from training.log import read_rows

_TIMED_STEPS = 20


def run(
    *,
    config: str | None,
    overrides: Sequence[str],
    sweep: str | None,
    grid: Sequence[str],
    workdir: Path,
    workers: int,
    joins: bool,
    dry_run: bool,
    fail_fast: bool,
) -> int:
    """Runs a sweep; see the flags of `sweep.py`.

    Returns:
        The exit status.

    Raises:
        UserError: for a mistake in the flags, the sweep or a config, or failed runs.
    """
    chosen = plans.read_file(sweep) if sweep else read_grid(grid)
    plan = Plan(chosen, config, overrides, workdir, joins=joins)
    if joins and plan.sweep.method == "tpe":
        raise UserError(
            "--worker: a sweep with the method tpe runs on one machine only"
        )
    if joins and not (workdir / "sweep.json").exists():
        raise UserError(f"--worker: {workdir} has no sweep.json: start the sweep first")
    shares = _shares(workers)
    plan.check()
    if dry_run:
        _list(plan, shares)
        return 0
    runner = Runner(plan, fail_fast=fail_fast)
    plan.make_folder()
    with Lock(workdir, enabled=not joins):
        status = _run(plan, runner, shares, joins)
    runner.check_failures()
    if not status and not joins:
        print((workdir / "table.md").read_text("utf-8"), end="")
        print(f"tables and plots are in {workdir}", file=sys.stderr)
    if status:
        runs = plan.runs()
        done = sum(state.progress(plan, run).score is not None for run in runs)
        line = (
            f"stopped: {done} of {len(runs)} runs are done; the same command continues"
        )
        print(line, file=sys.stderr)
    return status


def _run(
    plan: Plan, runner: Runner, shares: Sequence[workers.Share], joins: bool
) -> int:
    """Runs the trials, and writes the tables; returns the exit status."""
    if not joins:
        plan.save()
    display = Display()
    try:
        status = runner.run(shares, display)
    finally:
        display.close()
    if not joins:
        try:
            report.write(plan)
        except OSError as error:
            reason = f"{error.filename or plan.workdir}: {error.strerror}"
            raise UserError(f"the tables cannot be written: {reason}") from error
    return status


def _shares(count: int) -> list[workers.Share]:
    return workers.shares(count, "--workers")


def _list(plan: Plan, shares: Sequence[workers.Share]) -> None:
    """Prints the trials with their parameters, and the estimated hours."""
    trials = plan.trials or [Trial(0, {})]
    for trial in plan.trials:
        config = configuration.read(plan.flag, plan.run(trial, 0).overrides)
        task = config.task(config)
        state = jax.eval_shape(task.objective.init, jax.random.key(0))
        count = sum(x.size for x in jax.tree.leaves(state.params))
        print(f"{trial.number:03}  {plans.describe(trial.point)}  {count:,} parameters")
    if not plan.trials:
        print(f"{plan.sweep.trials} trials, chosen during the sweep")
    count = (plan.sweep.trials if plan.sweep.method == "tpe" else len(trials)) or 1
    runs = count * len(plan.sweep.seeds)
    seconds = _seconds_per_step(plan, plan.run(trials[0], plan.sweep.seeds[0]), shares)
    lengths = [plan.steps(trial) for trial in trials]
    hours = seconds * statistics.mean(lengths) * runs / len(shares) / 3600
    length = " to ".join(f"{x:,}" for x in sorted({min(lengths), max(lengths)}))
    print(
        f"{runs} runs of {length} steps: about {hours:.1f} hours with {len(shares)} "
        "workers at the speed of the first trial, without compilation, evaluation and "
        "pruning"
    )


def _seconds_per_step(
    plan: Plan, run: plans.Run, shares: Sequence[workers.Share]
) -> float:
    """Times a few steps of a run, after compilation."""
    steps = {"train_steps": _TIMED_STEPS, "eval_every": 10**6, "log_every": 5}
    fields = [f"--config.{x}" for x in run.overrides]
    fields += [f"--config.{name}={value}" for name, value in steps.items()]
    with tempfile.TemporaryDirectory() as folder:
        log, workdir = Path(folder) / "log.txt", Path(folder) / "run"
        command = ["train.py", f"--config={plan.flag}", f"--workdir={workdir}", *fields]
        status = workers.Processes().call(command, shares[0], folder=ROOT, log=log)
        rows = read_rows(workdir / "metrics.jsonl")
        rates = [row["steps_per_second"] for row in rows if "steps_per_second" in row]
        if not rates:
            raise UserError(f"the timing failed: {last_line(log, status)}")
    return 1 / rates[-1]


def read_grid(texts: Sequence[str]) -> Sweep:
    """Returns the sweep of flags such as "model.score=dot,general" and "seed=0,1".

    A value that begins with a bracket ends with it: "data.tasks=(1,2),(3,)".

    Raises:
        UserError: for a text of another form.
    """
    domains: dict[str | tuple[str, ...], space.Domain] = {}
    seeds: tuple[int, ...] = (0,)
    given: set[str] = set()
    for text in texts:
        field, equals, values = text.partition("=")
        parts, flag = _split(values), f"--grid={shorten(text)}"
        if not (field and equals and all(parts)):
            raise UserError(f"{flag}: must be FIELD=VALUE,VALUE,...")
        if field in given:
            raise UserError(f"{flag}: {field} must be given once")
        given.add(field)
        if field == "seed":
            try:
                seeds = tuple(map(parse_whole, parts))
            except ValueError:
                raise UserError(f"{flag}: seeds must be whole numbers") from None
        else:
            domains[field] = space.choice(*parts)
    return Sweep(space=domains, seeds=seeds)


def _split(values: str) -> list[str]:
    """Splits values at the commas outside of lists in brackets."""
    parts, depth = [""], 0
    for character in values:
        if character == "," and not depth:
            parts.append("")
            continue
        if depth or not parts[-1]:  # a bracket inside of a text is of the text
            depth += (character in "([") - (character in ")]")
        parts[-1] += character
    return parts
