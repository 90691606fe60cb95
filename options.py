"""Options of a task: a frozen dataclass whose fields become command-line flags.

Example:
    @dataclasses.dataclass(frozen=True)
    class SearchOptions(Options):
        beam: int | None = option(None, "Beam size; 1 is greedy decoding.")
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from typing import Any

from errors import UserError

_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
}
_BOOLS = {"true": True, "false": False}


@dataclasses.dataclass(frozen=True)
class Options:
    """Base class of task options; also used by tasks without options."""

    @property
    def ranked(self) -> bool:
        """True if predict.py prints all predictions of a line with their scores."""
        return False


def option(default: Any, text: str) -> Any:
    """Returns a dataclass field with its help text."""
    return dataclasses.field(default=default, metadata={"help": text})


def parse(task: Any, attribute: str, given: Mapping[str, str]) -> Any:
    """Parses flags into the options of a task.

    Args:
        task: a `training.task.Task`.
        attribute: "Options" or "EvaluationOptions", a dataclass whose fields are int,
            float, str or bool, optionally with None.
        given: text of each flag, by name.

    Returns:
        An instance of the dataclass.

    Raises:
        UserError: for an unknown option, or text that is not of the option's type.
    """
    options, owner = getattr(task, attribute), type(task).__name__
    kinds = typing.get_type_hints(options)
    values = {}
    for name, text in given.items():
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, n=1)
            accepted = f"did you mean --{near[0]}?" if near else _listed(options)
            raise UserError(
                f"--{name} is not an option of the task {owner}: {accepted}"
            )
        kind = next(k for k in _alternatives(kinds[name]) if k is not type(None))
        try:
            values[name] = _BOOLS[text.lower()] if kind is bool else kind(text)
        except (ValueError, KeyError):
            raise UserError(f"--{name} takes {_KINDS[kind]}, got {text!r}") from None
    return options(**values)


def describe(options: type) -> str:
    """Returns the help text of a dataclass of options."""
    lines = []
    for field in dataclasses.fields(options):
        text = field.metadata.get("help", "")
        default = "" if field.default is None else f" (default: {field.default})"
        lines.append(f"  --{field.name}: {text}{default}")
    return "\n".join(lines) or "  none"


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def _listed(options: type) -> str:
    names = ", ".join(f"--{field.name}" for field in dataclasses.fields(options))
    return f"its options are {names}" if names else "it has no options"
