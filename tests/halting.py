"""train.py that halts at a point of its run, leaves a file there, and is to be killed.

    python tests/halting.py batch 33 FILE --config=...
    python tests/halting.py save 40 FILE --config=...

The first halts when that batch is to be made, the second when the files of that
checkpoint are written and only their folder's final name is missing.
"""

import os
import runpy
import sys
import threading
from pathlib import Path

from training import loop

event, number, marker = sys.argv[1:4]
sys.argv[:] = ["train.py", *sys.argv[4:]]


def halt():
    Path(marker).touch()
    threading.Event().wait()


def prefetch(get, start, stop, plain=loop.prefetch):
    return plain(
        lambda index: get(index) if index != int(number) else halt(), start, stop
    )


def rename(source, target, plain=os.rename):
    if Path(target).name == number and Path(target).parent.name == "checkpoints":
        halt()
    plain(source, target)


if event == "batch":
    loop.prefetch = prefetch
else:
    os.rename = rename
runpy.run_path("train.py", run_name="__main__")
