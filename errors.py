"""Exceptions for a user's mistakes."""

from typing import Any


class UserError(Exception):
    """A user's mistake in one line: the name, its value and the accepted values.

    Entry points print it as `error: <text>` and exit with status 1, without a
    traceback.
    """


class FieldError(ValueError):
    """An error for a field of a model or layer that is out of range.

    Attributes:
        name: name of the field.
        value: value of the field.
        accepted: the accepted values, worded to follow "must be".
    """

    def __init__(self, name: str, value: Any, accepted: str):
        super().__init__(f"{name} is {value!r}: must be {accepted}")
        self.name, self.value, self.accepted = name, value, accepted
