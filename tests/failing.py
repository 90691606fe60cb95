"""Runs an entry point with a fault at a given place in one process of a job.

    python tests/failing.py batch 1 train.py --config=...

Process 1 has the fault; the place is a key of `PLACES`.
"""

import errno
import os
import runpy
import signal
import sys
import time

import jax
import toy

from errors import UserError
from training import configuration, loop, manifest
from training.checkpoints import Checkpoints

place, number, *sys.argv = sys.argv[1:]


def here():
    return f"--process_id={number}" in sys.argv


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


def check(config, original=configuration.check):
    """The process has another seed."""
    if here():
        config.seed = 7
    original(config)


def create(*arguments, original=loop.create, **keywords):
    """The process needs longer than gloo waits to read its data."""
    if here():
        time.sleep(40)
    return original(*arguments, **keywords)


def wait(self, original=Checkpoints.wait):
    """The process is told to stop after the last step."""
    if here():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # jax looks once a second
    original(self)


def evaluate(self, *arguments, original=toy.Toy.evaluate):
    """The process is told to stop during an evaluation."""
    if here():
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
    return original(self, *arguments)


def tables(self, evaluation, folder):
    """Writing takes longer than jax's processes wait for each other at exit."""
    time.sleep(12)
    return []


# A shorter time than jax's 300 seconds.
def initialize(*arguments, original=jax.distributed.initialize, **keywords):
    original(*arguments, **keywords, shutdown_timeout_seconds=5)


PLACES = {
    "batch": (loop, prefetch),
    "disk": (manifest, write),
    "last step": (Checkpoints, wait),
    "tables": (toy.Toy, tables),
    "evaluation": (toy.Toy, evaluate),
    "late": (loop, create),
    "seed": (configuration, check),
}

jax.distributed.initialize = initialize
module, function = PLACES[place]
setattr(module, function.__name__, function)
runpy.run_path(sys.argv[0], run_name="__main__")
