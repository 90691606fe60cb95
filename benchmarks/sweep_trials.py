"""Time of a sweep of eight equal runs on two cores, and of single runs on one core.

    python -m benchmarks sweep_trials

Each run trains the translator of configs/luong_nmt.py:britz for some steps and
evaluates it. Single runs go before and after each sweep, with nothing beside them;
without other costs, the sweep would take half of the sum of eight single times.

Writes the record.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness
from results.records import ROOT
from sweeps.workers import Processes, Share

_CONFIG = "--config=configs/luong_nmt.py:britz"
_RUNS = 8


def main(arguments: Sequence[str]) -> None:
    """Measures the sweep and the single runs, and writes the record."""
    parser = harness.parser(__doc__, "sweep_trials", rounds=1, steps=300)
    args = parser.parse_args(arguments)
    cores = tuple(sorted(os.sched_getaffinity(0))[:2])
    fields = {"train_steps": args.steps, "eval_every": args.steps, "log_every": 50}
    flags = [_CONFIG, *(f"--config.{name}={value}" for name, value in fields.items())]
    alone, together = [], []
    with tempfile.TemporaryDirectory(prefix="sweep-") as name:
        folder = Path(name)
        single(folder / "warm", flags, cores)  # fills the compilation cache
        for i in range(args.rounds):
            alone.append(single(folder / f"before_{i}", flags, cores))
            together.append(sweep(folder / f"sweep_{i}", flags, cores))
            alone.append(single(folder / f"after_{i}", flags, cores))
    single_run, all_runs = statistics.median(alone), statistics.median(together)
    systems = {
        "a run alone on one core": {"seconds": round(single_run, 1), "rounds": alone},
        f"a sweep of {_RUNS} runs on two cores, two at a time": {
            "seconds": round(all_runs, 1),
            "rounds": together,
        },
    }
    ratio = round(all_runs / (_RUNS / 2 * single_run), 3)
    harness.report("sweep_trials", args, systems, ratio_half_sum=ratio)


def single(workdir: Path, flags: Sequence[str], cores: Sequence[int]) -> float:
    """Returns the seconds of the training and the evaluation of a run on one core."""
    flag, share = f"--workdir={workdir}", Share((cores[0],))
    return _seconds(
        [
            ["train.py", flag, *flags],
            ["eval.py", flag, "--split=validation", "--figures=false"],
        ],
        share,
        workdir,
    )


def sweep(workdir: Path, flags: Sequence[str], cores: Sequence[int]) -> float:
    """Returns the seconds of a sweep of equal runs that differ in their seed."""
    seeds = ",".join(map(str, range(_RUNS)))
    grid = [f"--grid=seed={seeds}", "--workers=2", f"--workdir={workdir}"]
    return _seconds([["sweep.py", *grid, *flags]], Share(tuple(cores)), workdir)


def _seconds(commands: Sequence[Sequence[str]], share: Share, workdir: Path) -> float:
    begin, log = time.perf_counter(), workdir.with_suffix(".txt")
    for command in commands:
        if Processes().call(command, share, folder=ROOT, log=log):
            raise SystemExit(f"error: {command[0]} failed: {log.read_text()[-500:]}")
    return round(time.perf_counter() - begin, 1)
