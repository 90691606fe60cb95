"""Tests that a job knows which of its processes are missing, and which are gone."""

import os
import signal
import socket
import subprocess
import sys
import threading

import jobs
import pytest

from training.cluster import presence
from training.cluster.job import FAULT

TOY = "--config=tests/toy.py", "--config.data.batch_size=24,"
WAITING = "waiting for the job: "


@pytest.fixture
def quick(monkeypatch):
    """Polls and reports more often."""
    monkeypatch.setattr(presence, "_POLL", 0.05)
    monkeypatch.setattr(presence, "_REPORT", 0.3)


MEETING = """
import sys, time
from training.cluster import presence
presence._POLL, presence._REPORT = 0.05, 0.3
port, count, number = sys.argv[1:]
def failed(number, line):
    print("failed", number, line, flush=True)
address = f"127.0.0.1:{port}"
print(presence.meet(address, int(count), int(number), 60, failed), flush=True)
for line in sys.stdin:
    presence.tell(line.strip())
"""


class Process:
    """A process of a job, which only meets the others; its lines so far."""

    def __init__(self, port, count, number):
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEETING, f"{port}", f"{count}", f"{number}"],
            cwd=jobs.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def says(self, line):
        jobs.wait_for(lambda: line in self.lines)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start():
    """Starts processes of a job at one port, and kills them at the end."""
    started, port = [], jobs.free_port()

    def call(count, number):
        started.append(Process(port, count, number))
        return started[-1]

    call.port = port
    yield call
    for process in started:
        process.kill()


def test_the_processes_say_who_is_missing_and_then_who_is_gone(start):
    waiting = "waiting for the job: {} of 4 processes have joined, missing: process {}"
    first = start(4, 0)
    first.says(waiting.format(1, "1, 2, 3"))
    third = start(4, 3)
    third.says(waiting.format(2, "1, 2"))
    third.kill()  # before all have joined
    first.lines.clear()
    first.says(waiting.format(1, "1, 2, 3"))
    strangers = [socket.create_connection(("127.0.0.1", start.port)) for _ in "abcd"]
    for stranger, text in zip(strangers, ("7", "0", "-1", "x"), strict=True):
        stranger.sendall(f"{text}\n".encode())
    others = [start(4, 1), start(4, 3)]
    first.says(waiting.format(3, "2"))
    others.append(start(4, 2))
    first.says(f"127.0.0.1:{start.port}")  # for jax's client
    for other in others:
        jobs.wait_for(lambda other=other: other.lines[-1].startswith("127.0.0.1:"))
    others[0].kill()
    first.says("failed 1")
    first.process.stdin.write("75 1 it is gone\n")
    first.process.stdin.flush()
    for other in others[1:]:
        other.says("failed 0 75 1 it is gone")


def test_a_process_says_that_the_first_one_does_not_answer_or_is_gone(start):
    other = start(2, 1)
    line = "1 of 2 processes have joined, missing: process 0, which does not answer at "
    other.says(f"waiting for the job: {line}127.0.0.1:{start.port}")
    first = start(2, 0)
    first.says(f"127.0.0.1:{start.port}")
    first.kill()
    other.says("failed 0")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_waits_no_longer_than_the_timeout(number):
    with pytest.raises(TimeoutError, match="^others have not arrived$"):
        address = f"127.0.0.1:{jobs.free_port()}"
        presence.meet(address, 2, number, 0.3, lambda *_: None)


def test_a_relay_carries_bytes_and_stays_open_when_the_far_end_closes():
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, _, port = presence._relay(server.getsockname()).rpartition(":")
        near = socket.create_connection((host, int(port)))
        far, _ = server.accept()
        near.sendall(b"question" * 10**5)
        received = b""
        while len(received) < 8 * 10**5:
            received += far.recv(2**16)
        assert received == b"question" * 10**5
        far.sendall(b"answer")
        assert near.recv(16) == b"answer"
        far.close()
    near.settimeout(0.5)
    with pytest.raises(TimeoutError):
        near.recv(16)


# Processes


def start_one(number, logs, count=2, port=None):
    """Starts one process of a job whose others are not started."""
    job = f"--coordinator=127.0.0.1:{port or jobs.free_port()}"
    flags = job, f"--num_processes={count}", f"--process_id={number}"
    command = "train.py", *TOY, f"--workdir={logs}/run", *flags
    (process,) = jobs.start(*command, processes=1, devices=1, logs=logs / f"{number}")
    return process


def output_of(logs, number):
    (text,) = jobs.output(logs / f"{number}")
    return text


@pytest.mark.jobs
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_the_others_at_once(number, signal_, tmp_path):
    process = start_one(number, tmp_path)
    wait_for_line(tmp_path, number, f"{WAITING}1 of 2 processes have joined, missing: ")
    process.send_signal(signal_)
    assert process.wait(3) == 128 + signal_
    waiting, end = output_of(tmp_path, number).splitlines()
    assert f"missing: process {1 - number}" in waiting
    word = "interrupted" if signal_ == signal.SIGINT else "stopped before the job"
    assert end.startswith(word)


def wait_for_line(logs, number, text):
    jobs.wait_for(lambda: text in output_of(logs, number), timeout=60)


@pytest.mark.jobs
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("number", [0, 2])
def test_a_process_that_is_lost_before_it_joins_is_named(number, fault, tmp_path):
    port = jobs.free_port()
    processes = {n: start_one(n, tmp_path, 3, port) for n in range(3)}
    os.kill(processes[number].pid, fault)
    waiting = f"{WAITING}2 of 3 processes have joined, missing: process 2"
    if number == 0:
        waiting = f"{WAITING}missing: process 0, which does not answer at 127.0.0.1:"
    others = [n for n in range(3) if n != number]
    for n in others:
        wait_for_line(tmp_path, n, waiting)
    for process in processes.values():
        process.kill()
        process.wait()


@pytest.mark.jobs
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_is_stopped_as_the_last_one_joins_is_told(signal_, tmp_path):
    port = jobs.free_port()
    processes = {n: start_one(n, tmp_path, 3, port) for n in (0, 2)}
    for n in processes:
        wait_for_line(tmp_path, n, "missing: process 1")
    os.kill(processes[2].pid, signal.SIGSTOP)
    processes[1] = start_one(1, tmp_path, 3, port)
    for n in (0, 1):
        wait_for_line(tmp_path, n, f"{WAITING}all processes have joined, one does not")
        processes[n].send_signal(signal_)
    for n in (0, 1):
        assert processes[n].wait(5) in (128 + signal_, FAULT)
    processes[2].kill()
    processes[2].wait()


@pytest.mark.jobs
@pytest.mark.parametrize(("number", "count"), [(0, 2), (1, 2), (0, 3), (1, 3)])
@pytest.mark.parametrize("place", ["step", "compilation"])
def test_a_killed_process_is_named_in_one_line(number, count, place, tmp_path):
    workdir, logs = tmp_path / "run", tmp_path / "logs"
    flags = "--config.train_steps=1000000", "--config.save_every=10"
    command = "train.py", *TOY, f"--workdir={workdir}", *flags
    started = jobs.start(*command, processes=count, devices=1, logs=logs)
    marker = workdir / ("checkpoints/20" if place == "step" else "config.json")
    jobs.wait_for(marker.exists, timeout=60)
    started[number].kill()
    statuses = jobs.finish(started, timeout=20)
    assert statuses[number] == -signal.SIGKILL
    assert {*statuses[:number], *statuses[number + 1 :]} == {FAULT}
    line = (
        f"error: process {number} of the job has failed: it is gone (killed, or its "
        "host has failed)"
    )
    for n, text in enumerate(jobs.output(logs)):
        if n != number:
            lines = text.splitlines()
            assert lines[-1] == line
            assert sum(x.startswith("error") for x in lines) == 1
            assert "Traceback" not in text and "stack" not in text
