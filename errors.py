"""Exceptions for a user's mistakes."""

from typing import Any


class UserError(Exception):
    """A user's mistake in one line: the name, its value and the accepted values.

    Entry points print it as `error: <text>` and exit with status 1, without a
    traceback.
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


def one_line(value: Any) -> str:
    """Returns the text of a value in one line of at most 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
