"""Entry points run in this process: starting Python for each call takes seconds."""

import contextlib
import io
import os
import runpy
import signal
import traceback
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from absl import flags

ROOT = Path(__file__).parent.parent


class Result(NamedTuple):
    """Exit status and output of a call."""

    status: int
    output: str
    errors: str


def call(command, *arguments, stdin=b""):
    """Runs an entry point; returns its result.

    An exception that is not caught becomes a traceback on standard error.

    Args:
        command: a file of the project, such as "train.py", or a module, such as
            "results.make" or "launch".
        *arguments: its arguments.
        stdin: bytes of its standard input.
    """
    handler = signal.getsignal(signal.SIGINT)
    source = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    # It is too late to create more devices.
    environ = {"JAX_NUM_CPU_DEVICES": os.environ.get("JAX_NUM_CPU_DEVICES", "1")}
    output = io.TextIOWrapper(io.BytesIO(), "utf-8")
    errors, status = io.StringIO(), 0
    file = ROOT / command
    if not command.endswith(".py"):
        file = ROOT / command.replace(".", "/")
        file = file / "__main__.py" if file.is_dir() else file.with_suffix(".py")
    path = str(file)
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        mock.patch("sys.stdin", source),
        mock.patch.dict(os.environ, environ),
        mock.patch("sys.argv", [path, *arguments]),
    ):
        try:
            if command.endswith(".py"):
                runpy.run_path(path, run_name="__main__")
            else:
                runpy.run_module(command, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
            if isinstance(end.code, str):
                errors.write(f"{end.code}\n")
        except BaseException:
            status = 1
            traceback.print_exc(file=errors)
        finally:
            for flag in list(flags.FLAGS.flags_by_module_dict().get(path, [])):
                delattr(flags.FLAGS, flag.name)  # the next call defines its own
            signal.signal(signal.SIGINT, handler)
    output.flush()
    return Result(status, output.buffer.getvalue().decode(), errors.getvalue())
