"""Runs an entry point that fails at a given place in one process of a job.

    python tests/failing.py batch 1 train.py --config=...

Process 1 fails; the place is a key of `PLACES`.
"""

import errno
import os
import runpy
import sys

import jax

from errors import UserError
from training import loop, manifest

place, number, *sys.argv = sys.argv[1:]


def here():
    return jax.process_index() == int(number)


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


PLACES = {"batch": (loop, prefetch), "disk": (manifest, write)}

module, function = PLACES[place]
setattr(module, function.__name__, function)
runpy.run_path(sys.argv[0], run_name="__main__")
