"""Quoting of a user's text for a shell and for YAML, and templates."""

import json
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_TEMPLATES = Path(__file__).with_name("templates")


def array(words: Iterable[str], indent: str = "  ") -> str:
    """Returns the elements of a bash array, quoted, one on a line."""
    return "\n".join(indent + shlex.quote(word) for word in words)


def yaml(value: str) -> str:
    """Returns a double-quoted scalar, which is the same in JSON and in YAML."""
    return json.dumps(value, ensure_ascii=False)


def container_argument(text: str) -> str:
    """Escapes the references of Kubernetes, which replaces $(NAME) in a command."""
    return text.replace("$", "$$")


def fill(template: str, **values: Any) -> str:
    """Returns a template with each {{name}} replaced.

    A line that has only a {{name}} is left out if the value is empty; the lines of a
    value begin at the same column.

    Args:
        template: name of a file in `templates/`.
        **values: the values by name; all are used.
    """
    text = (_TEMPLATES / template).read_text("utf-8")
    unused = set(values)

    def value_of(name: str) -> str:
        unused.discard(name)
        return str(values[name])

    def replace_line(match: re.Match) -> str:
        lines = value_of(match[2]).splitlines()
        return "".join(f"{match[1]}{line}\n" for line in lines)

    # One pass, so that a value with {{...}} is not a template itself.
    pattern = r"^([ ]*)\{\{(\w+)\}\}\n|\{\{(\w+)\}\}"
    text = re.sub(
        pattern,
        lambda match: replace_line(match) if match[2] else value_of(match[3]),
        text,
        flags=re.MULTILINE,
    )
    assert not unused, f"{template} does not use {unused}"
    return text
