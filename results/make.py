"""Does the reported runs that are missing and writes their records and tables.

    python -m results.make               # those of every table
    python -m results.make translation   # those of the tables named

A run that stopped half-way goes on, one that is done is only scored; delete a record
and its folder under `runs/` to do it again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import Any

from ml_collections import ConfigDict

from errors import UserError
from results import tables
from results.reported import FIGURES, TABLES, Curves, Run
from training import configuration
from training.log import read_rows

ROOT = Path(__file__).parent.parent


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes what is missing of the tables named in the arguments, or of all.

    Raises:
        UserError: for a name that no table has.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="NAME", help=", ".join(TABLES))
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at a time, each on its own cores"
    )
    args = parser.parse_args(arguments)
    names = args.tables or list(TABLES)
    for name in names:
        if name not in TABLES:
            raise UserError(f"no table is called {name}: there is {', '.join(TABLES)}")
    missing = [
        (run, seed)
        for name in names
        for run in TABLES[name].runs
        for seed in run.seeds
        if not is_current(run, seed)
    ]
    if not missing:
        print("every run has its record: delete one, and its folder, to do it again")
    free = Queue()
    for cores in shares(args.jobs):
        free.put(cores)

    def one(run: Run, seed: int) -> None:
        cores = free.get()
        try:
            make(run, seed, cores)
        finally:
            free.put(cores)

    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            waiting = [pool.submit(one, *which) for which in missing]
            for done in as_completed(waiting):
                done.result()
        except BaseException:  # a failed run, or Ctrl-C: what has not begun does not
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    tables.write()


def shares(jobs: int) -> list[list[int]]:
    """Returns the cores of each of `jobs` processes, as even as it goes.

    Raises:
        UserError: for fewer than one core, or one process, each.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if jobs < 1 or (jobs > 1 and jobs > len(cores)):
        raise UserError(f"--jobs is {jobs}: must be in 1..{max(len(cores), 1)}")
    return [cores[i::jobs] for i in range(jobs)]


def record_path(run: Run, seed: int) -> Path:
    """Returns where the record of a run is kept."""
    return tables.RESULTS / f"{_label(run, seed)}.json"


def is_current(run: Run, seed: int) -> bool:
    """Whether there is a record of this config, with the values that it has now."""
    path = record_path(run, seed)
    if not path.exists():
        return False
    record = json.loads(path.read_text("utf-8"))
    return all(
        record.get(name) == value for name, value in _identity(run, seed).items()
    )


def make(run: Run, seed: int, cores: Sequence[int] = ()) -> None:
    """Trains as far as that is missing, scores the test split, writes the record."""
    workdir = Path("runs") / _label(run, seed)
    train, score = commands(run, seed)
    if not _is_done(run, seed, ROOT / workdir):
        _call(train, cores)
    _call(score, cores)
    text = json.dumps(collect(run, seed, ROOT / workdir), indent=2, ensure_ascii=False)
    record_path(run, seed).write_text(text + "\n", "utf-8")


def commands(run: Run, seed: int) -> list[str]:
    """Returns the commands that train and score a run."""
    name, _, variant = run.config.partition(":")
    config = f"configs/{name}.py" + f":{variant}" * bool(variant)
    workdir = f"--workdir=runs/{_label(run, seed)}"
    overrides = [f"--config.{override}" for override in _overrides(run, seed)]
    return [
        " ".join(["python train.py", f"--config={config}", workdir, *overrides]),
        f"python eval.py {workdir} --split=test",
    ]


def collect(run: Run, seed: int, workdir: Path) -> dict[str, Any]:
    """Returns the record of a trained and scored run directory.

    Raises:
        UserError: if a file that it needs is not there.
    """
    try:
        scores, environment = (
            json.loads((workdir / name).read_text("utf-8"))
            for name in ("eval_test.json", "environment.json")
        )
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing: train and score first") from None
    config = configuration.load(workdir)
    metric, _ = config.task.metric
    rows = read_rows(workdir / "metrics.jsonl")
    devices = environment["devices"]
    device = f"{len(devices)} x {devices[0]}"
    if environment["backend"] == "cpu":
        cores = environment["cpus"]
        device = f"CPU, {cores} core{'s' * (cores > 1)}"
    metrics = {k: v for k, v in scores.items() if isinstance(v, int | float)}
    scored = [row for row in rows if row["split"] == "validation"]
    rates = [row["steps_per_second"] for row in rows if "steps_per_second" in row]
    waiting = [row["waiting"] for row in rows if "waiting" in row]
    examples = []
    if "rows" in config.data:
        examples = [row["step"] * config.data.rows for row in scored]
    where_known = {
        "by_length": {
            group: {k: round(v, 3) for k, v in values.items()}
            for group, values in scores.get("by_length", {}).items()
        },
        "steps_per_second": round(statistics.median(rates), 3) if rates else None,
        "waiting": round(statistics.median(waiting), 4) if waiting else None,
        "examples": examples,
        "curves": {
            metric: [round(row[metric], 4) for row in scored] for metric in _drawn(run)
        },
        # The first at which nothing was wrong, of a metric in per cent.
        "perfect_after": next(
            (
                count
                for count, row in zip(examples, scored, strict=False)
                if metric == "accuracy" and row[metric] >= 100
            ),
            None,
        ),
    }
    return {
        "name": run.name,
        "system": tables.OURS,
        **_identity(run, seed),
        "commands": commands(run, seed),
        "metrics": {
            **{k: round(v, 3) for k, v in metrics.items() if k != "step"},
            **{f"{k}_signature": v for k, v in scores.get("signatures", {}).items()},
        },
        "checkpoint": scores["checkpoint"],
        "steps": rows[-1]["step"],
        "minutes": round(rows[-1]["seconds"] / 60, 1),
        "curve": [
            [round(row["seconds"] / 60, 2), round(row[metric], 3)] for row in scored
        ],
        "device": device,
        "versions": environment["versions"],
        "commit": environment["commit"],
        **{
            field: value
            for field, value in where_known.items()
            if value not in (None, {}, [])
        },
    }


def _drawn(run: Run) -> list[str]:
    """Metrics of a run that figures show, other than its first."""
    figures = (figure for figure in FIGURES if isinstance(figure, Curves))
    shown = (
        line.partition(":") for figure in figures for line in figure.lines.values()
    )
    return [metric for name, _, metric in shown if name == run.name and metric]


def _identity(run: Run, seed: int) -> dict[str, Any]:
    return {
        "config": run.config,
        "overrides": list(run.overrides),
        "seed": seed,
        "settings": configuration.encode(_config(run, seed)),
    }


def _config(run: Run, seed: int) -> ConfigDict:
    name, _, variant = run.config.partition(":")
    path = ROOT / "configs" / f"{name}.py"
    return configuration.read(f"{path}:{variant}", _overrides(run, seed))


def _overrides(run: Run, seed: int) -> list[str]:
    return [*run.overrides, *([f"seed={seed}"] if seed != run.seeds[0] else [])]


def _label(run: Run, seed: int) -> str:
    return run.name + (f".seed{seed}" if seed != run.seeds[0] else "")


def _is_done(run: Run, seed: int, workdir: Path) -> bool:
    """Whether the last step is trained, by a run directory of this very config."""
    if not (workdir / "config.json").exists():
        return False
    config = _config(run, seed)
    configuration.compare(config, workdir)
    rows = read_rows(workdir / "metrics.jsonl")
    return bool(rows) and rows[-1]["step"] >= config.train_steps


def _call(command: str, cores: Sequence[int]) -> None:
    print(command, flush=True)
    if cores:  # of this thread, which the process inherits
        os.sched_setaffinity(0, cores)
    done = subprocess.run([sys.executable, *command.split()[1:]], cwd=ROOT)
    if done.returncode:
        raise UserError(f"{command} ended with status {done.returncode}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
