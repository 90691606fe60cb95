"""The work of `launch.py`: from its flags to a file, which is printed or submitted."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from base.errors import FieldError, UserError, one_line
from launching import job as jobs
from launching import kubernetes, skypilot, slurm, tpu
from launching.job import Job, Target
from training import runtime

TARGETS = {
    "tpu": tpu.TARGET,
    "slurm": slurm.TARGET,
    "kubernetes": kubernetes.TARGET,
    "skypilot": skypilot.TARGET,
}
_EXAMPLES = {
    "name": "NAME",
    "config": "configs/NAME.py",
    "workdir": "FOLDER",
}
_ALL = (*_EXAMPLES, "sweep", "restarts")  # flags that every target takes
_MEMORY = sys.maxsize  # that of the hosts is not known here


def run(
    *,
    target: str | None,
    given: Mapping[str, Any],
    overrides: Sequence[str],
    out: str | None,
    submits: bool,
    yes: bool,
) -> int:
    """Launches a job; see the flags of `launch.py`.

    Args:
        target: name of the target.
        given: fields of the job by the names of their flags; None or False for a flag
            that is not given.
        overrides: fields of the config, as "FIELD=VALUE".
        out: path of the file; None to print it.
        submits: submit the file.
        yes: do not ask before submitting.

    Returns:
        The exit status, of the submitting program if there is one.

    Raises:
        UserError: for a mistake in the flags or the config.
    """
    if not target:
        *others, last = TARGETS
        raise UserError(f"--target is missing: must be {', '.join(others)} or {last}")
    platform = TARGETS[target]
    job = _job(target, platform, given, overrides)
    platform.check(job)
    _check_output(platform, out, submits, yes)
    _check_config(job)
    text = platform.render(job)
    if out is None:
        runtime.write_line(text.removesuffix("\n"))
        return 0
    try:
        with open(out, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"--out={out}: {error.strerror}") from error
    return _submit(platform, job, out, yes) if submits else 0


def _job(
    target: str, platform: Target, given: Mapping[str, Any], overrides: Sequence[str]
) -> Job:
    """Returns the job of the flags; checks what does not depend on the target."""
    absent = (None, False)
    given = {k: v for k, v in given.items() if not any(v is x for x in absent)}
    for name in given:
        if name not in (*_ALL, *platform.flags):
            taken = ", ".join(f"--{x}" for x in (*_ALL, *platform.flags))
            raise UserError(f"--{name}: --target={target} takes {taken} only")
    examples = _EXAMPLES | dict(platform.flags)
    for name in (*_EXAMPLES, *platform.required):
        if name not in given:
            example = f"--{name}={examples[name]}"
            raise UserError(
                f"--{name} is missing: --target={target} needs it, as in {example}"
            )
    flags = {f"--{name}": value for name, value in given.items()}
    fields = (override.partition("=") for override in overrides)
    flags |= {f"config.{name}": value for name, _, value in fields}
    for name, value in flags.items():
        if not f"{name}{value}".isprintable():
            text = value if name.isprintable() else name
            raise UserError(f"{name!a}: {text!a} must be printable text in one line")
    limits = {"hosts": (1, jobs.MAX_HOSTS), "restarts": (0, jobs.MAX_RESTARTS)}
    for name, (low, high) in limits.items():
        if not low <= given.get(name, low) <= high:
            accepted = f"at least {low} and at most {high}"
            raise FieldError(f"--{name}", given[name], accepted)
    return Job(overrides=tuple(overrides), **given)


def _check_output(platform: Target, out: str | None, submits: bool, yes: bool) -> None:
    """Checks that the file can be written and submitted."""
    program, command = platform.submission
    if yes and not submits:
        raise UserError("--yes: only --submit asks; give both, or neither")
    if submits and out is None:
        raise UserError("--submit needs --out=FILE, the file that is submitted")
    if out is not None and os.path.lexists(out):
        raise UserError(f"--out={out} exists: name a new file")
    if out is not None and not Path(out).parent.is_dir():
        raise UserError(f"--out={out}: {Path(out).parent} is not a folder")
    if submits and not yes and not sys.stdin.isatty():
        raise UserError("--submit asks on a terminal, and this is none: give --yes")
    if submits and not shutil.which(program):
        raise UserError(
            f"--submit: {program} is not installed; without --submit, the file is only "
            f"written, for `{shlex.join(command)} FILE`"
        )


def _check_config(job: Job) -> None:
    """Checks the config as `train.py` or `sweep.py` would, for any memory."""
    from sweeps import plan  # slow to import, like the next
    from training import configuration

    if job.sweep:
        sweep = plan.read_file(job.sweep)
        if job.hosts > 1 and sweep.method == "tpe":
            raise UserError(
                f"--hosts is {job.hosts}: must be 1, as the method tpe of {job.sweep} "
                "chooses its trials on one machine"
            )
        plan.Plan(sweep, job.config, job.overrides, Path(job.workdir)).check(_MEMORY)
        return
    config = configuration.read(job.config, job.overrides)
    configuration.check(config)
    config.task.check(config, _MEMORY)


def _submit(platform: Target, job: Job, out: str, yes: bool) -> int:
    """Asks, and runs the submitting command; returns its exit status."""
    _, words = platform.submission
    command = [*words, os.path.join(".", out)]  # never an option
    cost = platform.cost.format(**vars(job))
    print(f"{shlex.join(command)}\n  {cost}", file=sys.stderr)
    while not yes:
        print("run it? yes or no: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip().lower()
        if answer in ("no", "n", ""):
            print(f"not run; {one_line(out)} is written", file=sys.stderr)
            return 0
        yes = answer in ("yes", "y")
    try:
        status = subprocess.run(command).returncode
    except OSError as error:
        raise UserError(f"{command[0]} cannot be run: {error.strerror}") from error
    return status if status >= 0 else 128 - status
