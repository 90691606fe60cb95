r"""Writes the file that launches a run or a sweep on a cluster, and can submit it.

    python -m launch --target=slurm --name=nmt --hosts=2 --accelerator=8 \
        --config=configs/transformer_nmt.py --workdir=runs/nmt \
        -- --config.model.d_model=256

The targets are Cloud TPU (tpu), Slurm (slurm), Kubernetes (kubernetes) and SkyPilot
(skypilot); docs/launching.md has a command for each. With --sweep=FILE, the hosts are
workers of a sweep.
"""

import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from absl import flags

from base.errors import UserError, one_line
from launch.targets import ALL, TARGETS, Job, check, render
from training import runtime
from training.command_line import Arguments

_TARGET = flags.DEFINE_enum("target", None, list(TARGETS), "Platform.")
_OUT = flags.DEFINE_string("out", None, "New file to write, instead of printing it.")
_SUBMIT = flags.DEFINE_bool(
    "submit", False, "Submit the file written to --out, after asking."
)
_YES = flags.DEFINE_bool("yes", False, "Submit without asking.")
_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer}
_FIELDS = dataclasses.fields(Job)[:-1]  # without the overrides
for field in _FIELDS:
    default = None if field.default is dataclasses.MISSING else field.default
    names = [name for name in TARGETS if field.name in TARGETS[name]["flags"]]
    texts = [f"{name}: {TARGETS[name]['flags'][field.name][1]}" for name in names]
    define = _DEFINE.get(type(default), flags.DEFINE_string)
    define(field.name, default, ALL.get(field.name) or "; ".join(texts))


def main(arguments: Arguments) -> int:
    """Writes the file, and submits it if asked; returns the exit status."""
    target, out = _TARGET.value, _OUT.value
    if not target:
        *others, last = TARGETS
        raise UserError(f"--target is missing: must be {', '.join(others)} or {last}")
    defined = {field.name: flags.FLAGS[field.name] for field in _FIELDS}
    given = {name: flag.value for name, flag in defined.items() if flag.present}
    taken = dict.fromkeys([*ALL, *TARGETS[target]["flags"]])
    for name in given:
        if name not in taken:
            names = ", ".join(f"--{x}" for x in taken)
            raise UserError(f"--{name}: --target={target} takes {names} only")
    for name in ("name", "config", "workdir"):
        if name not in given:
            raise UserError(f"--{name} is missing: must be {ALL[name]}")
    values = {f"--{name}": value for name, value in given.items()}
    fields = (override.partition("=") for override in arguments.overrides)
    values |= {f"config.{name}": value for name, _, value in fields}
    for name, value in values.items():
        if not f"{name}{value}".isprintable():
            text = value if name.isprintable() else name
            raise UserError(f"{name!a}: {text!a} must be printable text in one line")
    job = Job(overrides=tuple(arguments.overrides), **given)
    check(target, job)
    _check_output(target)
    _check_config(job)
    text = render(target, job)
    if out is None:
        runtime.write_line(text.removesuffix("\n"))
        return 0
    try:
        with open(out, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"--out={out}: {error.strerror}") from error
    return _submit(target, job, out) if _SUBMIT.value else 0


def _check_output(target: str) -> None:
    """Checks that the file can be written and submitted."""
    out, submits, program = _OUT.value, _SUBMIT.value, TARGETS[target]["program"]
    if _YES.value and not submits:
        raise UserError("--yes: only --submit asks; give both, or neither")
    if submits and out is None:
        raise UserError("--submit needs --out=FILE, the file that is submitted")
    if out is not None and os.path.lexists(out):
        raise UserError(f"--out={out} exists: name a new file")
    if out is not None and not Path(out).parent.is_dir():
        raise UserError(f"--out={out}: {Path(out).parent} is not a folder")
    if submits and not _YES.value and not sys.stdin.isatty():
        raise UserError("--submit asks on a terminal, and this is none: give --yes")
    if submits and not shutil.which(program):
        raise UserError(
            f"--submit: {program} is not installed; without --submit, the file is only "
            f"written, for `{TARGETS[target]['submit']} FILE`"
        )


def _check_config(job: Job) -> None:
    """Checks the config as `train.py` or `sweep.py` would."""
    from sweeps import plan  # slow to import, like the next
    from training import configuration
    from training.task import Task

    if job.sweep:
        sweep = plan.read_file(job.sweep)
        if job.hosts > 1 and sweep.method == "tpe":
            raise UserError(
                f"--hosts is {job.hosts}: must be 1, as the method tpe of {job.sweep} "
                "chooses its trials on one machine"
            )
        plan.Plan(sweep, job.config, job.overrides, Path(job.workdir)).check()
        return
    configuration.check(configuration.read(job.config, job.overrides), Task)


def _submit(target: str, job: Job, out: str) -> int:
    """Asks, and runs the submitting command; returns its exit status."""
    words = TARGETS[target]["submit"].split()
    command = [*words, os.path.join(".", out)]  # never an option
    cost = TARGETS[target]["cost"].format(**vars(job))
    print(f"{shlex.join(command)}\n  {cost}", file=sys.stderr)
    answer = "yes" if _YES.value else ""
    while answer not in ("yes", "y"):
        print("run it? yes or no: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip().lower()
        if answer in ("no", "n", ""):
            print(f"not run; {one_line(out)} is written", file=sys.stderr)
            return 0
    try:
        status = subprocess.run(command).returncode
    except OSError as error:
        raise UserError(f"{command[0]} cannot be run: {error.strerror}") from error
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    runtime.run(main, overrides=True)
