"""Runs an entry point with a fault at a given place in one process of a job.

    python tests/tools/failing.py batch 1 train.py --config=...

Process 1 has the fault; the place is a key of `PLACES`.
"""

import errno
import os
import runpy
import signal
import sys
import threading
import time

import jax
import toy

import training.evaluate
from base import manifest, spread
from base.errors import UserError
from training import checks, configuration, loop, runtime
from training.checkpoints import Checkpoints

place, number, *sys.argv = sys.argv[1:]


def here():
    alone = not any(flag.startswith("--process_id=") for flag in sys.argv)
    return alone or f"--process_id={number}" in sys.argv


def prefetch(get, start, stop, original=loop.prefetch):
    """The data of batch 7 cannot be read."""

    def failing(index):
        if index == 7 and here():
            raise UserError("texts.tsv:7 is damaged")
        return get(index)

    return original(failing, start, stop)


def write(folder, original=manifest.write):
    """The disk is full when the manifest of a checkpoint is written."""
    if here():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    original(folder)


def check(config, base, original=configuration.check):
    """The process has another seed."""
    if here():
        config.seed = 7
    original(config, base)


def changes():
    """Other lines are changed in the code of the process."""
    return b"diff --git a/train.py b/train.py\n+" + (b"1" if here() else b"2")


def create(*arguments, original=loop.create, **keywords):
    """The process needs longer than gloo waits to read its data."""
    if here():
        time.sleep(40)
    return original(*arguments, **keywords)


def wait(self, original=Checkpoints.wait):
    """The process is told to stop after the last step."""
    if here():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # a thread looks once a second
    original(self)


def evaluate(self, *arguments, original=toy.Toy.answers, **keywords):
    """The process is told to stop during an evaluation."""
    if here():
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
    return original(self, *arguments, **keywords)


def hang(*arguments, **keywords):
    """The process is told to stop, in what takes longer than a test waits."""
    if here():
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(300)


def validate(*arguments, **keywords):
    """The process is told to stop in an evaluation that takes as long."""

    def part(item):
        if here() and item < 2:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    spread.each(part, range(600))


def stick(*arguments, **keywords):
    """The process is alive but stuck in an evaluation or in figures."""

    def part(item):
        if here():
            threading.Event().wait()

    spread.each(part, range(4))
    return []


def tables(task, evaluation, folder):
    """Writing takes longer than jax's processes wait for each other at exit."""
    time.sleep(12)
    return []


# A shorter time than jax's 300 seconds.
def initialize(*arguments, original=jax.distributed.initialize, **keywords):
    original(*arguments, **keywords, shutdown_timeout_seconds=5)


PLACES = {
    "batch": (loop, "prefetch", prefetch),
    "disk": (manifest, "write", write),
    "last step": (Checkpoints, "wait", wait),
    "tables": (training.evaluate, "write_table", tables),
    "evaluation": (toy.Toy, "answers", evaluate),
    "late": (loop, "create", create),
    "seed": (configuration, "check", check),
    "code": (runtime, "changes", changes),
    "stopped assets": (loop, "create", hang),
    "stopped compilation": (checks, "check_step", hang),
    "stopped evaluation": (training.evaluate, "evaluate", validate),
    "stopped figures": (loop._Run, "draw", hang),
    "stuck validation": (training.evaluate, "evaluate", stick),
    "stuck evaluation": (toy.Toy, "answers", stick),
    "stuck figures": (loop._Run, "draw", stick),
}

jax.distributed.initialize = initialize
setattr(*PLACES[place])
runpy.run_path(sys.argv[0], run_name="__main__")
