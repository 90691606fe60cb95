"""Runs an entry point with a fault at a given place in one process of a job.

    python tests/failing.py batch 1 train.py --config=...

Process 1 has the fault; the place is a key of `PLACES`.
"""

import errno
import os
import runpy
import sys

from errors import UserError
from training import configuration, loop, manifest

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


PLACES = {
    "batch": (loop, prefetch),
    "disk": (manifest, write),
    "seed": (configuration, check),
}

module, function = PLACES[place]
setattr(module, function.__name__, function)
runpy.run_path(sys.argv[0], run_name="__main__")
