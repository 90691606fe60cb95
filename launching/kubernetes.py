"""A JobSet for Kubernetes, and an indexed Job for a sweep.

jax finds the other pods through the API of the cluster, so the pods of a JobSet have a
service account that may read pods and jobs, and a headless service gives them names.
"""

import shlex

from launching import job as jobs
from launching import quoting
from launching.job import Job, Target

_IMAGE = r"[a-z0-9][-./:@\w]{0,254}"
_CLAIM = r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"
_NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DEVICES = r"([a-z0-9][-.a-z0-9]*/[a-z0-9][-.a-z0-9]*):([1-9]\d?)"


def _devices(job: Job) -> tuple[str, int]:
    if job.accelerator is None:
        return "", 0
    accepted = "the devices of a pod, as RESOURCE:NUMBER, such as nvidia.com/gpu:8"
    result = jobs.match("accelerator", job.accelerator, _DEVICES, accepted)
    return result[1], int(result[2])


def check(job: Job) -> None:
    """Checks a job for Kubernetes."""
    pod = f"-{job.hosts - 1}-abcde"  # the index, and five random characters
    jobs.check_label(job.name, pod if job.sweep else f"-host-0{pod}")
    jobs.match(
        "image", job.image, _IMAGE, "the name of a container image, in lower case"
    )
    accepted = "the name of a namespace: lower-case letters, digits and hyphens"
    jobs.match("namespace", job.namespace, _NAMESPACE, accepted)
    accepted = (
        "the name of a PersistentVolumeClaim that all pods can mount, in lower case"
    )
    jobs.match("storage", job.storage, _CLAIM, accepted)
    _devices(job)
    jobs.check_copied_paths(job)
    jobs.check_shared_workdir(job)


def render(job: Job) -> str:
    """Returns the documents."""
    resource, number = _devices(job)
    limits = f"resources:\n  limits:\n    {quoting.yaml(resource)}: {number}"
    values = {
        "name": quoting.yaml(job.name),
        "namespace": quoting.yaml(job.namespace),
        "plain_name": job.name,
        "plain_namespace": job.namespace,
        "hosts": job.hosts,
        "restarts": job.restarts,
        "image": quoting.yaml(job.image or ""),
        "claim": quoting.yaml(job.storage or ""),
        "shared": jobs.SHARED,
        "resources": limits if number else "",
    }
    if job.sweep:
        first = job.command("python", workers=max(number, 1))
        join = job.command("python", workers=max(number, 1), joins=True)
        return quoting.fill(
            "sweep.yaml",
            first=quoting.container_argument(shlex.join(first)),
            wait=quoting.container_argument(job.wait_for_sweep()),
            join=quoting.container_argument(shlex.join(join)),
            **values,
        )
    words = map(quoting.container_argument, job.command("python"))
    command = "\n".join(f"- {quoting.yaml(word)}" for word in words)
    return quoting.fill("jobset.yaml", command=command, **values)


TARGET = Target(
    flags={
        "accelerator": "nvidia.com/gpu:8",
        "image": "IMAGE",
        "namespace": "NAMESPACE",
        "storage": "CLAIM",
        "hosts": "4",
    },
    required=("image", "storage"),
    check=check,
    render=render,
    submission=("kubectl", ("kubectl", "apply", "--filename")),
    cost="pods of the cluster of the current context of kubectl: {hosts}",
)
