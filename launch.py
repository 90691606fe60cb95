r"""Writes the file that launches a run or a sweep on a cluster, and can submit it.

    python launch.py --target=slurm --name=nmt --hosts=2 --accelerator=8 \
        --config=configs/transformer_nmt.py --workdir=runs/nmt \
        -- --config.model.d_model=256

The targets are Cloud TPU (tpu), Slurm (slurm), Kubernetes (kubernetes) and SkyPilot
(skypilot); docs/launching.md has a command for each. With --sweep=FILE, the hosts are
workers of a sweep.
"""

from absl import flags

from training import runtime
from training.command_line import Arguments

_TARGET = flags.DEFINE_enum(
    "target", None, ["tpu", "slurm", "kubernetes", "skypilot"], "Platform."
)
_NAME = flags.DEFINE_string("name", None, "Name of the job on the platform.")
_CONFIG = flags.DEFINE_string("config", None, "Config file, as for train.py.")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Run directory on the hosts, in a folder that they share."
)
_SWEEP = flags.DEFINE_string("sweep", None, "Sweep file, as for sweep.py.")
_HOSTS = flags.DEFINE_integer(
    "hosts", None, "Number of hosts, or of workers of a sweep; the default is 1."
)
_RESTARTS = flags.DEFINE_integer(
    "restarts",
    None,
    "Maximum number of restarts after faults and crashes (kubernetes: of all "
    "restarts); the default is 20.",
)
_ACCELERATOR = flags.DEFINE_string(
    "accelerator",
    None,
    "TPU type (v5litepod-16), or GPUs of a host: h100:8 (slurm), nvidia.com/gpu:8 "
    "(kubernetes), H100:8 (skypilot).",
)
_ZONE = flags.DEFINE_string("zone", None, "Zone (tpu).")
_PROJECT = flags.DEFINE_string("project", None, "Project (tpu).")
_SPOT = flags.DEFINE_bool("spot", False, "Use preemptible machines (tpu, skypilot).")
_PARTITION = flags.DEFINE_string("partition", None, "Partition (slurm).")
_IMAGE = flags.DEFINE_string("image", None, "Container image (kubernetes).")
_NAMESPACE = flags.DEFINE_string(
    "namespace", None, "Namespace (kubernetes); the default is `default`."
)
_STORAGE = flags.DEFINE_string(
    "storage",
    None,
    "Shared storage, mounted at /mnt/shared: SERVER:/PATH of an NFS share (tpu), a "
    "PersistentVolumeClaim (kubernetes); gs://BUCKET, s3://BUCKET or, for several "
    "hosts, a volume (skypilot).",
)
_OUT = flags.DEFINE_string("out", None, "New file to write, instead of printing it.")
_SUBMIT = flags.DEFINE_bool(
    "submit", False, "Submit the file written to --out, after asking."
)
_YES = flags.DEFINE_bool("yes", False, "Submit without asking.")

_FIELDS = (
    *(_NAME, _CONFIG, _WORKDIR, _SWEEP, _HOSTS, _RESTARTS, _ACCELERATOR, _ZONE),
    *(_PROJECT, _SPOT, _PARTITION, _IMAGE, _NAMESPACE, _STORAGE),
)


def main(arguments: Arguments) -> int:
    """Writes the file, and submits it if asked; returns the exit status."""
    from launching import main as launching

    return launching.run(
        target=_TARGET.value,
        given={field.name: field.value for field in _FIELDS},
        overrides=arguments.overrides,
        out=_OUT.value,
        submits=_SUBMIT.value,
        yes=_YES.value,
    )


if __name__ == "__main__":
    runtime.run(main, overrides=True)
