"""Tests of stop signals: at a step, at once, and in all processes of a job."""

import os
import signal
import threading

import jax
import pytest

from training.cluster import job
from training.cluster.stop import StopSignal

NUMBERS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def interruptible():
    """Python's handler, even if a background shell ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def shared(monkeypatch):
    """A job whose other process has called `reached` five times."""
    announced = threading.Event()

    def agree_on_last_step(calls):
        announced.set()
        return max(calls, 5)

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(job, "is_stopping", announced.is_set)
    monkeypatch.setattr(job, "agree_on_last_step", agree_on_last_step)
    return announced


def test_a_signal_is_recorded_and_a_second_one_acts():
    with StopSignal() as stop:
        assert stop.received is None and not stop.should_stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGINT and stop.should_stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in NUMBERS]
    with StopSignal():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in NUMBERS] == before


def calls_until(stop):
    """Calls `reached` until it is true, once the processes agree; returns how often."""
    assert not stop.should_stop()
    while stop._last_call is None:
        stop._closed.wait(0.01)
    return 1 + next(n for n in range(1, 10) if stop.should_stop())


@pytest.mark.parametrize("number", NUMBERS)
def test_a_process_announces_its_signal_and_stops_at_the_call_of_all(shared, number):
    with StopSignal() as stop:
        os.kill(os.getpid(), number)
        assert calls_until(stop) == 6
        assert stop.received == number and stop.should_stop()
    assert shared.is_set()


def test_a_process_stops_with_another_one(shared):
    with StopSignal() as stop:
        shared.set()
        assert calls_until(stop) == 6
        assert stop.received == signal.SIGTERM


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("first", ["signal", "at once"])
def test_a_signal_ends_the_process_at_once_if_there_is_nothing_to_save(number, first):
    left, numbers = threading.Event(), []

    def leave(number):
        numbers.append(number)
        left.set()
        threading.Event().wait(0.5)

    with StopSignal() as stop:
        if first == "signal":
            os.kill(os.getpid(), number)
            stop.leave = leave
        else:
            stop.leave = leave
            os.kill(os.getpid(), number)
        assert left.wait(60)
    assert numbers[0] == number


def test_a_signal_is_only_noted_once_there_is_something_to_save():
    left = []
    with StopSignal() as stop:
        stop.leave = left.append
        stop.leave = None
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.should_stop()
        stop._closed.wait(0.5)
    assert left == []
