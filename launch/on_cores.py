"""Starts a Python program on some of the cores; it ends when its parent does.

    python launch/on_cores.py PARENT CORE,CORE SCRIPT ARGUMENT ...

A separate program, because a process with threads must not run code after a fork.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, cores, *command = sys.argv[1:]
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it has died already
            sys.exit(128 + signal.SIGTERM)
    os.execv(sys.executable, [sys.executable, *command])
