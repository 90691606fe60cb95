"""Commands for slices of Cloud TPUs, as a bash script with one function a step.

Each host of a slice finds the others by the metadata of its machine. A sweep has a
slice of one host for each worker.
"""

import shlex
from pathlib import PurePosixPath

from base.errors import FieldError, UserError
from launching import job as jobs
from launching import quoting
from launching.job import Job, Target

# Software versions by the beginning of the accelerator type.
_RUNTIMES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
_PYTHON = ".venv/bin/python"
_SINGLE_HOST = 8  # largest number in the type of a slice of one host
_SHARE = r"[A-Za-z0-9][-.\w]*:/(?!/)[-./\w]*"
_PROJECT = r"[a-z][-a-z0-9]{4,28}[a-z0-9]"
_ZONE = r"[a-z]+(-[a-z]+)+\d+-[a-z]"


def _parse(accelerator: str | None) -> tuple[str, int]:
    types = ", ".join(_RUNTIMES)
    result = jobs.match(
        "accelerator",
        accelerator,
        rf"({'|'.join(_RUNTIMES)})-([1-9]\d{{0,4}})",
        f"TYPE-NUMBER, such as v5litepod-16, where TYPE is one of {types}",
    )
    return result[1], int(result[2])


def _slices(job: Job) -> list[str]:
    return [f"{job.name}-{i}" for i in range(job.hosts)] if job.sweep else [job.name]


def check(job: Job) -> None:
    """Checks a job for Cloud TPUs."""
    _, number = _parse(job.accelerator)
    jobs.check_label(job.name, f"-{job.hosts - 1}" if job.sweep else "")
    jobs.match("zone", job.zone, _ZONE, "a zone, such as us-central2-b")
    accepted = "the ID of a project: 6 to 30 lower-case letters, digits and hyphens"
    jobs.match("project", job.project, _PROJECT, accepted)
    jobs.check_copied_paths(job)
    jobs.refuse_buckets(job)
    if job.sweep and number > _SINGLE_HOST:
        accepted = "a slice of one host for each worker of a sweep, such as v4-8"
        raise FieldError("--accelerator", job.accelerator, accepted)
    if not job.sweep and job.hosts > 1:
        raise UserError(
            f"--hosts is {job.hosts}: --accelerator={job.accelerator} sets the number "
            "of hosts; only a sweep takes --hosts, its number of slices"
        )
    if job.storage:
        accepted = "an NFS share that the hosts can mount, as SERVER:/PATH"
        jobs.match("storage", job.storage, _SHARE, accepted)
        jobs.check_shared_workdir(job)
        return
    reasons = {
        "the workers of a sweep share a workdir": job.sweep,
        f"the hosts of {job.accelerator} share a workdir": number > _SINGLE_HOST,
        "a preempted slice loses its disk": job.spot,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UserError(
                f"--storage is missing: {reason}; name an NFS share, as "
                "--storage=SERVER:/PATH"
            )
    path = PurePosixPath(job.workdir)
    if path.is_absolute() or ".." in path.parts:
        accepted = "a path inside the folder of the code, unless --storage is given"
        raise FieldError("--workdir", job.workdir, accepted)


def render(job: Job) -> str:
    """Returns the script."""
    kind, _ = _parse(job.accelerator)
    # flock waits for a process that a lost connection has left behind.
    enter, locked = "cd code && ", "exec flock .lock "
    first = enter + locked + shlex.join(job.command(_PYTHON))
    wait = f"{{ {job.wait_for_sweep()}; }} && "
    join = enter + wait + locked + shlex.join(job.command(_PYTHON, joins=True))
    slices = _slices(job)
    mount = []
    if job.storage:
        share, workdir = shlex.quote(job.storage), shlex.quote(job.workdir)
        mount = [
            "sudo apt-get install --yes --quiet nfs-common",
            f"sudo mkdir -p {jobs.SHARED}",
            f"{{ mountpoint -q {jobs.SHARED} || "
            f"sudo mount -t nfs {share} {jobs.SHARED}; }}",
            f'sudo install -d -o "$USER" {workdir}',
        ]
    install = [
        "mkdir -p code",
        "tar -xzf code.tar.gz -C code",
        "cd code",
        "python3 -m pip install --quiet --user uv",
        "python3 -m uv venv --quiet --allow-existing --python=3.12 .venv",
        "python3 -m uv pip install --quiet --python=.venv/bin/python "
        "--requirement=requirements.txt 'jax[tpu]'",
        *mount,
    ]
    files = [job.config.partition(":")[0], *([job.sweep] if job.sweep else [])]
    pack = f"cd code && tar -czf ~/run.tar.gz -C {shlex.quote(job.workdir)} ."
    return quoting.fill(
        "tpu.sh",
        project=shlex.quote(job.project or ""),
        zone=shlex.quote(job.zone or ""),
        accelerator=shlex.quote(job.accelerator or ""),
        runtime=_RUNTIMES[kind],
        spot=" --spot" * job.spot,
        name=job.name,
        slices=quoting.array(slices),
        files=quoting.array(files),
        commands=quoting.array([first, *[join] * (len(slices) - 1)]),
        restarts=job.restarts,
        install=shlex.quote(" && ".join(install)),
        pack=shlex.quote(pack),
    )


TARGET = Target(
    flags={
        "accelerator": "v5litepod-16",
        "zone": "us-central2-b",
        "project": "PROJECT",
        "storage": "SERVER:/PATH",
        "spot": "true",
        "hosts": "4",
    },
    required=("accelerator", "zone", "project"),
    check=check,
    render=render,
    submission=("gcloud", ("bash",)),
    cost="TPU slices of the type {accelerator} in {zone}, which cost money until they "
    "are deleted: {hosts}",
)
