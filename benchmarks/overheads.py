"""Overheads of training the default translator: saves, resuming, a second process.

    python -m benchmarks overheads

The two sides of each comparison alternate on the same cores.

*   The stall of a save: 200 steps with an asynchronous save after the first of them,
    and the same 200 steps without, in one process that waits for each step.
*   The time from the start of `train.py` to the first step of a resumed run, with a
    warm compilation cache.
*   Steps per second of two processes with one core each, which exchange gradients, and
    of one process with both cores.

Writes the record.
"""

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import jax

from benchmarks import harness
from configs import transformer_nmt
from results.records import ROOT
from training import runtime
from training.checkpoints import Checkpoints
from training.log import read_rows
from training.parallel import Layout
from training.task import create

_CONFIG = "configs/transformer_nmt.py"
_RESUMED = 20  # the step from which the runs resume


def main(arguments: Sequence[str]) -> None:
    """Measures the three overheads and writes the record."""
    runtime.tune_memory(True)
    parser = harness.parser(__doc__, "overheads", rounds=5, steps=200)
    args = parser.parse_args(arguments)
    harness.use_cores()
    with tempfile.TemporaryDirectory(prefix="overheads-") as name:
        folder = Path(name)
        with_save, without = blocks(folder / "saves", args.steps, args.rounds)
        resumed = resume(folder / "resume", args.rounds)
        rates = {1: [], 2: []}
        for i in range(args.rounds):
            for processes in (1, 2) if i % 2 == 0 else (2, 1):
                workdir = folder / f"{processes}_{i}"
                rates[processes].append(rate(workdir, processes, args.steps))
    stalls = [a / b - 1 for a, b in zip(with_save, without, strict=True)]
    slower = [a / b - 1 for a, b in zip(rates[1], rates[2], strict=True)]
    systems = {
        f"a save every {args.steps} steps (goal: 3%)": {
            "overhead": round(statistics.median(stalls), 4),
            "rounds": [with_save, without],
        },
        "from start to the first step after resuming (goal: 15 s)": {
            "seconds": round(statistics.median(resumed), 1),
            "rounds": resumed,
        },
        "two processes with one core each, relative to one with two": {
            "overhead": round(statistics.median(slower), 4),
            "rounds": [rates[1], rates[2]],
        },
    }
    harness.report("overheads", args, systems)


def blocks(workdir: Path, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Returns the seconds of blocks of steps with and without a save, by round."""
    runtime.start()
    config = transformer_nmt.get_config()
    task, layout = create(config, workdir, training=True), Layout(config.mesh, "jit")
    rng = jax.random.key(config.seed)
    like = layout.abstract(task.objective.init, rng)
    state = layout.init(task.objective.init, rng, like)
    step = layout.jitted(task.objective.step, like)
    source, saved = task.train_data(), 0

    def block(saves: bool) -> float:
        nonlocal state, saved
        begin = time.perf_counter()
        for i in range(steps):
            state, metrics = step(state, layout.global_batch(source, i), rng)
            if saves and i == 0:
                saved += 1
                checkpoints.save(saved, state)
            jax.block_until_ready(metrics)
        return time.perf_counter() - begin

    times: dict[bool, list[float]] = {True: [], False: []}
    with Checkpoints(workdir, config.checkpoints.keep) as checkpoints:
        block(True)  # compiles
        checkpoints.wait()
        for i in range(rounds):
            for saves in (True, False) if i % 2 == 0 else (False, True):
                times[saves].append(round(block(saves), 2))
                checkpoints.wait()
    return times[True], times[False]


def resume(folder: Path, rounds: int) -> list[float]:
    """Returns the seconds from the start of `train.py` to a step after its resume."""
    saved = folder / "saved"
    fields = {"save_every": _RESUMED, "log_every": 1, "eval_every": 10**6}
    with training(saved, fields) as process:
        path = saved / "checkpoints" / str(_RESUMED) / "SHA256SUMS"
        wait(path.exists, process)
    log = saved / "metrics.jsonl"  # may have rows of steps after the checkpoint
    lines = log.read_text("utf-8").splitlines(keepends=True)
    log.write_text("".join(lines[:_RESUMED]), "utf-8")
    assert last_step(saved) == _RESUMED
    seconds = []
    for i in range(rounds + 1):
        workdir = folder / str(i)
        shutil.copytree(saved, workdir)
        begin = time.perf_counter()
        with training(workdir, fields) as process:
            wait(lambda workdir=workdir: last_step(workdir) > _RESUMED, process)
            seconds.append(round(time.perf_counter() - begin, 2))
    return seconds[1:]  # the first one warms the cache


def rate(workdir: Path, processes: int, steps: int) -> float:
    """Returns the steps per second of a job of one or two processes."""
    cores = sorted(os.sched_getaffinity(0))
    flags = {"log_every": 50, "eval_every": 10**6, "save_every": 10**6}
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with contextlib.ExitStack() as stack:
        started = []
        for number in range(processes):
            job = []
            if processes > 1:
                job = [f"--coordinator=127.0.0.1:{port}", f"--process_id={number}"]
                job += [f"--num_processes={processes}"]
            share = cores if processes == 1 else cores[number : number + 1]
            process = training(workdir, flags, job, share)
            started.append(stack.enter_context(process))
        wait(lambda: last_step(workdir) >= steps, started[0])
    rows = read_rows(workdir / "metrics.jsonl")
    # The first row has the compilation of some shapes.
    return round(statistics.median(row["steps_per_second"] for row in rows[1:]), 3)


@contextlib.contextmanager
def training(
    workdir: Path,
    fields: Mapping[str, int],
    flags: Sequence[str] = (),
    cores: Sequence[int] = (),
) -> Iterator[subprocess.Popen]:
    """Runs `train.py` during the block, on the given cores or all, then kills it."""
    overrides = [f"--config.{name}={value}" for name, value in fields.items()]
    launch = [sys.executable, "launch/on_cores.py", str(os.getpid())]
    command = ["train.py", f"--config={_CONFIG}", f"--workdir={workdir}"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*launch, ",".join(map(str, cores)), *command, *overrides, *flags],
            cwd=ROOT,
            env=harness.process_environment(),
            stdout=output,
            stderr=output,
        )
        try:
            yield process
        finally:
            ended = process.poll()
            process.kill()
            process.wait()
            if ended is not None:
                output.seek(0)
                sys.stderr.buffer.write(output.read())


def wait(done: Callable[[], bool], process: subprocess.Popen) -> None:
    """Waits until `done()`; fails if the process ends before."""
    while not done():
        if process.poll() is not None:
            raise SystemExit(f"error: train.py ended with status {process.returncode}")
        time.sleep(0.02)


def last_step(workdir: Path) -> int:
    """Returns the step of the last row of a run's log; 0 without one."""
    rows = read_rows(workdir / "metrics.jsonl")
    return rows[-1]["step"] if rows else 0
