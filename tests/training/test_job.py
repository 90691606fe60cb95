"""Tests of the order in which the processes of a job write and read."""

import threading

import jax
import jobs
import pytest
from jax._src.lib import _jax

from base import storage
from base.errors import OtherProcessError, UserError
from training.cluster import job, presence


@pytest.fixture
def three(monkeypatch):
    """Replaces the processes of a job by three threads, with jax's service."""
    address, local = f"127.0.0.1:{jobs.free_port()}", threading.local()
    service = _jax.get_distributed_runtime_service(address, 3)
    clients = [_jax.get_distributed_runtime_client(address, n) for n in range(3)]
    monkeypatch.setattr(job, "_service", lambda: (clients[local.number], local.number))
    monkeypatch.setattr(job, "_timeout", 1.0)

    class Numbers:
        def __next__(self):
            local.count += 1
            return local.count

    monkeypatch.setattr(job, "_numbers", Numbers())

    def run(function):
        """Calls function(number) in each process; returns results and exceptions."""

        def call(number):
            local.number, local.count = number, 0
            return function(number)

        return jobs.in_threads(call)

    run(lambda number: clients[number].connect())
    yield run
    run(lambda number: clients[number].shutdown())
    service.shutdown()


def test_the_first_process_ends_a_block_before_the_others_begin(three):
    events = []

    def work(number):
        with job.first_alone("block"):
            events.append(number)
            events.append(number)

    assert three(work) == [None] * 3
    assert events[:2] == [0, 0] and sorted(events[2:]) == [1, 1, 2, 2]


def test_the_others_do_not_begin_a_block_that_fails_in_the_first_process(three):
    begun = []

    def work(number):
        with job.first_alone("block"):
            begun.append(number)
            raise ValueError(number)

    first, *others = three(work)
    assert begun == [0] and isinstance(first, ValueError)
    for error in others:  # in a job, the failure of process 0 ends them before
        assert str(error).startswith("DEADLINE_EXCEEDED")


def test_processes_that_agree_go_on(three):
    values = {"config.sizes": (5, 7), "config.seed": 3, "the commit": "a"}
    assert three(lambda number: job.agree(values)) == [None] * 3


def test_a_difference_is_named_and_no_process_goes_on(three):
    def work(number):
        values = {"config.seed": number // 2, "config.steps": 5}
        job.agree(values | ({"config.width": 7} if number == 2 else {}))

    first, second, third = three(work)
    assert isinstance(third, UserError) and str(third) == (
        "config.seed is 1 in process 2 and 0 in process 0; config.width is 7 in "
        "process 2 and None in process 0: all processes of a job must have the same "
        "command, code and run directory"
    )
    for error in (first, second):
        assert isinstance(error, RuntimeError)


def test_processes_that_stop_know_the_maximum_of_their_calls(three):
    assert three(lambda number: job.agree_on_last_step(5 - number)) == [5, 5, 5]
    assert three(lambda number: job.is_stopping()) == [True] * 3


class Ended(Exception):
    """Stands for the end of a process."""


@pytest.fixture
def ending(monkeypatch):
    """A job's process 2, which ends with `Ended`; returns what it has told."""
    lines = []

    def ended(status):
        raise Ended(status)

    monkeypatch.setattr(job, "_service", lambda: (object(), 2))
    monkeypatch.setattr(job, "_exit", ended)
    monkeypatch.setattr(job, "_ending", threading.Lock())
    monkeypatch.setattr(job, "_PATIENCE", 0.5)
    monkeypatch.setattr(job, "_GRACE", 0.1)
    monkeypatch.setattr(presence, "tell", lines.append)
    return lines


def end(error, line):
    with pytest.raises(Ended) as caught:
        job.end(error, line, job.status_of(error, line))
    return caught.value.args[0]


def test_an_error_is_told_in_one_line_with_its_status(ending, capsys):
    assert end(ValueError("this\nitem"), None) == job.CRASH
    assert ending == [f"{job.CRASH} 2 ValueError: this item"]
    assert capsys.readouterr().err.endswith("ValueError: this\nitem\n")


def test_an_error_of_another_process_that_it_does_not_tell_is_a_fault(ending, capsys):
    line = "process 7 of the job has failed"
    assert end(OtherProcessError(line), line) == job.FAULT
    assert capsys.readouterr().err == f"error: {line}\n"


def test_an_error_that_another_process_has_caused_is_told_by_that_process(
    ending, capsys
):
    def fail():
        with pytest.raises(Ended, match="^1$"):
            job.failed(0, "1 3 texts.tsv:7 is damaged")

    cause = threading.Timer(0.1, fail)
    cause.start()
    error = jax.errors.JaxRuntimeError("peer is gone")
    ends = threading.Thread(target=job.end, args=(error, None, 75), daemon=True)
    ends.start()
    cause.join()
    ends.join(1)  # it waits until its process has ended
    expected = "error: process 3 of the job has failed: texts.tsv:7 is damaged\n"
    assert capsys.readouterr().err == expected and ending == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_is_gone_ends_this_one_with_a_line(
    ending, capsys, monkeypatch, number
):
    monkeypatch.setattr(job, "_service", lambda: (object(), 1 - number))
    with pytest.raises(Ended, match="^75$"):
        job.failed(number, "")
    reason = "it is gone (killed, or its host has failed)"
    expected = f"error: process {number} of the job has failed: {reason}\n"
    assert capsys.readouterr().err == expected
    # Process 0 tells the others.
    assert ending == ([f"75 1 {reason}"] if number == 1 else [])


def test_a_process_that_stops_ends_the_others_with_its_status(ending, capsys):
    with pytest.raises(Ended, match="^143$"):
        job.leave(128 + 15)
    (line,) = ending
    job._ending.release()  # of the other process
    with pytest.raises(Ended, match="^143$"):
        job.failed(0, line)
    assert capsys.readouterr().err == "stopped with process 2 of the job\n"


def test_connections_that_close_at_the_regular_end_mean_nothing(ending, monkeypatch):
    monkeypatch.setattr(job, "_leaving", threading.Event())
    job._leaving.set()
    job.failed(0, "")
    assert ending == []


def test_a_process_on_its_own_neither_waits_nor_disagrees():
    with job.first_alone("block"):
        job.wait("alone")
    job.agree({"config.seed": 3})


def test_two_processes_that_replace_a_file_have_different_temporary_files(tmp_path):
    path = tmp_path / "file.txt"
    with storage.replacing(path) as first, storage.replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert [x.name for x in tmp_path.iterdir()] == ["file.txt"]
    assert path.read_text() == "first"  # replaced last


def test_an_error_that_comes_of_one_of_jax_is_one_of_jax():
    def chained(*errors):
        try:
            if len(errors) > 1:
                chained(*errors[1:])
        except Exception:
            raise errors[0]  # noqa: B904
        raise errors[0]

    of_jax = jax.errors.JaxRuntimeError("peer is gone")
    for errors, expected in (
        ([of_jax], True),
        ([UserError("x"), ValueError("y"), of_jax], True),
        ([UserError("x"), ValueError("UNKNOWN: Gloo AllGather failed")], True),
        ([UserError("x"), OSError("no space")], False),
    ):
        with pytest.raises(type(errors[0])) as caught:
            chained(*errors)
        assert job._is_by_jax(caught.value, None) is expected
