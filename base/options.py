"""Options of a task: a frozen dataclass whose fields become command-line flags.

The comment above or beside a field is the help text of its flag.

Example:
    class SearchOptions(Options):
        beam: Annotated[int | None, SIZE] = None  # beam size; 1 is greedy decoding
"""

import contextlib
import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from base import ranges
from base.errors import FieldError, UserError, parse_number
from base.fields import Fields

KINDS: dict[type, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
}
_BOOLS = {"true": True, "false": False}


class Options(Fields):
    """Base class of task options; also used by tasks without options.

    Raises:
        FieldError: for an option out of range.
    """

    def __post_init__(self):
        owner: type = type(self)
        given = {n: x for n, x in vars(self).items() if x is not None}
        ranges.check(ranges.declared(owner), given)

    @property
    def ranked(self) -> bool:
        """True if predict.py prints all predictions of a line with their scores."""
        return False


def parse(
    task: Any,
    attribute: str,
    given: Mapping[str, str | None],
    flags: Sequence[str] = (),
) -> Any:
    """Parses flags into the options of a task.

    Args:
        task: a `training.task.Task`.
        attribute: "Options" or "EvaluationOptions", a dataclass whose fields are int,
            float, str or bool, optionally with None.
        given: text of each flag, by name; None for a flag without a value.
        flags: names of the flags that every task has, for suggestions.

    Returns:
        An instance of the dataclass.

    Raises:
        UserError: for an unknown option, or a value of another type or out of range.
    """
    options, owner = getattr(task, attribute), type(task).__name__
    kinds = typing.get_type_hints(options)
    values = {}
    for name, text in given.items():
        if text is None and name in kinds and bool not in _alternatives(kinds[name]):
            raise UserError(f"--{name} needs a value: --{name}=VALUE")
        text = "true" if text is None else text
        if name not in kinds:
            near = difflib.get_close_matches(name, [*kinds, *flags], n=1)
            hint = f"did you mean --{near[0]}?" if near else _listed(kinds, owner)
            raise UserError(f"--{name} is unknown: {hint}")
        kind = next(k for k in _alternatives(kinds[name]) if k is not type(None))
        try:
            values[name] = _option(text, kind)
        except (ValueError, KeyError):
            raise FieldError(f"--{name}", text, KINDS[kind]) from None
    ranges.check(ranges.declared(options), values, "--")
    return options(**values)


def _option(text: str, kind: Any) -> Any:
    if kind is bool:
        return _BOOLS[text.lower()]
    return text if kind is str else parse_number(text, kind)


@contextlib.contextmanager
def as_flags(options: Any) -> Iterator[None]:
    """Names the flag in an error about an option, "--beam" instead of "beam"."""
    try:
        yield
    except FieldError as error:
        if error.name not in vars(options):
            raise
        raise FieldError(f"--{error.name}", error.value, error.accepted) from error


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def _listed(kinds: Mapping[str, Any], owner: str) -> str:
    names = ", ".join(f"--{name}" for name in kinds)
    return f"the task {owner} has {f'the options {names}' if names else 'no options'}"
