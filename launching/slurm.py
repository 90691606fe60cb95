"""A batch script for Slurm, with one task for each GPU.

jax gives the process of a task the device with the task's number on its node, so a node
has as many tasks as GPUs. A sweep is an array job whose tasks share the workdir.
"""

from launching import job as jobs
from launching import quoting
from launching.job import Job, Target

_NAME = r"[A-Za-z0-9][-.\w]{0,63}"
_PARTITION = r"[A-Za-z0-9][-.\w]*(,[A-Za-z0-9][-.\w]*)*"
_GPUS = r"(?:[A-Za-z][-.\w]*:)?([1-9]\d?)"


def _gpus(job: Job) -> int:
    if job.accelerator is None:
        return 0
    accepted = "the GPUs of a node, as NUMBER or TYPE:NUMBER, such as h100:8"
    return int(jobs.match("accelerator", job.accelerator, _GPUS, accepted)[1])


def check(job: Job) -> None:
    """Checks a job for Slurm."""
    accepted = (
        "at most 64 letters, digits, dots, hyphens and underscores, beginning with a "
        "letter or digit"
    )
    jobs.match("name", job.name, _NAME, accepted)
    if job.partition:
        accepted = "names of partitions, as NAME or NAME,NAME"
        jobs.match("partition", job.partition, _PARTITION, accepted)
    _gpus(job)
    jobs.refuse_buckets(job)


def render(job: Job) -> str:
    """Returns the script."""
    gpus = _gpus(job)
    tasks = 1 if job.sweep else max(gpus, 1)
    options = {
        "job-name": job.name,
        "partition": job.partition,
        "array": f"0-{job.hosts - 1}" if job.sweep else None,
        "nodes": 1 if job.sweep else job.hosts,
        "ntasks-per-node": tasks,
        "gpus-per-node": job.accelerator,
        "output": "%x.%A_%a.txt" if job.sweep else "%x.%j.txt",
    }
    command = job.command(".venv/bin/python", workers=max(gpus, 1))
    join = environment = ""
    if job.sweep:
        join = (
            'if [ "$SLURM_ARRAY_TASK_ID" != 0 ]; then\n'
            "  # Joins the sweep when task 0 has started it.\n"
            f"  {job.wait_for_sweep()}\n"
            "  command+=(--worker)\n"
            "fi"
        )
        # The runs of a sweep are processes of their own, which must not join a job.
        environment = " env --unset=SLURM_STEP_NODELIST"
    return quoting.fill(
        "slurm.sh",
        name=job.name,
        options="\n".join(
            f"#SBATCH --{name}={value}" for name, value in options.items() if value
        ),
        command=quoting.array(command, indent=""),
        join=join,
        environment=environment,
        restarts=job.restarts,
    )


TARGET = Target(
    flags={"accelerator": "h100:8", "partition": "PARTITION", "hosts": "4"},
    required=(),
    check=check,
    render=render,
    submission=("sbatch", ("sbatch",)),
    cost="nodes of the cluster: {hosts}",
)
