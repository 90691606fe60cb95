"""Runs train.py up to a given event, creates a file and waits to be killed.

    python tests/tools/halting.py batch 33 FILE --config=...
    python tests/tools/halting.py save 40 FILE --config=...
    python tests/tools/halting.py batch 33@1 FILE --config=...

The first command halts before it makes batch 33; the second when checkpoint 40 is
written, before its folder gets its final name. The third halts only in process 1 of a
job, with the flag --process_id=1.
"""

import os
import runpy
import sys
import threading
from pathlib import Path

from training import loop

event, number, marker = sys.argv[1:4]
sys.argv[:] = ["train.py", *sys.argv[4:]]
number, _, process = number.partition("@")
if process and f"--process_id={process}" not in sys.argv:
    number = "none"


def halt():
    Path(marker).touch()
    threading.Event().wait()


def prefetch(get, start, stop, original=loop.prefetch):
    return original(
        lambda index: get(index) if str(index) != number else halt(), start, stop
    )


def rename(source, target, original=os.rename):
    if Path(target).name == number and Path(target).parent.name == "checkpoints":
        halt()
    original(source, target)


if event == "batch":
    loop.prefetch = prefetch
else:
    os.rename = rename
runpy.run_path("train.py", run_name="__main__")
