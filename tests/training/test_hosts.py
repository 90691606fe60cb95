"""Tests of what a process joins: by flags, variables, or the environment's."""

import os
import re

import jax
import pytest
from absl import flags
from absl.testing import flagsaver

from base.errors import UserError
from training.cluster import hosts, presence
from training.cluster.job import FAULT

HOST = "10.0.0.1:8476"
VARIABLES = dict(zip(hosts._VARIABLES.values(), (HOST, "3", "2"), strict=True))
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.fixture
def join(monkeypatch):
    """Joins with flags and variables; returns what jax would get, None if alone."""
    calls, before = [], set(flags.FLAGS)
    if "coordinator" not in flags.FLAGS:  # entry points of other tests define it too
        hosts.define_flags()
        flags.FLAGS.mark_as_parsed()
    monkeypatch.setattr(jax.distributed, "initialize", lambda *x, **_: calls.append(x))
    monkeypatch.setattr(presence, "meet", lambda address, *_: address)
    monkeypatch.setattr(hosts.job, "start", lambda timeout: None)

    def call(environ=(), gpus="", **given):
        for name in (*VARIABLES, *SLURM, *OPEN_MPI):
            monkeypatch.delenv(name, raising=False)
        for name, value in dict(environ, CUDA_VISIBLE_DEVICES=gpus).items():
            monkeypatch.setenv(name, value)
        with flagsaver.flagsaver(**given):
            hosts.join()
        return calls.pop() if calls else None

    yield call
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)


def test_flags_and_variables_describe_a_job(join):
    assert join() is None
    assert join(VARIABLES) == (HOST, 3, 2, None)
    assert join(VARIABLES, process_id=1) == (HOST, 3, 1, None)
    assert join(join="none") is None
    bad = {"JAX_NUM_PROCESSES": "x", "OMPI_COMM_WORLD_SIZE": "x"}
    assert join(VARIABLES | bad, join="none") is None  # the environment does not count


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coordinator": "a:1"}, "--num_processes (or JAX_NUM_PROCESSES) is missing"),
        ({"process_id": 0}, "--coordinator (or JAX_COORDINATOR_ADDRESS) is missing"),
        ({"coordinator": HOST, "num_processes": 2, "process_id": 2}, "--process_id is"),
        ({"coordinator": "x", "num_processes": 2, "process_id": 0}, "--coordinator is"),
        ({"coordinator": "x:65536", "num_processes": 2, "process_id": 0}, "--coordin"),
        ({"join": "none", "coordinator": HOST}, "--coordinator joins a job, --j"),
        ({"join": "none", "num_processes": 2}, "--num_processes joins a job, --j"),
        ({"join": "none", "process_id": 0}, "--process_id joins a job, --join=no"),
    ],
)
def test_an_incomplete_or_impossible_job_is_refused(join, given, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        join(**given)


@pytest.mark.parametrize(
    "changes",
    [
        {"JAX_NUM_PROCESSES": "two"},
        {"JAX_NUM_PROCESSES": "7" * 5003},
        {"JAX_NUM_PROCESSES": "1000001"},
        {"JAX_PROCESS_ID": "-1"},
        {"JAX_PROCESS_ID": ""},
    ],
)
def test_a_variable_that_is_no_number_is_named(join, changes):
    ((name, _),) = changes.items()
    with pytest.raises(UserError, match=f"^{name} is .*: must be (a whole|at least 0)"):
        join(VARIABLES | changes)


def test_a_host_name_that_the_others_cannot_reach_is_refused(join, monkeypatch):
    addresses = {"node1": "127.0.1.1", "node2": "10.0.0.2"}

    def resolve(name):
        if name not in addresses:
            raise OSError
        return addresses[name]

    monkeypatch.setattr(hosts.socket, "gethostbyname", resolve)
    job = {"num_processes": 2, "process_id": 1}
    for host, reason in (("node1", "node1 is 127.0.1.1 on"), ("x", "unknown host x")):
        with pytest.raises(UserError, match=f"^--coordinator is {host}:1: {reason}"):
            join(coordinator=f"{host}:1", **job)
    for host in ("node2", "localhost", "127.0.0.1", "[::1]"):
        assert join(coordinator=f"{host}:1", **job) == (f"{host}:1", 2, 1, None)
    alone = {"num_processes": 1, "process_id": 0}
    assert join(coordinator="node1:1", **alone) == ("node1:1", 1, 0, None)


def test_the_environment_of_a_cluster_is_detected(join, monkeypatch):
    assert join(SLURM) == ("node1:61447", 4, 3, [1])
    # An interactive shell has the number of tasks of its job, but is a step of one.
    assert join(SLURM | {"SLURM_STEP_NUM_TASKS": "1"}) is None
    assert join({k: v for k, v in SLURM.items() if "STEP" not in k}) is None  # a script
    assert join({"OMPI_COMM_WORLD_SIZE": "1"}) is None
    address, *numbers = join(OPEN_MPI)
    assert address.startswith("10.96.0.1:") and numbers == [2, 1, [0]]
    assert join(POD) is None
    monkeypatch.setattr(hosts.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="`pip install kubernetes` installs it"):
        join(POD | {"JOB_COMPLETION_INDEX": "0"})


@pytest.mark.parametrize(
    ("changes", "gpus", "expected"),
    [
        ({}, "0,3,5,6,1,2,4,7", [4, 5, 6, 7]),  # the second of two tasks of a node
        ({}, "GPU-7,GPU-3,-1,GPU-2", [1]),  # CUDA ignores what follows
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x4)", "SLURM_LOCALID": "0"}, "0,1", [0, 1]),
        ({"SLURM_GPUS_PER_TASK": "2"}, "0,1", [0, 1]),
        ({}, "0", [0]),  # bound by --gpu-bind or --tres-per-task
        # The second node of two has three tasks.
        ({"SLURM_STEP_TASKS_PER_NODE": "1,3", "SLURM_NODEID": "1"}, "0,1,2", [1]),
        # The fourth node has a single one.
        (
            {
                "SLURM_STEP_TASKS_PER_NODE": "1(x3),1",
                "SLURM_NODEID": "3",
                "SLURM_LOCALID": "0",
            },
            "0,1,2",
            [0, 1, 2],
        ),
    ],
)
def test_the_tasks_of_a_slurm_node_share_its_gpus(join, changes, gpus, expected):
    assert join(SLURM | changes, gpus) == ("node1:61447", 4, 3, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SLURM_STEP_NUM_TASKS": "x"}, "^SLURM_STEP_NUM_TASKS is 'x': must be a who"),
        ({"SLURM_LOCALID": "x"}, "^SLURM_LOCALID is 'x': must be a whole number"),
        ({"SLURM_NTASKS": "1.5"}, "^this process cannot join .*: '1.5'$"),
        ({"SLURM_JOB_ID": "7_x"}, "^this process cannot join .*: '7_x'$"),
        ({"SLURM_NODEID": "2"}, "^SLURM_NODEID is '2': must be a node of SLURM_STEP_T"),
        ({"SLURM_NODEID": "7" * 5003}, "^SLURM_NODEID is '7+': must be a node of SLU"),
        ({"OMPI_COMM_WORLD_SIZE": "x", "SLURM_STEP_NUM_TASKS": "1"}, "^OMPI_COMM_WOR"),
        *[
            (
                {"SLURM_STEP_TASKS_PER_NODE": text},
                r"must be numbers, such as 4\(x2\),3$",
            )
            for text in ("", "x", "2(x)", "2(x2", "2,,1", "0", "2(2)")
        ],
    ],
)
def test_malformed_variables_of_a_cluster_end_in_a_line(join, changes, message):
    with pytest.raises(UserError, match=message):
        join(SLURM | changes)


def test_a_job_of_slurm_that_cannot_be_joined_is_refused(join):
    with pytest.raises(UserError, match="^2 tasks of a node cannot share 3 GPUs equal"):
        join(SLURM, "0,1,2")
    with pytest.raises(
        UserError, match="^this process cannot join .*: 'SLURM_STEP_NOD"
    ):
        join({k: v for k, v in SLURM.items() if k != "SLURM_STEP_NODELIST"})


@pytest.mark.parametrize("address", ["", "x", "7.0;tcp", "prte-7@0;x"])
def test_open_mpi_without_an_address_is_told_what_to_give(join, address):
    message = f"^OMPI_MCA_orte_hnp_uri is '{address}': .*; give --coordinator, --num_p"
    with pytest.raises(UserError, match=message):
        join(OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": address})


@pytest.mark.parametrize("error", [RuntimeError("DEADLINE"), TimeoutError("DEADLINE")])
def test_a_process_that_does_not_arrive_is_a_fault(join, monkeypatch, capsys, error):
    def fail(*_, **__):
        raise error

    owner = jax.distributed if type(error) is RuntimeError else presence
    monkeypatch.setattr(owner, "meet" if owner is presence else "initialize", fail)
    with pytest.raises(SystemExit) as ended:
        join(VARIABLES, join_timeout=7)
    assert ended.value.code == FAULT
    line = "this process cannot join its job within --join_timeout=7 s (--join=none"
    assert capsys.readouterr().err == f"error: {line} runs alone): DEADLINE\n"
    assert os.environ["JAX_NUM_PROCESSES"] == "3"
