"""A task for SkyPilot's managed jobs, which replace preempted nodes."""

import shlex

from base.errors import FieldError, UserError
from launching import job as jobs
from launching import quoting
from launching.job import Job, Target

_STORAGE = r"(gs|s3)://[a-z0-9][-._a-z0-9]{1,61}[a-z0-9]|[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_GPUS = r"([A-Za-z][-.\w]*):([1-9]\d?)"
# jax has no rule for SkyPilot, which tells each node its number and the addresses.
_ADDRESSES = """\
export JAX_COORDINATOR_ADDRESS="$(head -n1 <<< "$SKYPILOT_NODE_IPS"):8476"
export JAX_NUM_PROCESSES="$SKYPILOT_NUM_NODES"
export JAX_PROCESS_ID="$SKYPILOT_NODE_RANK"
"""


def check(job: Job) -> None:
    """Checks a job for SkyPilot."""
    jobs.check_label(job.name)
    if job.sweep:
        raise UserError(
            "--sweep: --target=skypilot does not start the workers of a sweep; must be "
            "--target=tpu, slurm or kubernetes"
        )
    accepted = "the GPUs of a node, as TYPE:NUMBER, such as H100:8"
    result = jobs.match("accelerator", job.accelerator, _GPUS, accepted)
    if result[1].lower().startswith("tpu"):
        accepted += "; --target=tpu is for TPUs"
        raise FieldError("--accelerator", job.accelerator, accepted)
    accepted = "gs://BUCKET, s3://BUCKET or the name of a volume, in lower case"
    storage = jobs.match("storage", job.storage, _STORAGE, accepted)
    if storage[1] and job.hosts > 1:
        accepted = (
            "a volume: in a bucket, the nodes of a job see each other's files too late"
        )
        raise FieldError("--storage", job.storage, accepted)
    jobs.check_copied_paths(job)
    jobs.check_shared_workdir(job)


def _mount(storage: str) -> str:
    if "://" not in storage:
        return f"volumes:\n  {jobs.SHARED}: {quoting.yaml(storage)}"
    # In the mode MOUNT, files can be neither appended to nor written at random places.
    return (
        f"file_mounts:\n  {jobs.SHARED}:\n    source: {quoting.yaml(storage)}\n"
        "    mode: MOUNT_CACHED"
    )


def render(job: Job) -> str:
    """Returns the task."""
    return quoting.fill(
        "skypilot.yaml",
        plain_name=job.name,
        name=quoting.yaml(job.name),
        hosts=job.hosts,
        accelerators=quoting.yaml(job.accelerator or ""),
        spot=str(job.spot).lower(),
        mount=_mount(job.storage or ""),
        addresses=_ADDRESSES if job.hosts > 1 else "",
        command=shlex.join(job.command(".venv/bin/python")),
        restarts=job.restarts,
    )


TARGET = Target(
    flags={
        "accelerator": "H100:8",
        "storage": "gs://BUCKET",
        "spot": "true",
        "hosts": "4",
    },
    required=("accelerator", "storage"),
    check=check,
    render=render,
    submission=("sky", ("sky", "jobs", "launch", "--yes")),
    cost="nodes with {accelerator}, which cost money until the end: {hosts}",
)
