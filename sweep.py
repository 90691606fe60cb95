r"""Trains a config with many settings; the same command continues a stopped sweep.

    python sweep.py --config=configs/luong_nmt.py:short --workdir=sweeps/scores \
        --grid=model.score=dot,general,concat --grid=seed=0,1,2 --workers=2
    python sweep.py --config=configs/luong_nmt.py:short --workdir=sweeps/alignments \
        --sweep=configs/sweeps/alignments.py --workers=2

A sweep file returns a `sweeps.space.Sweep`: fields and their values, the method, the
seeds. Every run is an ordinary run directory under WORKDIR/trials. At the end,
table.md, table.csv and plots/ are written to WORKDIR.
"""

from pathlib import Path

from absl import flags

from base.errors import UserError
from training import runtime
from training.command_line import Arguments

_CONFIG = flags.DEFINE_string("config", None, "Config file, as for train.py.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the sweep.")
_SWEEP = flags.DEFINE_string(
    "sweep", None, "Sweep file, such as configs/sweeps/NAME.py."
)
_GRID = flags.DEFINE_multi_string(
    "grid", [], "FIELD=VALUE,VALUE,...: values of a field; seed=0,1 adds replicates."
)
_WORKERS = flags.DEFINE_integer(
    "workers",
    1,
    "Number of runs at a time, each on its share of the cores or on one GPU.",
)
_WORKER = flags.DEFINE_bool(
    "worker", False, "Join a sweep in a shared folder from another machine."
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "Only list the trials, with parameters and estimated time."
)
_EXPORT = flags.DEFINE_string(
    "export",
    None,
    "Only write the sweep so far to this file, as a study for optuna-dashboard.",
)
_FAIL_FAST = flags.DEFINE_bool("fail_fast", False, "Stop as soon as a run has failed.")


def main(arguments: Arguments) -> int:
    """Runs the sweep; returns the exit status."""
    if not _WORKDIR.value:
        raise UserError(
            "--workdir is missing: name a folder, such as --workdir=sweeps/NAME"
        )
    if bool(_SWEEP.value) == bool(_GRID.value):
        raise UserError("must have either --sweep=FILE or --grid=FIELD=VALUE,VALUE")
    from sweeps import (
        estimate,
        plan,
        runner,
        study,
        workers,
    )  # slow to import: not for --help

    sweep = (
        plan.read_file(_SWEEP.value) if _SWEEP.value else plan.read_grid(_GRID.value)
    )
    workdir, joins = Path(_WORKDIR.value), _WORKER.value
    trials = plan.Plan(sweep, _CONFIG.value, arguments.overrides, workdir, joins=joins)
    if _EXPORT.value:
        study.export(trials, Path(_EXPORT.value))
        return 0
    shares = workers.shares(_WORKERS.value, "--workers")
    trials.check()
    if _DRY_RUN.value:
        estimate.show(trials, shares)
        return 0
    return runner.run(trials, shares, joins=joins, fail_fast=_FAIL_FAST.value)


if __name__ == "__main__":
    runtime.run(main, overrides=True)
