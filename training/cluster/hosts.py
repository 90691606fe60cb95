"""Jobs of several processes, on one host or on many: joining, and stopping together.

A process joins a job by `--coordinator`, `--num_processes` and `--process_id`, by jax's
variables `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, or by
itself on Cloud TPU, under Slurm (`srun`), Open MPI (`mpirun`) and Kubernetes (an
indexed Job). Every process runs the same command.
"""

import glob
import ipaddress
import itertools
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from typing import Any

from absl import flags

from base.errors import FieldError, UserError, parse_whole, shorten
from base.ranges import Range
from training.cluster import job, presence
from training.cluster.job import FAULT

flags.disclaim_key_flags()  # the flags are those of the entry point that defines them

_MAX = 10**6  # of a number of processes, and of seconds
_VARIABLES = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "num_processes": "JAX_NUM_PROCESSES",
    "process_id": "JAX_PROCESS_ID",
}
_COUNT, _JOB = Range(0, _MAX, whole=True), Range(0, 2**32 - 1, whole=True)
_CLOSING = 10.0  # seconds in which the port of a job that has ended is free again
_LATER = 10  # seconds that jax waits after `--join_timeout`
_BY_HAND = (
    "give --coordinator, --num_processes and --process_id, or --join=none to run alone"
)
_OPEN_MPI = "OMPI_MCA_orte_hnp_uri"  # where jax finds the coordinator's address
_NO_GPU = ("", "-1", "NoDevFiles")  # in CUDA_VISIBLE_DEVICES


def define_flags() -> None:
    """Defines the flags of a process of a job; for an entry point."""
    flags.DEFINE_integer(
        "watchdog",
        600,
        "Seconds without a finished step, part of an evaluation or figure (or ten "
        "times the median step, if that is longer) after which the process prints its "
        "stacks and exits with status 75; 0 for no limit.",
        lower_bound=0,
        upper_bound=_MAX,
    )
    flags.DEFINE_enum(
        "join",
        "auto",
        ["auto", "none"],
        "Whether to join a job of several processes that the environment describes "
        "(Cloud TPU, Slurm, Open MPI, Kubernetes).",
    )
    flags.DEFINE_string(
        "coordinator",
        None,
        "HOST:PORT of process 0 of a job of several processes, with --num_processes "
        "and --process_id.",
    )
    flags.DEFINE_integer(
        "num_processes",
        None,
        "Number of processes of the job.",
        lower_bound=1,
        upper_bound=_MAX,
    )
    flags.DEFINE_integer(
        "process_id",
        None,
        "Number of this process in the job, from 0.",
        lower_bound=0,
        upper_bound=_MAX,
    )
    flags.DEFINE_integer(
        "join_timeout",
        1800,
        "Seconds to wait for the other processes of the job.",
        lower_bound=1,
        upper_bound=_MAX,
    )
    flags.DEFINE_integer(
        "heartbeat_timeout",
        100,
        "Seconds without a sign of life after which a process of the job counts as "
        "dead, which ends the others.",
        lower_bound=1,
        upper_bound=_MAX,
    )


def join() -> None:
    """Joins the job of several processes that flags or environment describe, if any.

    Must be called before jax looks for devices. Does nothing in an entry point without
    these flags.

    Raises:
        UserError: for incomplete or contradictory flags, a coordinator that other hosts
            cannot reach, or a missing package.
        SystemExit: with the status of a fault, for processes that do not arrive in
            time.
    """
    import jax

    values = flags.FLAGS
    if "coordinator" not in values:
        return
    if values.join == "none":
        _check_alone()
        return
    arguments = explicit() or detected(os.environ)
    if not arguments:
        return
    timeout = values.join_timeout
    line = (
        f"this process cannot join its job within --join_timeout={timeout} s "
        "(--join=none runs alone)"
    )
    before = signal.signal(signal.SIGTERM, _stop)
    timer = threading.Timer(timeout, _give_up, [line])
    timer.daemon = True
    timer.start()
    try:
        arguments = _complete(arguments, timeout)
        address, count, number, *_ = arguments.values()
        if None not in (address, count, number) and count > 1:
            arguments["coordinator_address"] = presence.meet(address, count, number)
        # In a thread, since signals are handled when the main one leaves jax.
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(
                jax.distributed.initialize,
                **arguments,
                initialization_timeout=timeout + _LATER,
                heartbeat_timeout_seconds=values.heartbeat_timeout,
            )
            joining.result()
    except (RuntimeError, OSError, ValueError, KeyError, TypeError) as error:
        line = f"{line}: {' '.join(str(error).split())[:200]}"
        if isinstance(error, ValueError | KeyError | TypeError):
            raise UserError(line) from error
        print(f"error: {line}", file=sys.stderr)  # others have not arrived: a fault
        sys.exit(FAULT)
    finally:
        timer.cancel()
        signal.signal(signal.SIGTERM, before)  # jax has installed a handler
    job.watch(timeout)


def _complete(arguments: dict[str, Any], timeout: int) -> dict[str, Any]:
    """Returns the arguments with those that jax finds in the environment."""
    from jax._src import clusters

    names = "coordinator_address", "num_processes", "process_id", "local_device_ids"
    values, method = map(arguments.get, names), arguments["cluster_detection_method"]
    if method != "deactivate":
        find: Any = clusters.ClusterEnv.auto_detect_unset_distributed_params
        values = find(*values, method, timeout)
    complete = dict(zip(names, values, strict=True))
    return complete | {"cluster_detection_method": "deactivate"}


def _stop(number: int, _frame: Any) -> None:
    print("stopped before the job has begun", file=sys.stderr, flush=True)
    os._exit(128 + number)


def _give_up(line: str) -> None:
    """Ends the process; at its own timeout, jax would abort it with its stacks."""
    print(f"error: {line}: others have not arrived", file=sys.stderr, flush=True)
    os._exit(FAULT)


def _check_alone() -> None:
    """Checks that no flag describes a job; variables of the environment do not count.

    Raises:
        UserError: for the first flag that does.
    """
    for name in _VARIABLES:
        if flags.FLAGS[name].value is not None:
            raise UserError(
                f"--{name} joins a job, and --join=none runs alone: give one of them"
            )


def explicit() -> dict[str, Any]:
    """Returns the arguments of `jax.distributed.initialize` from flags and variables.

    Raises:
        UserError: for an incomplete or impossible set of values.
    """
    flagged = {name: flags.FLAGS[name].value for name in _VARIABLES}
    given: dict[str, Any] = {
        name: os.environ.get(_VARIABLES[name]) if value is None else value
        for name, value in flagged.items()
    }
    if set(given.values()) == {None}:
        return {}
    for name, variable in _VARIABLES.items():
        if given[name] is None:
            raise UserError(
                f"--{name} (or {variable}) is missing: a job of several processes "
                "needs --coordinator, --num_processes and --process_id"
            )
    for name in ("num_processes", "process_id"):
        if flagged[name] is None:
            given[name] = whole(os.environ, _VARIABLES[name])
    count, number = given["num_processes"], given["process_id"]
    if number >= count:
        raise UserError(
            f"--process_id is {number}: must be below --num_processes, {count}"
        )
    check_address(given["coordinator"], count)
    if number == 0:
        _check_port(given["coordinator"])
    return {
        "coordinator_address": given["coordinator"],
        "num_processes": count,
        "process_id": number,
        "cluster_detection_method": "deactivate",
    }


def check_address(address: str, processes: int) -> None:
    """Checks the address of a coordinator.

    Args:
        address: "HOST:PORT".
        processes: number of processes.

    Raises:
        UserError: for an address of another form, an unknown host, or a host name that
            this host resolves to itself, so that the others would wait in vain.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16):
        raise UserError(f"--coordinator is {shorten(address)}: must be HOST:PORT")
    if host.strip("[]") == "localhost" or _is_literal(host) or processes == 1:
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


def _check_port(address: str) -> None:
    """Checks that no other program, such as process 0 of another job, has the port.

    jax would share the port with the other job, and both would fail.
    """
    port, end = int(address.rpartition(":")[2]), time.monotonic() + _CLOSING
    while True:
        try:
            presence.listen(port).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise UserError(
                    f"--coordinator is {address}: port {port} cannot be opened here "
                    f"({error.strerror}); each job needs a free port of its own, on "
                    "the host of process 0"
                ) from error
        time.sleep(1)


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def detected(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns the arguments for the job that the environment describes, if any.

    Args:
        environ: the environment's variables.

    Returns:
        Arguments of `jax.distributed.initialize`, which finds the rest by itself; None
        for a process on its own, such as an interactive shell in a Slurm job.

    Raises:
        UserError: for Kubernetes without the package that jax needs, Open MPI without
            the address that jax needs, or a malformed variable.
    """
    if _in_slurm_step(environ):
        devices = slurm_devices(environ, gpus())
        method = {"cluster_detection_method": "slurm"}
        return method | ({"local_device_ids": devices} if devices else {})
    if whole(environ, "OMPI_COMM_WORLD_SIZE") > 1:
        address = environ.get(_OPEN_MPI)
        if not re.search(r"^\d+\..*tcp6?://", address or ""):
            raise UserError(
                f"{_OPEN_MPI} is {address!r}: under mpirun of Open MPI 5 jax does not "
                f"find the other processes; {_BY_HAND}"
            )
        return {"cluster_detection_method": "ompi"}
    indexed = "JOB_COMPLETION_INDEX" in environ or "JOBSET_NAME" in environ
    if "KUBERNETES_SERVICE_HOST" in environ and indexed and not _on_tpu():
        if util.find_spec("kubernetes") is None:
            raise UserError(
                "this process is in a Kubernetes job, but kubernetes is not installed: "
                "`pip install kubernetes` installs it, --join=none runs alone"
            )
        return {"cluster_detection_method": "k8s"}
    if _on_tpu():
        return {"cluster_detection_method": None}
    return None


def _in_slurm_step(environ: Mapping[str, str]) -> bool:
    """Returns whether `srun` has started this process as one of several of a step."""
    needed = "SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID"
    # SLURM_NTASKS may be that of the whole job, also in an interactive shell.
    tasks = whole(environ, "SLURM_STEP_NUM_TASKS")
    if tasks <= 1 or not all(name in environ for name in needed):
        return False
    # jax reads them.
    whole(environ, "SLURM_JOB_ID", "", _JOB)
    for name in ("SLURM_NTASKS", "SLURM_PROCID"):
        whole(environ, name, "")
    return True


def whole(
    environ: Mapping[str, str],
    name: str,
    default: str = "1",
    accepted: Range = _COUNT,
) -> int:
    """Returns the whole number of a variable; `default` if it is not set.

    Raises:
        FieldError: for another text, or a number out of range.
    """
    text = environ.get(name, default)
    try:
        number = parse_whole(text)
    except ValueError:
        raise FieldError(name, text, "a whole number") from None
    accepted.check(name, number)
    return number


def slurm_devices(environ: Mapping[str, str], visible: int) -> list[int]:
    """Returns the numbers of the GPUs of a Slurm task; empty without GPUs.

    The tasks of a node share its visible GPUs equally, unless Slurm has bound them.

    Args:
        environ: the environment's variables.
        visible: number of GPUs that this process sees.

    Raises:
        UserError: if the tasks of a node cannot share its GPUs equally, or a variable
            is malformed.
    """
    tasks, task = _tasks_of_node(environ), whole(environ, "SLURM_LOCALID", "")
    if not visible:
        return []
    if "SLURM_GPUS_PER_TASK" in environ:
        return list(range(visible))
    if visible < tasks:  # bound, by --gpu-bind or --tres-per-task
        return list(range(visible))
    if visible % tasks or task >= tasks:
        raise UserError(
            f"{tasks} tasks of a node cannot share {visible} GPUs equally: start "
            "with --ntasks-per-node of 1 or the number of GPUs"
        )
    each = visible // tasks
    return list(range(task * each, (task + 1) * each))


def _tasks_of_node(environ: Mapping[str, str]) -> int:
    """Returns the number of tasks of this node in a Slurm step."""
    name = "SLURM_STEP_TASKS_PER_NODE"
    text, counts = environ.get(name, "1"), []
    for part in text.split(","):
        match = re.fullmatch(r"([1-9]\d{0,5})(?:\(x([1-9]\d{0,5})\))?", part)
        if not match:
            raise UserError(f"{name} is {text!r}: must be numbers, such as 4(x2),3")
        counts += [int(match[1])] * int(match[2] or 1)
    node = whole(environ, "SLURM_NODEID", "0")
    if node >= len(counts):
        raise UserError(
            f"SLURM_NODEID is {node}: must be below {len(counts)}, the number of nodes "
            f"in {name}={text}"
        )
    return counts[node]


def gpus() -> int:
    """Returns the number of NVIDIA GPUs that this process may use."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        parts = [part.strip() for part in visible.split(",")]
        # CUDA ignores what follows an invalid number.
        return len([*itertools.takewhile(lambda x: x not in _NO_GPU, parts)])
    return len(glob.glob("/dev/nvidia[0-9]*"))


def _on_tpu() -> bool:
    """Returns whether this host has TPU chips that jax will use."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    chips = glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*")
    return bool(chips) and util.find_spec("libtpu") is not None and platforms != "cpu"


def is_first() -> bool:
    """Returns whether this process writes the files that a job writes once."""
    import jax

    return jax.process_index() == 0
