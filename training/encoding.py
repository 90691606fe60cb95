"""JSON form of configs, as in config.json: classes are "module:Name", tuples lists.

Decoding imports only modules in `tasks` and `models`.
"""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from base import storage
from base.errors import UserError, fault, one_line, parse_json

# The JSON form of a class that a run may name.
CLASS = re.compile(r"((?:tasks|models)(?:\.\w+)+):(\w+)")
RESTORE = "restore it from a copy, or name another --workdir"
_DIGEST = "sha256"  # of the other fields


def write_json(settings: dict[str, Any], workdir: Path) -> None:
    """Writes config.json: a config in its JSON form, and the digest of its fields.

    Raises:
        OSError: if it cannot be written.
    """
    text = json.dumps({_DIGEST: _digest(settings)} | settings, indent=2)
    storage.write(workdir / "config.json", text + "\n")


def read_json(workdir: Path) -> dict[str, Any]:
    """Returns the config of a run directory in its JSON form.

    Checks the digest, if there is one; a user who edits the file deletes it.

    Raises:
        UserError: if config.json cannot be read or is damaged.
    """
    path = workdir / "config.json"
    try:
        settings = parse_json(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): {RESTORE}") from error
    if not isinstance(settings, dict):
        raise UserError(f"{path} is {one_line(settings)}: must be an object; {RESTORE}")
    if settings.pop(_DIGEST, None) not in (None, _digest(settings)):
        raise UserError(
            f"{path} does not match its {_DIGEST}: {RESTORE}; if you have edited it, "
            f"delete the field {_DIGEST}"
        )
    return settings


def _digest(settings: dict[str, Any]) -> str:
    return storage.sha256(json.dumps(settings).encode())


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a config, such as ("model.d_model", 256)."""
    for name, value in config.items():
        if isinstance(value, ConfigDict | dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def encode(value: Any, name: str = "config") -> Any:
    """Returns the JSON form of a config or of a value in it.

    Tuples become lists, classes "module:Name".

    Args:
        value: the value.
        name: name of the field in errors.

    Raises:
        UserError: for a value without a JSON form.
    """
    if isinstance(value, ConfigDict):
        return {n: encode(inner, f"{name}.{n}") for n, inner in value.items()}
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, tuple):
        return [encode(inner, name) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UserError(
        f"{name} is {one_line(value)}: must be a number, text, tuple, class or None"
    )


def decode(value: Any) -> Any:
    """Returns a config, or a value in it, from the JSON form that `encode` writes."""
    if isinstance(value, dict):
        return ConfigDict({name: decode(inner) for name, inner in value.items()})
    if isinstance(value, list):
        return tuple(decode(inner) for inner in value)
    if isinstance(value, str) and CLASS.fullmatch(value):
        return load_class(value)
    return value


def load_class(text: str) -> type:
    """Returns a class from its JSON form, "module:Name", in `tasks` or `models`.

    Raises:
        ValueError: if there is no such class.
        UserError: if its module cannot be imported.
    """
    match = CLASS.fullmatch(text)
    if not match:
        raise ValueError(f"{text} is not a class in tasks or models")
    path = Path(*match[1].split(".")).with_suffix(".py")
    try:
        module = importlib.import_module(match[1])
    except Exception as error:  # of the module
        if isinstance(error, ModuleNotFoundError) and error.name == match[1]:
            raise ValueError(f"there is no {path}, of the class {text}") from None
        reason = fault(path, error)
        raise UserError(f"class {text} cannot be imported: {reason}") from error
    class_ = getattr(module, match[2], None)
    if not isinstance(class_, type) or class_.__module__ != match[1]:
        raise ValueError(f"{text} is not a class in tasks or models")
    return class_
