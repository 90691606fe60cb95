"""Exceptions for a user's mistakes; numbers, literals and JSON of a user's texts."""

import ast
import contextlib
import errno
import functools
import json
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# What to do about a damaged file of `assets/` in a run directory.
WRITTEN_AGAIN = (
    "restore it from a copy, or run the command of the training again, which writes it"
)
_MAX_NUMBER = 300  # characters of a number, which then fits a float
_MAX_DEPTH = 100  # of lists and objects inside each other
# Errors of the operating system that the same command meets again.
_LASTING = {
    getattr(errno, name)
    for name in (
        "E2BIG EACCES EBADF ECHILD EDQUOT EEXIST EFBIG EINVAL EISDIR ELOOP EMLINK "
        "ENAMETOOLONG ENOENT ENOEXEC ENOSPC ENOSYS ENOTDIR ENOTEMPTY ENOTSUP ENOTTY "
        "EPERM EPIPE EROFS ESPIPE ESRCH EXDEV"
    ).split()
}


class UserError(Exception):
    """A user's mistake in one line: the name, its value and the accepted values.

    Entry points print it as `error: <text>` and exit with status 1, without a
    traceback; with the status of a fault if `is_fault` holds.
    """


class OtherProcessError(UserError):
    """Raised in a process to report an error of another process of the job.

    The exit status is the status of the process with the error; it is a fault if that
    process does not report it.
    """


class FieldError(UserError, ValueError):
    """A field or an option that is out of range.

    Attributes:
        name: name of the field.
        value: value of the field.
        accepted: the accepted values, worded to follow "must be".
    """

    def __init__(self, name: str, value: Any, accepted: str):
        super().__init__(f"{name} is {one_line(value)}: must be {accepted}")
        self.name, self.value, self.accepted = name, value, accepted


def is_fault(error: BaseException | None) -> bool:
    """Returns whether a fault of a device or a network, such as EIO, led to an error.

    Not a full disk or a missing permission, which the same command would meet again.
    """
    for cause in chain(error):
        number = cause.errno if isinstance(cause, OSError) else None
        if number and number > 0 and number not in _LASTING:  # resolvers have negative
            return True
    return False


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those that led to it, each once: chains can be circular."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def parse_number(text: str, kind: Callable[[str], Any] = float) -> Any:
    """Returns the number that a text states, without Python's underscores.

    Args:
        text: text of a number, such as "1000", but not "1_000".
        kind: int or float.

    Raises:
        ValueError: if it is not a number, or has more than 300 characters.
    """
    if "_" in text or len(text) > _MAX_NUMBER:
        raise ValueError(f"{one_line(text)} is not a number")
    return kind(text)


def parse_whole(text: str) -> int:
    """Returns the number that a text of digits states.

    Raises:
        ValueError: if it is not digits, or has more than 300.
    """
    if not text.isdecimal():
        raise ValueError(f"{one_line(text)} is not a whole number")
    return parse_number(text, int)


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Returns the value of a JSON text.

    Args:
        text: the text.
        **options: of `json.loads`.

    Raises:
        ValueError: if it is not JSON, is nested too deeply for functions that walk
            through it, or has a whole number that does not fit a float.
    """
    whole = functools.partial(parse_number, kind=int)
    try:
        return _shallow(json.loads(text, parse_int=whole, **options))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_literal(text: str) -> Any:
    """Returns the value of a Python literal, such as (1, "a").

    Raises:
        ValueError: if it is not a literal, such as 1+1, is nested too deeply, or has a
            number that cannot be printed.
    """
    try:
        value = ast.literal_eval(text)
        repr(value)  # not of 0xfff... with thousands of digits
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{shorten(text)} is not a literal") from error
    return _shallow(value)


def _shallow(value: Any) -> Any:
    """Returns a value; raises a ValueError if it is nested too deeply."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list | tuple)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise ValueError("nested too deeply")


def one_line(value: Any) -> str:
    """Returns the text of a value in one line of at most 80 characters."""
    return shorten(" ".join(repr(value).split()))


def shorten(text: str) -> str:
    """Returns at most 80 characters of a text."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, such as "1 run" or "2,000 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bounds(low: float, high: float) -> str:
    """Returns the numbers from low to high, such as "5 to 1,000" or "5"."""
    return " to ".join(f"{x:,}" for x in sorted({low, high}))


def fault(path: Path, error: BaseException) -> str:
    """Returns the line for an error in a Python file or in a module it imports.

    Args:
        path: path of the file.
        error: the error that it raised.
    """
    frames = traceback.extract_tb(error.__traceback__)
    config = os.path.abspath(path)
    # The last line of the config itself, or of the body of an imported module.
    ours = [f for f in frames if f.filename == config or f.name == "<module>"]
    place = f"{ours[-1].filename}:{ours[-1].lineno}" if ours else str(path)
    reason: BaseException | str = error
    while isinstance(reason, BaseException):  # an error may wrap another one
        kind = type(reason).__name__
        reason = reason.args[0] if len(reason.args) == 1 else str(reason)
    text = ": ".join(filter(None, [kind, " ".join(str(reason).split())]))
    if isinstance(error, SyntaxError) and error.lineno:
        place, text = f"{error.filename}:{error.lineno}", error.msg
    with contextlib.suppress(ValueError):
        place = str(Path(place).relative_to(Path.cwd()))
    return f"{place}: {text}"
