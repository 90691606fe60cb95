"""Tests that one process at a time trains in a run directory."""

import os
import re
import socket
import subprocess
import sys
import threading
import time

import faults
import jobs
import pytest
from smoke import ROOT

from base.errors import UserError
from training.cluster import lock as lock_module
from training.cluster.lock import NAME, STALE, Lock

HOLD = """
import sys
from pathlib import Path
from training.cluster.lock import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(workdir):
    """Starts a process that takes a lock, and keeps it while its input is open."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, workdir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of `tmp_path`."""
    process = hold(tmp_path)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def pid_in(workdir):
    return int((workdir / NAME).read_text().split()[1])


def take(workdir):
    with Lock(workdir):
        assert pid_in(workdir) == os.getpid()
    assert [x for x in workdir.iterdir() if NAME in x.name] == []


def test_a_second_process_is_refused_and_told_who_holds_the_lock(holder, tmp_path):
    message = f"process {holder.pid} on host {re.escape(socket.gethostname())} works"
    for _ in range(2):
        with pytest.raises(UserError, match=message):
            take(tmp_path)
    assert pid_in(tmp_path) == holder.pid
    holder.communicate("")
    assert not (tmp_path / NAME).exists()
    take(tmp_path)


def test_the_lock_of_a_killed_process_is_taken_over_at_once(holder, tmp_path, capsys):
    holder.kill()  # not waited for: a zombie has ended
    jobs.wait_for(lambda: not lock_module.started(holder.pid))
    assert (tmp_path / NAME).exists()
    take(tmp_path)
    assert capsys.readouterr().err == ""


def edit(workdir, host=None, pid=None, start=None, machine=None, age=0.0):
    """Changes the lock of a live process, and the time of its last refresh."""
    path = workdir / NAME
    fields = zip((host, pid, start, machine), path.read_text().split(), strict=True)
    path.write_text(" ".join(f"{new or old}" for new, old in fields))
    now = time.time() - age
    os.utime(path, (now, now))


def test_another_process_with_the_same_number_does_not_hold_the_lock(holder, tmp_path):
    edit(tmp_path, start="7")
    take(tmp_path)


@pytest.fixture
def impatient(monkeypatch):
    """Locks are void within seconds."""
    monkeypatch.setattr(lock_module, "STALE", 1.3)
    monkeypatch.setattr(lock_module, "_POLL", 0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("host", ["elsewhere", None])
def test_a_lock_of_another_machine_is_void_when_it_is_stale(
    host, holder, tmp_path, capsys
):
    host = host or socket.gethostname()  # two containers may have one name
    edit(tmp_path, host=host, machine="other", pid=2**22 + 1)
    take(tmp_path)  # after it has waited, which the line says
    (line,) = capsys.readouterr().err.splitlines()
    name = f"process {2**22 + 1} on host {host}"
    assert f"is locked by {name}, which may be dead; waiting" in line


def test_a_lock_that_was_stale_already_is_taken_over_at_once(holder, tmp_path, capsys):
    edit(tmp_path, age=STALE + 5, machine="other", pid=2**22 + 1)
    take(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_lock_that_is_refreshed_on_another_machine_is_refused(
    holder, tmp_path, monkeypatch
):
    monkeypatch.setattr(lock_module, "_POLL", 0.1)
    edit(tmp_path, age=STALE - 30, host="elsewhere", machine="other", pid=2**22 + 1)
    refresh = threading.Timer(0.5, os.utime, [tmp_path / NAME])
    refresh.start()
    with pytest.raises(UserError, match=f"process {2**22 + 1} on host elsewhere works"):
        take(tmp_path)
    refresh.join()


def test_a_lock_of_a_live_process_never_becomes_stale(holder, tmp_path):
    edit(tmp_path, age=10 * STALE)
    with pytest.raises(UserError, match=f"process {holder.pid} on host"):
        take(tmp_path)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("content", [b"", b"\xff\0", b"host \xff 7 machine"])
def test_a_damaged_lock_needs_no_hand(content, tmp_path):
    path = tmp_path / NAME
    path.write_bytes(content)
    refresh = threading.Timer(0.5, os.utime, [path])
    refresh.start()
    with pytest.raises(UserError, match="in use: another process works in it"):
        take(tmp_path)
    refresh.join()
    take(tmp_path)


def test_a_process_that_has_lost_its_lock_is_told(tmp_path):
    with Lock(tmp_path) as lock:
        lock.check()
        edit(tmp_path, pid=7, host="elsewhere")
        with pytest.raises(UserError, match="process 7 on host elsewhere works"):
            lock.check()
    assert pid_in(tmp_path) == 7


def test_the_holder_refreshes_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "_REFRESH", 0.1)
    with Lock(tmp_path):
        edit(tmp_path, age=1000)
        jobs.wait_for(lambda: (tmp_path / NAME).stat().st_mtime > time.time() - 500)
        assert pid_in(tmp_path) == os.getpid()


def test_of_many_processes_that_take_over_a_dead_lock_one_succeeds(holder, tmp_path):
    holder.kill()
    holder.wait()
    processes = [hold(tmp_path) for _ in range(7)]
    refused = 0
    while refused < 6:
        refused = sum(process.poll() not in (None, 0) for process in processes)
        assert not any(process.poll() == 0 for process in processes)
        time.sleep(0.01)
    (winner,) = (process for process in processes if process.poll() is None)
    assert winner.pid == pid_in(tmp_path)
    winner.communicate("")
    for process in processes:
        if process is not winner:
            assert f"process {winner.pid} on host" in process.stderr.read()


@pytest.mark.slow
def test_two_trainings_of_one_run_directory(tmp_path):
    workdir = tmp_path / "run"
    flags = ["--config=tests/toy.py", f"--workdir={workdir}", "--tune_memory=false"]
    first = faults.halted("batch", 10, tmp_path / "halted", *flags)
    second = faults.start("train.py", *flags)
    _, errors = second.communicate()
    assert second.returncode == 1 and errors.count("\n") == 1
    assert f"{workdir} is in use: process {first.pid} on host" in errors
    faults.kill(first)
    third = faults.start("train.py", *flags)
    _, errors = third.communicate()
    assert third.returncode == 0, errors
    assert "resuming from step" in errors and "done: step 12" in errors
