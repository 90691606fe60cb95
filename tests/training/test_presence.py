"""Tests that a job knows which of its processes are missing, and which are gone."""

import contextlib
import os
import signal
import socket
import threading
import time

import jobs
import pytest

from training.cluster import job, presence
from training.cluster.job import FAULT

TOY = "--config=tests/toy.py", "--config.data.batch_size=24,"
WAITING = "waiting for the job: "


@pytest.fixture
def quick(monkeypatch):
    """Reports after 0.3 s, and collects the processes that are gone."""
    calls = []
    monkeypatch.setattr(presence, "_POLL", 0.05)
    monkeypatch.setattr(presence, "_REPORT", 0.3)

    def gone(number, tell=lambda: None):
        calls.append(number)
        tell()

    monkeypatch.setattr(job, "gone", gone)
    return calls


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the condition did not come true")


def meet(port, count, number, results):
    def run():
        results[number] = presence.meet(f"127.0.0.1:{port}", count, number)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def joins(port, number):
    """Connects as a process does, which can be closed again."""
    wait_for(lambda: can_connect(port))
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(f"{number}\n".encode())
    return connection


def can_connect(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True


def test_the_first_process_says_who_is_missing_until_all_have_joined(quick, capsys):
    port, results = jobs.free_port(), {}
    first = meet(port, 4, 0, results)
    lines = []

    def says(text):
        lines.append(capsys.readouterr().err)
        return f"{WAITING}{text}\n" in "".join(lines)

    wait_for(lambda: says("1 of 4 processes have joined, missing: process 1, 2, 3"))
    third = joins(port, 3)
    wait_for(lambda: says("2 of 4 processes have joined, missing: process 1, 2"))
    third.close()  # killed before all have joined
    lines.clear()
    wait_for(lambda: says("1 of 4 processes have joined, missing: process 1, 2, 3"))
    others = [joins(port, number) for number in (7, 0, -1, "x")]  # no processes of it
    threads = [meet(port, 4, number, results) for number in (1, 3)]
    wait_for(lambda: says("3 of 4 processes have joined, missing: process 2"))
    # Also in those that have joined.
    wait_for(lambda: says("") or "".join(lines).count("missing: process 2\n") > 2)
    assert first.is_alive()
    threads.append(meet(port, 4, 2, results))
    for thread in (first, *threads):
        thread.join(10)
    assert sorted(results) == [0, 1, 2, 3] and quick == []
    assert results[0] == f"127.0.0.1:{port}" and len({*results.values()}) == 4
    for connection in others:
        connection.close()


def test_a_process_says_that_the_first_one_does_not_answer(quick, capsys):
    port, results = jobs.free_port(), {}
    thread = meet(port, 3, 1, results)
    line = f"{WAITING}missing: process 0, which does not answer at 127.0.0.1:{port}\n"
    wait_for(lambda: line in capsys.readouterr().err)
    meet(port, 3, 0, results)
    second = joins(port, 2)
    thread.join(10)
    assert 1 in results
    second.close()
    wait_for(lambda: quick[:2] == [2, 2])  # process 0 notices it, and tells process 1


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
    for _ in range(600):
        if text in output_of(logs, number):
            return
        time.sleep(0.1)
    raise AssertionError(output_of(logs, number))


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
@pytest.mark.parametrize(("number", "count"), [(0, 2), (1, 2), (0, 3), (1, 3)])
@pytest.mark.parametrize("place", ["step", "compilation"])
def test_a_killed_process_is_named_in_one_line(number, count, place, tmp_path):
    workdir, logs = tmp_path / "run", tmp_path / "logs"
    flags = "--config.train_steps=1000000", "--config.save_every=10"
    command = "train.py", *TOY, f"--workdir={workdir}", *flags
    started = jobs.start(*command, processes=count, devices=1, logs=logs)
    marker = workdir / ("checkpoints/20" if place == "step" else "config.json")
    for _ in range(600):
        if marker.exists():
            break
        time.sleep(0.1)
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
