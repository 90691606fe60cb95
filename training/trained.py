"""A run read back from its directory, to score it or to use it."""

import codecs
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from errors import UserError
from training import checkpoints, configuration
from training.task import Task


def load(
    workdir: Path, which: str | None = None, overrides: Sequence[str] = ()
) -> tuple[Task, Any, str]:
    """Returns a run's task, one of its states, and which one that is.

    Args:
        workdir: the run directory.
        which: "last", "best", "average" (the last state with the mean parameters of the
            last `config.evaluation.average` checkpoints) or a step;
            `config.evaluation.checkpoint` by default.
        overrides: of `config.evaluation`; see `configuration.load`.

    Raises:
        UserError: if there is no run, no such checkpoint, or for a wrong override.
    """
    config = configuration.load(workdir, overrides)
    which = config.evaluation.checkpoint if which is None else which
    checkpoints.find(workdir, "last")  # a missing checkpoint is the first thing to tell
    task = config.task(config)
    task.prepare(workdir, training=False)
    like = jax.eval_shape(task.init_state, jax.random.key(config.seed))
    if which == "average":
        return (
            task,
            checkpoints.average(workdir, config.evaluation.average, like),
            which,
        )
    return task, checkpoints.restore(workdir, which, like), which


def options(method: Callable[..., Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the flags that were given, as arguments of a task's method.

    Args:
        method: what will be called with them.
        flags: absl's flag holders by argument name; a value of None is not given.

    Raises:
        UserError: for a flag that the method has no argument for.
    """
    given = {name: flag.value for name, flag in flags.items() if flag.value is not None}
    for name in given:
        if name not in inspect.signature(method).parameters:
            task = type(method.__self__).__name__
            raise UserError(f"--{name} has no meaning in the task {task}")
    return given


def read_lines(path: str | None) -> list[str]:
    """Returns the lines of a UTF-8 file, or of standard input where `path` is None.

    Raises:
        UserError: for a file that cannot be read, or a line that is not UTF-8.
    """
    try:
        content = Path(path).read_bytes() if path else sys.stdin.buffer.read()
    except OSError as error:
        raise UserError(f"--input={path}: {error.strerror}") from error
    lines, content = [], content.removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            raise UserError(
                f"{path or 'standard input'}:{number} is not UTF-8"
            ) from None
    return lines if content else []
