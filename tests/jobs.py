"""Jobs of several processes on this machine, with virtual CPU devices."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent import futures

from smoke import QUICK_COMPILATION, ROOT

HEARTBEAT = 10  # seconds
FLAGS = (
    "--tune_memory=false",
    f"--heartbeat_timeout={HEARTBEAT}",
    "--join_timeout=120",
)


def free_port():
    """Returns a port that no process listens to."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(devices):
    """The environment of a process with a number of CPU devices."""
    inherited = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    return inherited | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        **QUICK_COMPILATION,
        "NPROC": "16",  # threads; few of them deadlock with many devices
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }


def start(*command, processes, devices, logs):
    """Starts the processes of a job; their output goes to logs/N.txt."""
    logs.mkdir(parents=True, exist_ok=True)
    address, started = f"--coordinator=127.0.0.1:{free_port()}", []
    for number in range(processes):
        flags = [*FLAGS]
        if processes > 1:
            flags += [address, f"--num_processes={processes}"]
            flags += [f"--process_id={number}"]
        with (logs / f"{number}.txt").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command, *flags],
                cwd=ROOT,
                env=environment(devices),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
    return started


def finish(started, timeout=900):
    """Waits for the processes of a job; returns their exit statuses.

    Raises:
        subprocess.TimeoutExpired: if one of them runs for longer; all are then killed.
    """
    end = time.monotonic() + timeout
    try:
        return [process.wait(max(0, end - time.monotonic())) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def output(logs):
    """Returns the output of each process of a job."""
    return [path.read_text("utf-8") for path in sorted(logs.glob("[0-9]*.txt"))]


def run(*command, processes, devices, logs):
    """Runs a job to its end; returns the output of each process."""
    statuses = finish(start(*command, processes=processes, devices=devices, logs=logs))
    texts = output(logs)
    assert statuses == [0] * processes, "\n".join(texts)
    return texts


def in_threads(function):
    """Calls function(number) in three threads; returns results and exceptions."""
    pool = futures.ThreadPoolExecutor(3)
    calls = [pool.submit(function, number) for number in range(3)]
    try:
        return [call.exception(60) or call.result() for call in calls]
    finally:
        pool.shutdown(wait=False)  # a thread that hangs fails the test


def wait_for(condition, started=(), timeout=10):
    """Waits until a condition is true, while all processes that are `started` run."""
    for _ in range(100 * timeout):
        if condition():
            return
        assert all(process.poll() is None for process in started)
        time.sleep(0.01)
    raise AssertionError("the condition did not come true")
