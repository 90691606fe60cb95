"""Configs: `get_config(variant)` of a file, overrides from flags, and config.json.

An override is parsed as the type of the value that it replaces. A run directory has a
copy of its config in `config.json`, with classes as "module:Name", so evaluation and
prediction need no config file. Loading it imports only modules in `tasks` and `models`.
"""

import ast
import contextlib
import difflib
import importlib
import importlib.util
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

import storage
from errors import UserError
from training.compatibility import new_names, upgrade

# Fields that may change when a run is resumed.
_CHANGEABLE = (
    "train_steps eval_every save_every log_every mesh parallel checkpoints".split()
)
_CLASS = re.compile(r"((?:tasks|models)(?:\.\w+)+):(\w+)")
_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "such as 5 or 10x5",  # an element of a list
}
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def read(flag: str | None, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the config that a flag names, with overrides applied, locked.

    Args:
        flag: "configs/name.py" or "configs/name.py:variant".
        overrides: such as "model.d_model=256"; a later one replaces an earlier one.

    Raises:
        UserError: for a missing file, an unknown variant or field, or a wrong type.
    """
    if not flag:
        raise UserError(
            "--config is missing: give a config file, as in --config=configs/NAME.py"
        )
    path, _, variant = flag.partition(":")
    config = _load(Path(path), variant)
    _override_all(config, overrides)
    return config.lock()


def _override_all(config: ConfigDict, overrides: Sequence[str]) -> None:
    for override in overrides:
        name, _, text = override.partition("=")
        _override(config, name, text)


def _load(path: Path, variant: str) -> ConfigDict:
    if not path.is_file():
        near = _similar_configs(path)
        raise UserError(f"--config={path} is not a file{_near(near)}")
    spec = importlib.util.spec_from_file_location(f"configs.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"--config={path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: {error.msg}") from error
    if not hasattr(module, "get_config"):
        raise UserError(f"{path} has no get_config(variant)")
    try:
        return module.get_config(variant)
    except (ValueError, KeyError) as error:
        variants = filter(None, getattr(module, "VARIANTS", ()))
        near = difflib.get_close_matches(variant, variants)
        flags = [f"--config={path}:{name}" for name in near]
        raise UserError(f"--config={path}:{variant}: {error}{_near(flags)}") from error


def _similar_configs(path: Path) -> list[str]:
    """Returns the paths of configs whose names are similar to the name of `path`."""
    folder = path.parent if path.parent.name and path.parent.is_dir() else "configs"
    files = {file.stem: str(file) for file in sorted(Path(folder).glob("[!_]*.py"))}
    if path.stem in files:
        return [files[path.stem]]
    return [files[name] for name in difflib.get_close_matches(path.stem, files)]


def _override(config: ConfigDict, name: str, text: str) -> None:
    *parents, last = name.split(".")
    parent = config
    for part in parents:
        parent = parent[part] if part in parent else None
        if not isinstance(parent, ConfigDict):
            break
    if not isinstance(parent, ConfigDict) or last not in parent:
        names = [n for n, _ in _fields(config)]
        for new in new_names(name):
            if new in names:
                raise UserError(f"config.{name} is unknown: it is now config.{new}")
        near = [n for n in names if n.split(".")[-1] == last]
        near = near or difflib.get_close_matches(name, names, cutoff=0.7)
        group = ".".join(["config", *parents])
        hint = _near([f"config.{n}" for n in near])
        if not near and isinstance(parent, ConfigDict):
            hint = f": {group} has {', '.join(parent)}"
        raise UserError(f"config.{name} is unknown{hint}")
    old = parent[last]
    if isinstance(old, ConfigDict):
        inner = ", ".join(f"config.{name}.{n}" for n in old)
        raise UserError(f"config.{name} is a group: set one of {inner}")
    kind = type(old) if old is not None else parent.get_type(last)
    try:
        parent[last] = _parse(text, kind, old)
    except (ValueError, TypeError, KeyError, SyntaxError) as error:
        accepted = _NAMES.get(kind, kind.__name__)
        if kind is tuple:
            kinds = {_NAMES.get(type(x), type(x).__name__) for x in old or ()}
            accepted = "a list with commas" + "".join(f", each {k}" for k in kinds)
        raise UserError(f"config.{name} takes {accepted}, got '{text}'") from error


def _parse(text: str, kind: type[Any], old: Any) -> Any:
    if kind is bool:
        return _BOOLS[text.lower()]
    if kind is str:
        if text == "None":
            raise ValueError
        return text
    if kind is tuple:
        return _parse_tuple(text, {type(x) for x in old or ()})
    if kind is type or issubclass(kind, type):
        return _class(text)
    if kind is type(None):
        return ast.literal_eval(text)
    return kind(text)


def _parse_tuple(text: str, kinds: set[type]) -> tuple[Any, ...]:
    if text.startswith(("(", "[")):
        parts = tuple(ast.literal_eval(text))
    else:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if len(kinds) == 1 and not kinds & {tuple, dict}:
            (kind,) = kinds
            parts = tuple(_parse(part, kind, None) for part in parts)
        else:
            parts = tuple(map(_item, parts))
    allowed = kinds | ({int} if tuple in kinds else set())  # sizes: 10x5 or 5
    if len(kinds) == 1 and {type(part) for part in parts} - allowed:
        raise TypeError
    return parts


def _item(text: str) -> Any:
    """Parses a list element of unknown type: 5 is a number, 10x5 a tuple."""
    if re.fullmatch(r"\d+(x\d+)+", text):
        return tuple(map(int, text.split("x")))
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _near(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""


def check(config: ConfigDict) -> None:
    """Checks the fields that the training loop reads.

    Raises:
        UserError: for a field that is missing or out of range.
    """
    fields = dict(_fields(config))
    for name in ("task", "seed", "parallel", "mesh.data", "mesh.fsdp"):
        if name not in fields:
            raise UserError(f"config.{name} is missing")
    for name in (
        "train_steps",
        "eval_every",
        "save_every",
        "log_every",
        "checkpoints.keep",
    ):
        if not isinstance(fields.get(name), int) or fields[name] < 1:
            raise UserError(
                f"config.{name} is {fields.get(name)}: must be a whole number of at "
                "least 1"
            )
    if not isinstance(config.seed, int) or config.seed < 0:
        raise UserError(f"config.seed is {config.seed}: must be at least 0")
    which = str(fields.get("evaluation.checkpoint", "last"))
    if which not in ("last", "best", "average") and not which.isdecimal():
        raise UserError(
            f"config.evaluation.checkpoint is {which}: must be last, best, average or "
            "a step"
        )
    if fields.get("evaluation.average", 1) < 1:
        raise UserError(
            f"config.evaluation.average is {fields['evaluation.average']}: must be at "
            "least 1"
        )


def record(config: ConfigDict, workdir: Path) -> None:
    """Writes `config.json` if `compare` accepts the config.

    Raises:
        UserError: see `compare`; or if the file cannot be written.
    """
    compare(config, workdir)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        text = json.dumps(encode(config), indent=2)
        storage.write(workdir / "config.json", text)
    except OSError as error:
        raise UserError(f"--workdir={workdir}: {error.strerror}") from error


def compare(config: ConfigDict, workdir: Path) -> None:
    """Checks that `workdir` has no checkpoint of a run with another config.

    Raises:
        UserError: if there is one; lists the fields that differ.
    """
    path = workdir / "config.json"
    if not (path.is_file() and any((workdir / "checkpoints").glob("[0-9]*"))):
        return
    old = dict(_fields(upgrade(_parse_json(path.read_text(), workdir))))
    new = dict(_fields(encode(config)))
    lines = [
        f"  config.{name}: {_show(old, name)} there, {_show(new, name)} now"
        for name in {**old, **new}
        if _show(old, name) != _show(new, name)
        and name.split(".")[0] not in _CHANGEABLE
    ]
    if lines:
        raise UserError(
            "\n".join(
                [
                    f"{workdir} has a run of another config: take another --workdir, "
                    "or the same config",
                    *lines,
                ]
            )
        )


def _show(fields: dict[str, Any], name: str) -> str:
    return json.dumps(fields[name]) if name in fields else "absent"


def load(workdir: Path, overrides: Sequence[str] = ()) -> ConfigDict:
    """Returns the config of a run directory.

    Args:
        workdir: the run directory.
        overrides: such as "evaluation.beam=8"; only fields of `evaluation` can be
            changed after training.

    Raises:
        UserError: if the directory has no config, the config names a class outside
            `tasks` and `models`, or an override sets a field of another group.
    """
    for override in overrides:
        if not override.startswith("evaluation."):
            raise UserError(
                f"--config.{override}: only config.evaluation of a trained run can be "
                "changed"
            )
    path = workdir / "config.json"
    if not path.is_file():
        raise UserError(f"{workdir} has no run: {path} is missing")
    config = _decode(upgrade(_parse_json(path.read_text(), workdir)))
    if not isinstance(config.get("task"), type):
        raise UserError(
            f"{path}: task is {config.get('task')}: must be a class in tasks"
        )
    _override_all(config, overrides)
    return config.lock()


def _parse_json(text: str, workdir: Path) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"{workdir}/config.json is damaged: {error}") from error


def _fields(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a config, such as ("model.d_model", 256)."""
    for name, value in config.items():
        if isinstance(value, ConfigDict | dict) and value:
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def encode(value: Any) -> Any:
    """Returns the JSON form of a config or of a value in it.

    Tuples become lists, classes "module:Name".

    Raises:
        UserError: for a value without a JSON form.
    """
    if isinstance(value, ConfigDict):
        return {name: encode(inner) for name, inner in value.items()}
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, tuple):
        return [encode(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UserError(
        f"a config takes numbers, text, tuples, classes and None, got {value!r}"
    )


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return ConfigDict({name: _decode(inner) for name, inner in value.items()})
    if isinstance(value, list):
        return tuple(_decode(inner) for inner in value)
    if isinstance(value, str) and _CLASS.fullmatch(value):
        return _class(value)
    return value


def _class(text: str) -> type:
    match = _CLASS.fullmatch(text)
    if not match:
        raise ValueError(f"{text} is not a class in tasks or models")
    try:
        class_ = getattr(importlib.import_module(match[1]), match[2])
    except (ImportError, AttributeError) as error:
        raise UserError(f"class {text} cannot be imported: {error}") from error
    if not isinstance(class_, type) or class_.__module__ != match[1]:
        raise UserError(f"{text} is not a class in tasks or models")
    return class_
