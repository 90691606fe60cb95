"""Joining a job of several processes, on one host or on many.

A process joins a job by `--coordinator`, `--num_processes` and `--process_id`, by jax's
variables `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, or by
itself on Cloud TPU, under Slurm (`srun`), Open MPI (`mpirun`) and Kubernetes (an
indexed Job), where jax finds the address and the numbers. Added to jax: an interactive
shell in a Slurm job is no process of it, a Slurm task may have several GPUs, and what
would end in a hang or a traceback is refused with a line.
"""

import glob
import ipaddress
import itertools
import os
import re
import signal
import socket
import sys
from importlib import util
from typing import Any

from absl import flags

from base.errors import FieldError, UserError, parse_whole, shorten
from base.ranges import Range
from training.cluster import job, presence

flags.disclaim_key_flags()  # the flags are those of the entry point that defines them

_MAX = 10**6  # of a number of processes, and of seconds
_COUNT = Range(0, _MAX, whole=True)
_VARIABLES = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "num_processes": "JAX_NUM_PROCESSES",
    "process_id": "JAX_PROCESS_ID",
}


def define_flags() -> None:
    """Defines the flags of a process of a job; for an entry point."""
    text = (
        "Seconds without a finished step, part of an evaluation or figure (or ten "
        "times the median step, if that is longer) after which the process prints its "
        "stacks and exits with status 75; 0 for no limit."
    )
    flags.DEFINE_integer("watchdog", 600, text, 0, _MAX)
    text = (
        "Whether to join a job of several processes that the environment describes "
        "(Cloud TPU, Slurm, Open MPI, Kubernetes)."
    )
    flags.DEFINE_enum("join", "auto", ["auto", "none"], text)
    text = "HOST:PORT of process 0, with --num_processes and --process_id."
    flags.DEFINE_string("coordinator", None, text)
    flags.DEFINE_integer(
        "num_processes", None, "Number of processes of the job.", 1, _MAX
    )
    flags.DEFINE_integer("process_id", None, "Number of this process, from 0.", 0, _MAX)
    text = "Seconds to wait for the other processes of the job."
    flags.DEFINE_integer("join_timeout", 1800, text, 1, _MAX)
    text = "Seconds without a sign of life after which a process counts as dead."
    flags.DEFINE_integer("heartbeat_timeout", 100, text, 1, _MAX)


def join() -> None:
    """Joins the job of several processes that flags or environment describe, if any.

    Must be called before jax looks for devices. Does nothing in an entry point without
    these flags.

    Raises:
        UserError: for incomplete or contradictory flags, a coordinator that other hosts
            cannot reach, or an environment in which jax does not find the job.
        SystemExit: with the status of a fault, if the others do not arrive in time.
    """
    import jax
    from jax._src.clusters import ClusterEnv

    values = flags.FLAGS
    if "coordinator" not in values or not (given := _explicit() or _detected()):
        return
    timeout = values.join_timeout
    line = (
        f"this process cannot join its job within --join_timeout={timeout} s "
        "(--join=none runs alone)"
    )
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        if given[0] is None:
            find: Any = ClusterEnv.auto_detect_unset_distributed_params
            given = find(*given, timeout)
        address, count, number, devices = given
        if count and count > 1 and address and number is not None:
            address = presence.meet(address, count, number, timeout, job.failed)
        presence.call(
            jax.distributed.initialize,
            address,
            count,
            number,
            devices,
            cluster_detection_method="deactivate",
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=values.heartbeat_timeout,
        )
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{line}: {' '.join(str(error).split())[:200]}") from error
    except (RuntimeError, OSError) as error:  # others have not arrived: a fault
        print(f"error: {line}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
        sys.exit(job.FAULT)
    finally:
        signal.signal(signal.SIGTERM, before)  # jax has installed a handler
    job.start(timeout)


def _stop(number: int, _frame: Any) -> None:
    print("stopped before the job has begun", file=sys.stderr, flush=True)
    os._exit(128 + number)


def _explicit() -> tuple[Any, ...] | None:
    """Returns address, number of processes, number and devices by flags, variables."""
    given: dict[str, Any] = {name: flags.FLAGS[name].value for name in _VARIABLES}
    for name, variable in _VARIABLES.items():
        if flags.FLAGS.join == "none":
            if given[name] is not None:
                raise UserError(
                    f"--{name} joins a job, --join=none runs alone: give one of them"
                )
        elif given[name] is None and variable in os.environ:
            text = name == "coordinator"
            given[name] = os.environ[variable] if text else whole(variable)
    if set(given.values()) == {None}:
        return None
    for name, variable in _VARIABLES.items():
        if given[name] is None:
            raise UserError(
                f"--{name} (or {variable}) is missing: a job of several processes "
                "needs --coordinator, --num_processes and --process_id"
            )
    address, count, number = given.values()
    if number >= count:
        raise UserError(
            f"--process_id is {number}: must be below --num_processes, {count}"
        )
    _check_address(address, count)
    return address, count, number, None


def _check_address(address: str, processes: int) -> None:
    """Checks that an address of process 0 is HOST:PORT, and not of each host itself."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16):
        raise UserError(f"--coordinator is {shorten(address)}: must be HOST:PORT")
    if host == "localhost" or re.search(r":|^[\d.]+$", host) or processes == 1:
        return
    try:
        resolved = socket.gethostbyname(host)
    except OSError as error:
        raise UserError(f"--coordinator is {address}: unknown host {host}") from error
    if ipaddress.ip_address(resolved).is_loopback:
        raise UserError(
            f"--coordinator is {address}: {host} is {resolved} on this host, which "
            "other hosts cannot reach; name its address in the network"
        )


def _detected() -> tuple[Any, ...] | None:
    """Returns what jax needs to find the job that the environment describes, if any."""
    environ, unknown = os.environ, (None, None, None)
    if flags.FLAGS.join == "none":
        return None
    # SLURM_NTASKS may be that of the whole job, also in an interactive shell.
    if whole("SLURM_STEP_NUM_TASKS") > 1:
        return *unknown, _slurm_devices(_gpus()) or None, "slurm"
    if whole("OMPI_COMM_WORLD_SIZE") > 1:
        uri = environ.get("OMPI_MCA_orte_hnp_uri", "")
        if not re.search(r"^\d+\..*tcp6?://", uri):
            raise UserError(
                f"OMPI_MCA_orte_hnp_uri is {uri!r}: under mpirun of Open MPI 5 jax "
                "does not find the other processes; give --coordinator, "
                "--num_processes and --process_id, or --join=none to run alone"
            )
        return *unknown, None, "ompi"
    chips = glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*")
    if chips and util.find_spec("libtpu") and environ.get("JAX_PLATFORMS") != "cpu":
        return *unknown, None, None
    indexed = "JOB_COMPLETION_INDEX" in environ or "JOBSET_NAME" in environ
    if "KUBERNETES_SERVICE_HOST" in environ and indexed:
        if util.find_spec("kubernetes") is None:
            raise UserError(
                "this process is in a Kubernetes job, but kubernetes is not installed: "
                "`pip install kubernetes` installs it, --join=none runs alone"
            )
        return *unknown, None, "k8s"
    return None


def whole(name: str, accepted: Range = _COUNT) -> int:
    """Returns the whole number of a variable of the environment; 1 if it is not set.

    Raises:
        FieldError: for another text, or a number out of range.
    """
    text = os.environ.get(name, "1")
    try:
        number = parse_whole(text)
    except ValueError:
        raise FieldError(name, text, "a whole number") from None
    accepted.check(name, number)
    return number


def _slurm_devices(visible: int) -> list[int]:
    """Returns the numbers of the GPUs of a Slurm task.

    The tasks of a node share its visible GPUs equally, unless Slurm has bound them.
    """
    environ = os.environ
    name, count = "SLURM_STEP_TASKS_PER_NODE", r"([1-9]\d{0,5})(?:\(x([1-9]\d{0,5})\))?"
    text, node = environ.get(name, "1"), environ.get("SLURM_NODEID", "0")
    if not re.fullmatch(f"{count}(,{count})*", text):
        raise UserError(f"{name} is {text!r}: must be numbers, such as 4(x2),3")
    pairs = re.findall(count, text)
    nodes = [int(n) for n, repeats in pairs for _ in range(int(repeats or 1))]
    if not re.fullmatch(r"\d{1,6}", node) or int(node) >= len(nodes):
        raise UserError(f"SLURM_NODEID is {node!r}: must be a node of {name}={text}")
    tasks, task = nodes[int(node)], whole("SLURM_LOCALID")
    # Fewer GPUs than tasks are bound, by --gpu-bind or --tres-per-task.
    if "SLURM_GPUS_PER_TASK" in environ or visible < tasks:
        return list(range(visible))
    if visible % tasks or task >= tasks:
        raise UserError(
            f"{tasks} tasks of a node cannot share {visible} GPUs equally: start "
            "with --ntasks-per-node of 1 or the number of GPUs"
        )
    share = visible // tasks
    return list(range(task * share, (task + 1) * share))


def _gpus() -> int:
    """Returns the number of NVIDIA GPUs that this process may use."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return len(glob.glob("/dev/nvidia[0-9]*"))
    numbers = [part.strip() for part in visible.split(",")]
    ends = "", "-1", "NoDevFiles"  # CUDA ignores what follows an invalid number
    return len([*itertools.takewhile(lambda x: x not in ends, numbers)])
