"""Makes the missing records of the reported runs, and writes the tables.

    python -m results.make               # every table
    python -m results.make translation   # the named tables

A missing run is trained and evaluated; a stopped one is resumed, a trained one only
evaluated, also where a sweep under `sweeps/` has trained it. To repeat a run, delete
its record and its folder under `runs/`.
"""

import contextlib
import shlex
import statistics
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from base.errors import UserError, parse_json
from results import records, tables
from results.arguments import Parser, run_main, whole
from results.families import FAMILY, FIGURES, TABLES
from results.records import ROOT, Record
from results.schema import Run, config_file
from sweeps import workers
from sweeps.workers import Processes, Share
from training import checks, configuration, parallel
from training.log import read_rows
from training.task import Task

_BATCHES = 20  # of which the step on the largest is compiled
_locks: dict[Path, threading.Lock] = {}  # by run directory


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the missing records of the named tables, or of all tables.

    Raises:
        UserError: for a table that does not exist.
    """
    parser = Parser(__doc__)
    parser.add_argument("tables", nargs="*", metavar="NAME", help=", ".join(TABLES))
    parser.add_argument(
        "--jobs",
        type=whole,
        default=1,
        help="number of runs at a time, each on its share of the cores or a GPU",
    )
    args = parser.parse_args(arguments)
    names = args.tables or list(TABLES)
    for name in names:
        if name not in TABLES:
            raise UserError(f"table {name}: must be one of {', '.join(TABLES)}")
    shares = workers.shares(args.jobs, "--jobs")
    runs = dict.fromkeys(run for name in names for run in TABLES[name].runs)
    trainings = [(run, seed) for run in runs for seed in run.seeds]
    missing = [training for training in trainings if not is_current(*training)]
    if missing:
        _make_all(missing, shares)
    else:
        print(
            f"nothing is missing: all {len(trainings)} trainings have their records "
            "(to repeat one, delete its record and its folder under runs/)"
        )
    tables.write()


def _make_all(trainings: Sequence[tuple[Run, int]], shares: Sequence[Share]) -> None:
    """Runs all trainings, one at a time on each share of the machine."""
    processes, waiting = Processes(), iter(trainings)

    def make_all(share: Share) -> None:
        for run, seed in waiting:
            try:
                make(run, seed, share, processes)
            except BaseException:  # a failed run or a signal: start no further run
                list(waiting)
                raise

    with workers.stopping(processes), ThreadPoolExecutor(len(shares)) as pool:
        list(pool.map(make_all, shares))


def is_current(run: Run, seed: int) -> bool:
    """Returns whether the run has a record of its current config.

    Configs are compared by `records.identity`, which includes overrides and seed.
    """
    return any(
        records.identity(record["settings"]) == _identity(run, seed)
        for record in records.read(_records(run))
        if (record["name"], record["seed"]) == (run.name, seed)
    )


def make(run: Run, seed: int, share: Share, processes: Processes) -> None:
    """Trains the remaining steps, evaluates the test split and writes the record."""
    trained = _trained(run)
    workdir = _folder(trained, seed)
    train, evaluate = commands(run, seed, workdir.relative_to(ROOT))
    # Runs that share a training have one directory.
    with _locks.setdefault(workdir, threading.Lock()):
        if not _is_done(trained, seed, workdir):
            _call(train, share, processes)
        _call(evaluate, share, processes)
        record = make_record(run, seed, workdir)
        record |= work(workdir, compiles=_shows(run, "step_mb"))
        records.write(_records(run), record)


def _records(run: Run) -> Path:
    """The file of the records of a run."""
    return records.FOLDER / f"{FAMILY[run.name]}.jsonl"


def _folder(run: Run, seed: int) -> Path:
    """The run directory of a training: one under runs/, or that of a finished sweep."""
    folder = ROOT / "runs" / _label(run, seed)
    if folder.exists():
        return folder
    identity = _identity(run, seed)
    for path in sorted(ROOT.glob("sweeps/*/trials/*/config.json")):
        with contextlib.suppress(UserError):  # damaged
            config = configuration.encode(configuration.load(path.parent))
            is_same = records.identity(config) == identity
            if is_same and _is_done(run, seed, path.parent):
                return path.parent
    return folder


def commands(run: Run, seed: int, workdir: Path | None = None) -> list[str]:
    """Returns the commands that train and evaluate a run, quoted for a shell.

    The run directory is by default the run's folder under runs/.
    """
    trained = _trained(run)
    flag = f"--workdir={workdir or f'runs/{_label(trained, seed)}'}"
    train = ["python", "train.py", f"--config={config_file(run.config)}", flag]
    train += [f"--config.{override}" for override in _overrides(trained, seed)]
    evaluate = ["python", "eval.py", flag, "--split=test"]
    if run.trained:
        evaluate += [f"--config.{x}" for x in run.overrides[len(trained.overrides) :]]
    return [shlex.join(train), shlex.join(evaluate)]


def make_record(run: Run, seed: int, workdir: Path) -> Record:
    """Returns the record of a trained and evaluated run directory.

    Raises:
        UserError: for a missing file.
    """
    try:
        scores, environment = (
            parse_json((workdir / name).read_text("utf-8"))
            for name in ("eval_test.json", "environment.json")
        )
    except FileNotFoundError as error:
        problem = f"{error.filename} is missing: train and evaluate first"
        raise UserError(problem) from None
    except ValueError as error:
        problem = (
            f"a JSON file of {workdir} is damaged ({error}): train and evaluate again"
        )
        raise UserError(problem) from None
    config = configuration.load(workdir)
    if "extended" in config:
        raise UserError(
            f"{workdir} was planned shorter, up to step {config.extended[-1].step}: a "
            "record needs a run with one schedule; delete the folder and train again"
        )
    metric, _ = config.task.metric
    rows = read_rows(workdir / "metrics.jsonl")
    evaluations = [row for row in rows if row["split"] == "validation"]
    metrics = {k: v for k, v in scores.items() if isinstance(v, int | float)}
    examples = []
    if "batch_size" in config.data:
        examples = [row["step"] * config.data.batch_size for row in evaluations]
    record = {
        "name": run.name,
        "system": records.OURS,
        "config": run.config,
        "overrides": list(run.overrides),
        "seed": seed,
        "settings": _identity(run, seed),
        "commands": commands(run, seed),
        "metrics": {k: round(v, 3) for k, v in metrics.items() if k != "step"}
        | {f"{k}_signature": v for k, v in scores.get("signatures", {}).items()},
        "checkpoint": scores["checkpoint"],
        "steps": rows[-1]["step"],
        "minutes": round(rows[-1]["seconds"] / 60, 1),
        "curve": [
            [round(row["seconds"] / 60, 2), round(row[metric], 3)]
            for row in evaluations
        ],
        "device": _device(environment),
        "versions": environment["versions"],
        "commit": environment["commit"],
    }
    sources = [x.partition(":") for each in FIGURES for x in each.lines.values()]
    loss_every = [x.loss_every for x in FIGURES if run.name in x.lines.values()]
    perfect = [
        count
        for count, row in zip(examples, evaluations, strict=False)
        if metric == "accuracy" and row[metric] >= 100  # in percent
    ]
    optional = {
        "by_length": {
            group: {k: round(v, 3) for k, v in values.items()}
            for group, values in scores.get("by_length", {}).items()
        },
        "steps_per_second": _median(rows, "steps_per_second", digits=3),
        "waiting": _median(rows, "waiting", digits=4),
        "audio_per_second": _audio_per_second(config, rows),
        "examples": examples,
        "curves": {
            name: [round(row[name], 4) for row in evaluations]
            for source, _, name in sources
            if source == run.name and name
        },
        "training_loss": [
            (row["step"], round(row["loss"], 4))
            for row in rows
            if any(loss_every)
            and row["split"] == "train"
            and row["step"] % max(loss_every) == 0
        ],
        "perfect_after": perfect[0] if perfect else None,
    }
    return record | {k: v for k, v in optional.items() if v not in (None, {}, [])}


def work(workdir: Path, *, compiles: bool = False) -> dict[str, float]:
    """Returns the size of a trained model and the number of tokens it was trained on.

    Args:
        workdir: the run directory.
        compiles: whether to measure the memory of a step, which compiles it.

    Returns:
        `parameters`, the number of learned parameters; with token batches `tokens`, the
        (target) tokens in all of them, without padding; if measured, `step_mb`.
    """
    config = configuration.load(workdir)
    assets = config.task.prepare(config, workdir, training=True)
    task = config.task(config, assets)
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    counts = {"parameters": sum(x.size for x in jax.tree.leaves(state.params))}
    if "tokens" in config.data:
        batches = task.train_data()
        name = "target" if "target" in batches[0] else "tokens"
        counts["tokens"] = sum(
            int(np.count_nonzero(batches[i][name])) for i in range(config.train_steps)
        )
    return counts | ({"step_mb": _step_megabytes(task)} if compiles else {})


def _step_megabytes(task: Task) -> float:
    """XLA's memory of a training step on one device, in 10^6 bytes.

    This includes the parameters, optimizer state, batch, results, and temporary arrays
    such as activations, for the largest of the first batches.
    """
    batches, rng = task.train_data(), jax.random.key(0)
    batch = max(
        (batches[i] for i in range(_BATCHES)),
        key=lambda batch: sum(x.nbytes for x in jax.tree.leaves(batch)),
    )
    layout = parallel.Layout(ConfigDict({"data": 1, "fsdp": 1, "tensor": 1}), "jit")
    like = layout.abstract(task.objective.init, rng)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
    step = layout.jitted(task.objective.step, like).lower(like, batch, rng).compile()
    return round((checks.step_bytes(step) or 0) / 1e6, 1)


def _device(environment: Mapping[str, Any]) -> str:
    """The device of a run, such as "CPU, 2 cores"."""
    if environment["backend"] == "cpu":
        cores = environment["cpus"]
        return f"CPU, {cores} core{'s' * (cores > 1)}"
    devices = environment["devices"]
    return f"{len(devices)} x {devices[0]}"


def _median(rows: Sequence[dict], field: str, *, digits: int) -> float | None:
    """The median of a field of the log; None if no row has it."""
    values = [row[field] for row in rows if field in row]
    return round(statistics.median(values), digits) if values else None


def _audio_per_second(config: ConfigDict, rows: Sequence[dict]) -> float | None:
    """The median seconds of audio per second of training; None without."""
    size = config.data.get("batch_size")
    rates = [
        {"rate": row["audio_seconds"] * row["steps_per_second"] * size}
        for row in rows
        if "audio_seconds" in row
    ]
    return _median(rates, "rate", digits=1)


def _shows(run: Run, field: str) -> bool:
    """True if a table of the run has a column with this field."""
    tables = [table for table in TABLES.values() if run in table.runs]
    return any(field in table.columns.values() for table in tables)


def _trained(run: Run) -> Run:
    """The run whose training is evaluated, usually the run itself."""
    runs = [run, *(each for table in TABLES.values() for each in table.runs)]
    return next(each for each in runs if each.name == run.training)


def _identity(run: Run, seed: int) -> dict[str, Any]:
    return records.identity(configuration.encode(_config(run, seed)))


def _config(run: Run, seed: int) -> ConfigDict:
    flag = str(ROOT / config_file(run.config))
    return configuration.read(flag, _overrides(run, seed))


def _overrides(run: Run, seed: int) -> list[str]:
    return [*run.overrides, *[f"seed={seed}"] * (seed != run.seeds[0])]


def _label(run: Run, seed: int) -> str:
    return run.name + f".seed{seed}" * (seed != run.seeds[0])


def _is_done(run: Run, seed: int, workdir: Path) -> bool:
    """True if the run directory has reached the last step of the config."""
    if not (workdir / "config.json").exists():
        return False
    config = _config(run, seed)
    configuration.compare(config, workdir)
    rows = read_rows(workdir / "metrics.jsonl")
    return bool(rows) and rows[-1]["step"] >= config.train_steps


def _call(command: str, share: Share, processes: Processes) -> None:
    print(command, flush=True)
    status = processes.call(shlex.split(command)[1:], share, folder=ROOT)
    if status:
        raise UserError(f"{command} exited with status {status}")


if __name__ == "__main__":
    run_main(main)
