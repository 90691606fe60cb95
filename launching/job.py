"""A job to launch, and checks of its fields that several targets share."""

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from base.errors import FieldError, UserError

SHARED = "/mnt/shared"  # where --storage is mounted on each host
MAX_HOSTS = 1000
MAX_RESTARTS = 1000
_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_LENGTH = 63  # of a DNS label, RFC 1123


@dataclasses.dataclass(frozen=True)
class Job:
    """A run or a sweep to launch; the fields are the flags of `launch.py`.

    Attributes:
        hosts: number of hosts, or of workers of a sweep.
        overrides: fields of the config, as "model.d_model=256".
        sweep: path of a sweep file; None for a single run.
        restarts: maximum number of restarts after faults and crashes.
    """

    name: str
    config: str
    workdir: str
    overrides: tuple[str, ...] = ()
    sweep: str | None = None
    hosts: int = 1
    restarts: int = 20
    accelerator: str | None = None
    zone: str | None = None
    project: str | None = None
    partition: str | None = None
    image: str | None = None
    namespace: str = "default"
    storage: str | None = None
    spot: bool = False

    def command(
        self, python: str, *, workers: int = 1, joins: bool = False
    ) -> list[str]:
        """Returns the command that a host runs.

        Args:
            python: the interpreter on the host.
            workers: number of runs at a time on a host of a sweep.
            joins: join a sweep that another host starts.
        """
        flags = [f"--config={self.config}", f"--workdir={self.workdir}"]
        if self.sweep:
            flags += [f"--sweep={self.sweep}", f"--workers={workers}"]
            flags += ["--worker"] * joins
        flags += [f"--config.{override}" for override in self.overrides]
        return [python, "sweep.py" if self.sweep else "train.py", *flags]

    def wait_for_sweep(self) -> str:
        """Returns the shell command that waits until the first host has started."""
        path = shlex.quote(f"{self.workdir}/sweep.json")
        return f"for _ in {{1..360}}; do [ -e {path} ] && break; sleep 5; done"


class Target(NamedTuple):
    """A platform.

    Attributes:
        flags: the flags that it takes besides those of all targets, each with an
            example.
        required: the flags that it needs.
        check: raises a UserError for a job that it cannot run.
        render: returns the text of the file.
        submission: program that is needed to submit, and the command before the file.
        cost: the line that `--submit` prints, a format of the job.
    """

    flags: Mapping[str, str]
    required: tuple[str, ...]
    check: Callable[[Job], None]
    render: Callable[[Job], str]
    submission: tuple[str, tuple[str, ...]]
    cost: str


def match(flag: str, value: str | None, pattern: str, accepted: str) -> re.Match:
    """Returns the match of a flag's value as a whole.

    Raises:
        FieldError: if it does not match.
    """
    result = re.fullmatch(pattern, value or "", re.ASCII)
    if not result:
        raise FieldError(f"--{flag}", value, accepted)
    return result


def check_label(name: str, appended: str = "") -> None:
    """Checks a name that becomes part of a host name, RFC 1035.

    Args:
        name: the name of the job.
        appended: the longest text that the platform appends.
    """
    longest = _LABEL_LENGTH - len(appended)
    accepted = (
        f"at most {longest} lower-case letters, digits and hyphens, beginning with a "
        "letter and not ending with a hyphen"
    )
    match("name", name, rf"(?=.{{1,{longest}}}\Z){_LABEL}", accepted)


def check_shared_workdir(job: Job) -> None:
    """Checks that the workdir is on the storage that all hosts mount."""
    path = PurePosixPath(job.workdir)
    if not path.is_relative_to(SHARED) or str(path) == SHARED or ".." in path.parts:
        accepted = f"a folder in {SHARED}, where --storage is mounted"
        raise FieldError("--workdir", job.workdir, accepted)


def check_copied_paths(job: Job) -> None:
    """Checks that the config and the sweep are in the folder that hosts get."""
    paths = {"config": job.config.partition(":")[0], "sweep": job.sweep or "."}
    for flag, text in paths.items():
        path = PurePosixPath(text)
        if path.is_absolute() or ".." in path.parts:
            accepted = "a path inside the current folder, which is copied to each host"
            raise FieldError(f"--{flag}", text, accepted)


def refuse_buckets(job: Job) -> None:
    """Refuses a workdir that is an address and not a path."""
    if "://" in job.workdir:
        raise UserError(
            f"--workdir is {job.workdir!r}: must be the path of a folder, such as one "
            "where the bucket is mounted"
        )
