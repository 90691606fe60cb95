"""Tests of jobs of several processes: joining, equal results, stopping together."""

import os
import signal
import socket

import jax
import jobs
import numpy as np
import pytest
import smoke
import toy

from base.errors import UserError
from configs import sagan, transformer_nmt
from tasks.images import task as adversarial
from training import loop, trained
from training.checkpoints import Checkpoints
from training.cluster import presence
from training.cluster.job import FAULT
from training.cluster.lock import Lock
from training.log import read_rows

# A leaf of 1,088 x 1,088 float32 is larger than 4 MiB, where gloo has had wrong sums.
# Not a wide feed-forward network: a few of 65,536 ReLUs change sides by rounding. Not
# Muon, which amplifies rounding in directions that have hardly any gradient.
# A step takes seconds.
LARGE = (
    "--config.model.d_model=1088",
    "--config.optimizer.learning_rate=0.0003",
    "--config.train_steps=12",
    "--config.eval_every=12",
)
SMOKE = [
    f"--config.{field}={value}"
    for field, value in transformer_nmt.VARIANTS["smoke"].items()
]
SYSTEMS = {
    "transformer_nmt:adam": (*SMOKE, *LARGE, "--config.data.batch_size_multiple=8"),
    "captioning": ("--config.data.batch_size=8",),
    "pointer_sorting": ("--config.data.batch_size=8",),
    "ntm_copy": ("--config.data.batch_size=8",),
    "sagan": ("--config.data.batch_size=8",),
}
# Biases before a batch norm, which subtracts them, and before attention with a gamma of
# hardly more than 0. Their gradient is rounding, which Adam scales to steps of the
# learning rate, so they depend on the number of processes.
SUBTRACTED = [
    f"to_{side}_{layer}" for side in (8, 16) for layer in ("conv_1", "conv_2", "skip")
]


# Joining


def test_a_port_that_another_program_has_is_refused(monkeypatch):
    monkeypatch.setattr(presence, "_CLOSING", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        port = address.partition(":")[2]
        message = f"^--coordinator: port {port} cannot be opened here "
        with pytest.raises(UserError, match=message):
            presence.meet(address, 2, 0, 5.0, lambda *_: None)


def test_a_process_whose_peers_do_not_arrive_ends_with_one_line(tmp_path):
    address = f"127.0.0.1:{jobs.free_port()}"
    toy = "--config=tests/toy.py", f"--workdir={tmp_path}/run"
    job = f"--coordinator={address}", "--num_processes=2", "--process_id=1"
    command = "train.py", *toy, *job, "--join_timeout=3"
    done = smoke.call(*command, env=jobs.environment(1))
    assert (done.returncode, done.stderr) == (
        FAULT,
        "error: this process cannot join its job within --join_timeout=3 s "
        "(--join=none runs alone): others have not arrived\n",
    )


# Results


def parameters(workdir):
    return jax.tree.map(np.asarray, trained.load(workdir).state.params)


def check_equal(left, right):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), left, right
    )


def train(config, workdir, *extra, processes, devices):
    name, _, variant = config.partition(":")
    jobs.run(
        "train.py",
        f"--config=configs/{name}.py:{variant or 'smoke'}",
        f"--workdir={workdir}",
        *extra,
        processes=processes,
        devices=devices,
        logs=workdir.with_suffix(".logs"),
    )
    return parameters(workdir)


EIGHT = ("--config.data.batch_size=8",)  # rows, one for each of eight devices


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process with eight devices."""
    workdir = tmp_path_factory.mktemp("alone") / "run"
    train("pointer_sorting", workdir, *EIGHT, processes=1, devices=8)
    return workdir


def test_two_processes_train_the_parameters_of_one(alone, tmp_path):
    workdirs = alone, tmp_path / "shared"
    shared = train("pointer_sorting", workdirs[1], *EIGHT, processes=2, devices=4)
    check_equal(parameters(alone), shared)
    for pattern in ("*.png", "*.jsonl"):  # one process writes
        alone, shared = (
            sorted(x.relative_to(workdir) for x in workdir.rglob(pattern))
            for workdir in workdirs
        )
        assert alone == shared
    alone, shared = (read_rows(workdir / "metrics.jsonl") for workdir in workdirs)
    assert [row["step"] for row in alone] == [row["step"] for row in shared]


@pytest.mark.slow
def test_a_run_goes_on_with_half_the_devices_in_two_processes(alone, tmp_path):
    for steps, processes, devices in [(3, 1, 8), (6, 2, 2)]:
        flags = *EIGHT, f"--config.train_steps={steps}"
        moved = train(
            "pointer_sorting",
            tmp_path / "moved",
            *flags,
            processes=processes,
            devices=devices,
        )
    check_equal(parameters(alone), moved)


@pytest.mark.jobs
@pytest.mark.parametrize("layout", ["data", "fsdp", "pmap"])
@pytest.mark.parametrize(
    "system",
    [
        # Its drawings are downloaded.
        pytest.param(x, marks=[pytest.mark.network] * (x == "captioning"))
        for x in SYSTEMS
    ],
)
def test_eight_devices_of_one_two_and_four_processes_train_equally(
    tmp_path, system, layout
):
    parallel = "pmap" if layout == "pmap" else "jit"
    flags = [*SYSTEMS[system], f"--config.parallel={parallel}"]
    flags += ["--config.mesh.data=1", "--config.mesh.fsdp=8"] * (layout == "fsdp")
    alone, *others = (
        train(system, tmp_path / f"{n}", *flags, processes=n, devices=8 // n)
        for n in (1, 2, 4)
    )
    if system == "sagan":
        alone, *others = map(without_subtracted, (alone, *others))
    for other in others:
        check_equal(alone, other)


def without_subtracted(params, value=0.0):
    """The parameters of a SAGAN with these biases set to `value`."""
    layers = {name: params["generator"][name] for name in SUBTRACTED}
    filled = {
        name: layer | {"bias": np.full_like(layer["bias"], value)}
        for name, layer in layers.items()
    }
    return params | {"generator": params["generator"] | filled}


@pytest.mark.jobs  # like the comparison
def test_the_biases_left_out_of_the_comparison_do_not_change_an_image():
    generator = adversarial.Adversarial(
        sagan.get_config("smoke"), adversarial.Assets()
    ).models["generator"]
    noise = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    label = np.zeros(8, np.int32)
    variables = generator.init(jax.random.key(0), noise, label, train=True)

    def images(value):
        params = {"generator": variables["params"]}
        params = without_subtracted(params, value)["generator"]
        changed = variables | {"params": params}
        return generator.apply(changed, noise, label, train=True, mutable=True)[0]

    np.testing.assert_allclose(images(1.0), images(0.0), atol=1e-5)


@pytest.mark.jobs
@pytest.mark.parametrize("layout", ["data", "fsdp"])
def test_a_run_goes_on_with_other_numbers_of_processes_and_devices(tmp_path, layout):
    flags = ["--config.data.batch_size=8", "--config.eval_every=100"]
    flags += ["--config.parallel=jit"]
    whole = train("pointer_sorting", tmp_path / "whole", *flags, processes=1, devices=8)
    moved = None
    for steps, processes, devices in [(1, 1, 8), (2, 2, 2), (4, 1, 1), (6, 4, 1)]:
        total = processes * devices
        mesh = ["--config.mesh.data=1", f"--config.mesh.fsdp={total}"]
        moved = train(
            "pointer_sorting",
            tmp_path / "moved",
            *flags,
            *mesh * (layout == "fsdp"),
            f"--config.train_steps={steps}",
            processes=processes,
            devices=devices,
        )
    check_equal(whole, moved)


# The toy task with a single program.
TOY = ("--config=tests/toy.py", "--config.data.batch_size=16,")


def start_failing(folder, place, number, *flags, processes=2):
    """Starts a toy run in `folder`/run, whose process `number` has a fault."""
    command = "tests/tools/failing.py", place, f"{number}", "train.py", *TOY
    flags = f"--workdir={folder}/run", *flags
    logs = folder / "logs"
    return jobs.start(*command, *flags, processes=processes, devices=1, logs=logs)


def test_a_signal_to_one_process_stops_all_at_one_step(tmp_path):
    workdir, logs = tmp_path / "stopped", tmp_path / "logs"
    fields = {"train_steps": 10**6, "eval_every": 10**6, "log_every": 1}
    flags = (f"--config.{name}={value}" for name, value in fields.items())
    command = "train.py", *TOY, f"--workdir={workdir}", *flags
    started = jobs.start(*command, processes=2, devices=1, logs=logs)
    log = logs / "0.txt"
    jobs.wait_for(lambda: "step 2/" in log.read_text("utf-8"), started, timeout=120)
    started[1].send_signal(signal.SIGTERM)
    assert jobs.finish(started) == [143, 143]
    (line,) = [x for x in jobs.output(logs)[0].splitlines() if x.startswith("stopped")]
    step = int(line.split("step ")[1].split(":")[0])
    assert (workdir / "checkpoints" / f"{step}").is_dir()


@pytest.mark.slow
def test_a_signal_after_the_last_step_stops_all_before_the_figures(tmp_path):
    started = start_failing(tmp_path, "last step", 1, "--config.train_steps=3")
    assert jobs.finish(started, timeout=100) == [143, 143]
    assert "stopped, saved at step 3: " in jobs.output(tmp_path / "logs")[0]
    assert not (tmp_path / "run" / "figures").exists()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("assets", "stopped before a step: the same command continues"),
        ("compilation", "stopped at step 0: the same command continues"),
        ("evaluation", "stopped, saved at step 3: the same command resumes"),
        ("figures", "stopped: the same command draws the missing figures"),
    ],
)
def test_a_signal_ends_what_would_take_minutes(tmp_path, processes, place, line):
    logs, workdir = tmp_path / "logs", tmp_path / "run"
    number = 0 if place == "assets" else processes - 1  # process 0 makes the assets
    fault, flag = f"stopped {place}", "--config.train_steps=3"
    started = start_failing(tmp_path, fault, number, flag, processes=processes)
    assert jobs.finish(started, timeout=100) == [143] * processes, jobs.output(logs)
    assert line in jobs.output(logs)[0]
    assert not (workdir / "lock").exists()
    with Checkpoints(workdir) as saved:
        expected = [3] if place in ("evaluation", "figures") else []
        assert saved.steps() == expected
        assert [saved.damage(step) for step in expected] == [""] * len(expected)
        assert saved.planned() == expected * (place == "figures")


def start_evaluation(place, number, folder, *flags):
    """Starts the evaluation of a toy run by two processes, one of which has a fault."""
    config, workdir = toy.get_config(), folder / "run"
    config.train_steps = 3
    loop.train(config, workdir)
    command = "tests/tools/failing.py", place, str(number), "eval.py"
    flags = f"--workdir={workdir}", "--split=test", *flags
    return jobs.start(*command, *flags, processes=2, devices=1, logs=folder / "logs")


@pytest.mark.slow
def test_a_signal_ends_an_evaluation(tmp_path):
    started = start_evaluation("evaluation", 1, tmp_path)
    first, second = jobs.finish(started, timeout=100)
    assert second == -signal.SIGTERM and first not in (0, 1)


@pytest.mark.slow
def test_the_others_wait_while_the_first_process_writes_an_evaluation(tmp_path):
    started = start_evaluation("tables", 0, tmp_path)
    assert jobs.finish(started, timeout=100) == [0, 0], jobs.output(tmp_path / "logs")
    assert (tmp_path / "run" / "figures" / "test" / "step.png").exists()


def test_a_run_directory_that_is_not_shared_is_refused(tmp_path):
    address = f"--coordinator=127.0.0.1:{jobs.free_port()}"
    script = """
import runpy, sys
from training.cluster import lock
lock._VISIBLE = 3.0
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    started = []
    for number in range(2):
        flags = f"--workdir={tmp_path}/{number}", address, "--num_processes=2"
        command = "-c", script, "train.py", "--config=tests/toy.py", *flags
        started += jobs.start(
            *command,
            f"--process_id={number}",
            processes=1,
            devices=1,
            logs=tmp_path / f"logs_{number}",
        )
    assert jobs.finish(started, timeout=100) == [1, 1]
    line = (
        f"--workdir={tmp_path}/1 is another folder here than in process 0: all "
        "processes of a job must have the same run directory, in a folder that their "
        "hosts share\n"
    )
    (first,) = jobs.output(tmp_path / "logs_0")
    (second,) = jobs.output(tmp_path / "logs_1")
    assert first == f"error: process 1 of the job has failed: {line}"
    assert second == f"error: {line}"
    for number in range(2):
        assert not list((tmp_path / f"{number}").glob("c*"))  # nothing is written


JOINING = """
import sys
from absl import flags
from training.cluster import hosts
hosts.define_flags()
flags.FLAGS(sys.argv, known_only=True)
hosts.join()
"""


def test_processes_that_end_together_do_not_say_that_another_is_gone(tmp_path):
    texts = jobs.run("-c", JOINING, processes=4, devices=1, logs=tmp_path / "logs")
    assert "gone" not in "".join(texts)


# Faults

NO_PROGRESS = "no step, part of an evaluation or figure has finished for "
# Seconds after the time of the watchdog: a quarter of it between two looks, two for an
# error of the other processes, and a slow machine.
_STUCK = 20


def test_a_stuck_run_ends_with_its_stacks_and_the_status_of_a_fault(tmp_path):
    halted = tmp_path / "halted"
    flags = "--config=tests/toy.py", f"--workdir={tmp_path}/run", "--watchdog=2"
    command = "tests/tools/halting.py", "batch", "7", f"{halted}", *flags
    started = jobs.start(*command, processes=1, devices=1, logs=tmp_path / "logs")
    jobs.wait_for(halted.exists, started, timeout=120)
    assert jobs.finish(started, timeout=_STUCK + 2) == [FAULT]
    (text,) = jobs.output(tmp_path / "logs")
    assert text.splitlines()[-1].startswith(f"error: {NO_PROGRESS}")
    assert "in result" in text  # the main thread waits for the batch
    assert loop.train(toy.get_config(), tmp_path / "run") == 0
    assert (tmp_path / "run" / "checkpoints" / "12").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_stuck_process_ends_all_within_the_time_of_the_watchdog(tmp_path, number):
    halted, logs = tmp_path / "halted", tmp_path / "logs"
    command = "tests/tools/halting.py", "batch", f"7@{number}", f"{halted}", *TOY
    flags = f"--workdir={tmp_path}/run", "--watchdog=4"
    started = jobs.start(*command, *flags, processes=2, devices=1, logs=logs)
    jobs.wait_for(halted.exists, started, timeout=120)
    assert jobs.finish(started, timeout=_STUCK + 4) == [FAULT] * 2
    assert any("most recent call first" in text for text in jobs.output(logs))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["validation", "figures"])
def test_a_process_that_is_stuck_between_steps_ends_all(tmp_path, place):
    flags = "--config.train_steps=3", "--watchdog=4"
    started = start_failing(tmp_path, f"stuck {place}", 0, *flags)
    check_stuck(started, tmp_path / "logs")


@pytest.mark.slow
def test_a_process_that_is_stuck_in_eval_ends_all(tmp_path):
    started = start_evaluation("stuck evaluation", 1, tmp_path, "--watchdog=4")
    check_stuck(started, tmp_path / "logs")


def check_stuck(started, logs):
    """Checks that a job ends with stacks and the status of a fault."""
    assert jobs.finish(started, timeout=100) == [FAULT] * 2, jobs.output(logs)
    texts = jobs.output(logs)
    assert all(NO_PROGRESS in text for text in texts)
    assert any("most recent call first" in text for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "number", "message"),
    [
        ("batch", 1, "texts.tsv:7 is damaged"),
        ("disk", 0, "checkpoints/3 cannot be written: No space left on device"),
    ],
)
def test_an_error_of_one_process_ends_all_with_its_status(
    tmp_path, place, number, message
):
    started = start_failing(tmp_path, place, number)
    assert jobs.finish(started, timeout=100) == [1, 1]  # jax alone needs 300 s
    texts = jobs.output(tmp_path / "logs")
    failed, other = texts[number], texts[1 - number]
    assert failed.splitlines()[-1].startswith("error: ") and message in failed
    reason = f"error: process {number} of the job has failed: "
    assert other.splitlines()[-1].startswith(reason) and message in other
    assert "Traceback" not in failed + other


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("seed", "config.seed is 7 in process 1 and 0 in process 0: "),
        ("code", "the hash of the changes is 'f1dc997e4d' in process 1 and "),
    ],
)
def test_processes_with_different_configs_or_code_are_refused(tmp_path, place, message):
    started = start_failing(tmp_path, place, 1)
    assert jobs.finish(started, timeout=100) == [1, 1]
    for text in jobs.output(tmp_path / "logs"):
        (line,) = [x for x in text.splitlines() if x.startswith("error:")]
        assert message in line and ": all processes of a job must have the same" in line
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.slow
def test_a_refused_job_changes_nothing_in_the_run_directory(tmp_path):
    logs, workdir = tmp_path / "logs", tmp_path / "run"
    workdir.mkdir()
    (workdir / "config.json").write_text("of another run")
    command = "train.py", *TOY, f"--workdir={workdir}"
    with Lock(workdir):
        before = {path.name: path.read_bytes() for path in workdir.iterdir()}
        started = jobs.start(*command, processes=2, devices=1, logs=logs)
        assert jobs.finish(started, timeout=100) == [1, 1]
        after = {path.name: path.read_bytes() for path in workdir.iterdir()}
    assert after == before
    for text in jobs.output(logs):
        (line,) = [x for x in text.splitlines() if x.startswith("error:")]
        assert f"{workdir} is in use: process {os.getpid()} on host" in line


@pytest.mark.jobs
def test_processes_may_start_more_than_thirty_seconds_apart(tmp_path):
    started = start_failing(tmp_path, "late", 1)
    assert jobs.finish(started) == [0, 0], jobs.output(tmp_path / "logs")


def test_a_late_process_takes_part_in_the_replacement_of_a_checkpoint(tmp_path):
    command = "tests/replacing.py", f"{tmp_path}/run"
    logs = tmp_path / "logs"
    texts = jobs.run(*command, processes=2, devices=1, logs=logs)
    assert [text.splitlines()[-1] for text in texts] == ["55", "55"]
