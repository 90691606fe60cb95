"""A job to launch: checks for a platform, and the file that launches it."""

import dataclasses
import json
import re
import shlex
import string
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from base.errors import FieldError, UserError

SHARED = "/mnt/shared"  # where --storage is mounted on each host
_FOLDER = Path(__file__).parent
TARGETS = tomllib.loads((_FOLDER / "targets.toml").read_text("utf-8"))
ALL = TARGETS.pop("all")  # descriptions of the flags that every target takes
_COPIED = "a path inside the current folder, which is copied to each host"
_SINGLE_HOST = 8  # largest number in the type of a TPU slice of one host


@dataclasses.dataclass(frozen=True)
class Job:
    """A run or a sweep to launch; each field but `overrides` is a flag."""

    name: str
    config: str
    workdir: str
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
    overrides: tuple[str, ...] = ()  # of the config, as "model.d_model=256"

    @property
    def devices(self) -> int:
        """The number at the end of --accelerator; 0 without one."""
        return int(re.split("[-:]", self.accelerator or "0")[-1])

    def command(self, python: str, workers: int = 1) -> list[str]:
        """Returns the command that a host runs, with `workers` runs of a sweep."""
        flags = [f"--config={self.config}", f"--workdir={self.workdir}"]
        if self.sweep:
            flags += [f"--sweep={self.sweep}", f"--workers={workers}"]
        flags += [f"--config.{override}" for override in self.overrides]
        return [python, "sweep.py" if self.sweep else "train.py", *flags]


def check(target: str, job: Job) -> None:
    """Raises a UserError for a job that a platform cannot run."""
    for name, holds, accepted in _rules(target, job):
        value = getattr(job, name)
        if not holds and value is None:
            raise UserError(f"--{name} is missing: must be {accepted}")
        if not holds:
            raise FieldError(f"--{name}", value, accepted)


def _rules(target: str, job: Job) -> Iterator[tuple[str, Any, str]]:
    """Yields flags, whether their values are right, and what they must be."""
    tpu, slurm, sky = (target == name for name in ("tpu", "slurm", "skypilot"))
    platform = TARGETS[target]
    for name, (pattern, accepted) in platform["flags"].items():
        value = getattr(job, name)
        if value is None:
            yield name, name not in platform["required"], accepted
        else:
            yield name, re.fullmatch(pattern, str(value), re.ASCII), accepted
    last = f"-{job.hosts - 1}" if job.sweep or not tpu else ""
    pod = last if job.sweep else f"-host-0{last}"  # and five random characters
    appended = {"tpu": last, "kubernetes": f"{pod}-abcde"}.get(target, "")
    longest = 63 - len(appended)  # a part of a host name, RFC 1035
    label = rf"(?=.{{1,{longest}}}\Z)[a-z]([-a-z0-9]*[a-z0-9])?"
    accepted = (
        f"at most {longest} lower-case letters, digits and hyphens, beginning with a "
        "letter and not ending with a hyphen"
    )
    yield "name", slurm or re.fullmatch(label, job.name), accepted
    yield "hosts", 1 <= job.hosts <= 1000, "at least 1 and at most 1000"
    yield "restarts", 0 <= job.restarts <= 1000, "at least 0 and at most 1000"
    accepted = f"absent: --target={target} does not start the workers of a sweep"
    yield "sweep", not job.sweep or "sweep" in platform, accepted
    yield "config", slurm or _is_inside(job.config.partition(":")[0]), _COPIED
    yield "sweep", slurm or _is_inside(job.sweep or "."), _COPIED
    accepted = "the path of a folder, such as one where the bucket is mounted"
    yield "workdir", "://" not in job.workdir, accepted
    if slurm:
        return
    if tpu:
        accepted = "a slice of one host for each worker of a sweep, such as v4-8"
        large = job.devices > _SINGLE_HOST
        yield "accelerator", not (job.sweep and large), accepted
        accepted = "1 without --sweep: --accelerator sets the number of hosts of a run"
        yield "hosts", job.sweep or job.hosts == 1, accepted
        accepted = (
            "an NFS share, as SERVER:/PATH, for several hosts, for the workers of a "
            "sweep, and for --spot, as a preempted slice loses its disk"
        )
        yield "storage", job.storage or not (job.sweep or large or job.spot), accepted
    if sky:
        accepted = "a volume: in a bucket, nodes see each other's files too late"
        yield "storage", "://" not in job.storage or job.hosts == 1, accepted
    if job.storage:
        path = PurePosixPath(job.workdir)
        shared = path.is_relative_to(SHARED) and path != PurePosixPath(SHARED)
        accepted = f"a folder in {SHARED}, where --storage is mounted"
        yield "workdir", shared and ".." not in path.parts, accepted
    else:
        accepted = "a path inside the folder of the code, unless --storage is given"
        yield "workdir", _is_inside(job.workdir), accepted


def _is_inside(text: str) -> bool:
    path = PurePosixPath(text)
    return not path.is_absolute() and ".." not in path.parts


class Template(string.Template):
    """A template with the placeholders @@name and @@{name}; scripts are full of $."""

    delimiter = "@@"


def render(target: str, job: Job) -> str:
    """Returns the text of the file that launches a job, which `check` accepts.

    Flags with a pattern of harmless characters go into the template as they are; the
    texts that users write freely are quoted.
    """
    platform = TARGETS[target]
    python = "python" if target == "kubernetes" else ".venv/bin/python"
    gpus = max(job.devices, 1) if target != "tpu" else 1
    command = job.command(python, workers=gpus)
    texts = {
        "command": shlex.join(command),
        "words": json.dumps(command, ensure_ascii=False),
        "workdir": shlex.quote(job.workdir),
        "started": shlex.quote(f"{job.workdir}/sweep.json"),
    }
    for name, text in texts.items():
        if target == "tpu":  # for the shell of a host, through the shell of the script
            texts[name] = shlex.quote(text)
        if target == "kubernetes":  # replaces $(NAME) in a command, and $$ by $
            texts[name] = text.replace("$", "$$")
    checked = ("name", "hosts", "restarts", *platform["flags"])
    fields = {x: "" if (v := getattr(job, x)) is None else v for x in checked}
    kind = (job.accelerator or "").partition("-")[0]
    resource = (job.accelerator or "").rpartition(":")[0]
    options = {
        "job-name": job.name,
        "partition": job.partition,
        "array": f"0-{job.hosts - 1}" if job.sweep else None,
        "nodes": 1 if job.sweep else job.hosts,
        "ntasks-per-node": 1 if job.sweep else gpus,
        "gpus-per-node": job.accelerator,
        "output": "%x.%A_%a.txt" if job.sweep else "%x.%j.txt",
    }
    bucket = "://" in (job.storage or "")
    # In the mode MOUNT, files can be neither appended to nor written at random places.
    mount = {"source": job.storage, "mode": "MOUNT_CACHED"} if bucket else job.storage
    template = _FOLDER / "templates" / platform["sweep" if job.sweep else "run"]
    return Template(template.read_text("utf-8")).substitute(
        fields | texts,
        shared=SHARED,
        slices=f"{job.name}-{{0..{job.hosts - 1}}}" if job.sweep else job.name,
        files=shlex.join(filter(None, [job.config.partition(":")[0], job.sweep])),
        version=platform.get("versions", {}).get(kind),
        options="\n".join(f"#SBATCH --{k}={v}" for k, v in options.items() if v),
        limits=json.dumps({resource: job.devices} if resource else {}),
        preemptible=" --spot" * job.spot,
        mount="file_mounts" if bucket else "volumes",
        source=json.dumps(mount),
    )
