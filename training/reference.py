"""Reference of a config: variants and fields, read from the declarations.

A field is declared in a dataclass, in a Flax module, or as an argument of an optimizer
or schedule. Its meaning is the entry in a docstring's `Attributes` or `Args`, or the
comment above or beside the declaration.
"""

import ast
import dataclasses
import functools
import inspect
import io
import json
import re
import textwrap
import tokenize
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from base import ranges
from base.ranges import Accepted
from base.storage import markdown_table
from training import checks, configuration, objective, optimizers
from training.encoding import encode, leaves


class Field(NamedTuple):
    """A field of a config; all as text."""

    name: str
    default: str  # in this config
    accepted: str
    meaning: str


def fields(config: ConfigDict) -> list[Field]:
    """Returns all fields of a config."""
    accepted, texts = dict[str, Accepted](), dict[str, str]()
    for prefix, owner in _owners(config):
        for name, value in ranges.declared(owner).items():
            accepted.setdefault(prefix + name, value)
        for name, text in meanings(owner).items():
            texts.setdefault(prefix + name, text)
    for group, _ in optimizers.groups(config):
        for name, value in optimizers.RANGES.items():
            accepted[f"{group}.{name}"] = value
    return [
        Field(
            name,
            _text(value),
            accepted[name].accepted if name in accepted else "",
            _sentence(texts.get(name, "")),
        )
        for name, value in leaves(config)
        if not isinstance(value, ConfigDict)  # a model without fields
    ]


def variants(path: Path) -> dict[str, list[str]]:
    """Returns the changed fields of each variant of a config file, as NAME=VALUE."""
    names = getattr(configuration.execute(path, "--config"), "VARIANTS", ())
    default = dict(leaves(configuration.read(str(path))))
    changes = {}
    for name in filter(None, names):
        changed = leaves(configuration.read(f"{path}:{name}"))
        changes[name] = [
            f"{field}={_text(value)}"
            for field, value in changed
            if field not in default or default[field] != value
        ]
    return changes


def help_text(flag: str) -> str:
    """Returns the variants and fields of `--config=FLAG` for a terminal."""
    path = flag.partition(":")[0]
    wrap = functools.partial(
        textwrap.fill, initial_indent="    ", subsequent_indent="    "
    )
    lines = [f"variants of {path}:"]
    for name, changes in variants(Path(path)).items():
        lines += [f"  {path}:{name}", wrap(", ".join(changes) or "the default")]
    lines += ["", f"fields of {flag}:"]
    for name, default, accepted, meaning in fields(configuration.read(flag)):
        lines += [f"  --config.{name}={default}", wrap(meaning)]
        lines += [wrap(f"({accepted})")]
    return "\n".join(lines)


def options_text(options: type) -> str:
    """Returns the help text of the options of a task."""
    accepted, texts = ranges.declared(options), meanings(options)
    lines = []
    for field in dataclasses.fields(options):
        notes = [accepted[field.name].accepted] if field.name in accepted else []
        notes += [] if field.default is None else [f"default: {field.default}"]
        text = _sentence(texts.get(field.name, ""))
        text += f" ({'; '.join(notes)})" * bool(notes)
        lines.append(f"  --{field.name}: {text}")
    return "\n".join(lines) or "  none"


def page(path: Path) -> str:
    """Returns the reference of a config file as a page in Markdown."""
    module = configuration.execute(path, "--config")
    text = inspect.cleandoc(module.__doc__ or "").replace("<", r"\<")
    text = re.sub(r"`?docs/([\w/-]+\.md)`?", r"[\1](../\1)", text)
    lines = [f"# {path.stem}", "", text, "", "## Changed fields of the variants", ""]
    for name, changes in variants(path).items():
        title = f"<summary><code>{name}</code> ({len(changes)})</summary>"
        changed = ", ".join(f"`{change}`" for change in changes)
        lines.append(f"<details>{title}\n\n{changed}\n\n</details>\n")
    rows = [
        [f"`{name}`", f"`{default}`", _escape(accepted), _escape(meaning)]
        for name, default, accepted, meaning in fields(configuration.read(str(path)))
    ]
    table = markdown_table(["field", "default", "accepted", "meaning"], rows, 0)
    return "\n".join([*lines, "## Fields", "", table, ""])


def _owners(config: ConfigDict) -> Iterator[tuple[str, Any]]:
    """Yields the declaring classes and functions with the prefixes of their fields."""
    yield from _groups(config.task.Config, config, "")
    for name in checks.models(config):
        yield "model.", config[name]
    for name, group in optimizers.groups(config):
        yield f"{name}.", optimizers.config_group
        makers, schedules = optimizers.OPTIMIZERS, optimizers.SCHEDULES
        chosen = makers[group.name], schedules[group.schedule]
        for make in (*chosen, *makers.values(), *schedules.values()):
            yield f"{name}.", make
        yield f"{name}.", objective.Supervised.__init__


def _groups(
    declared: type, group: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, type]]:
    yield prefix, declared
    for name, hint in typing.get_type_hints(declared).items():
        if dataclasses.is_dataclass(hint) and name in group:
            yield from _groups(typing.cast(type, hint), group[name], f"{prefix}{name}.")


@functools.cache
def meanings(owner: Any) -> Mapping[str, str]:
    """Returns the meanings of the fields that a class or a function declares."""
    texts = dict[str, str]()
    for base in reversed(owner.__mro__ if isinstance(owner, type) else [owner]):
        if isinstance(base, type) and "__annotations__" in vars(base):
            for name, text in _comments(base).items():
                texts[name] = _join(texts.get(name, ""), text)
        doc = inspect.cleandoc(base.__doc__ or "")
        for section in re.findall(
            r"^(?:Attributes|Args):\n((?: .*\n?|\n)+)", doc, re.M
        ):
            entries = re.findall(
                r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", section, re.M
            )
            for names, text in entries:
                texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def _comments(declared: type) -> dict[str, str]:
    """Returns the comments of a class's fields: those above, then those beside."""
    try:
        source = textwrap.dedent(inspect.getsource(declared))
    except (OSError, TypeError):  # built in, or not from a file
        return {}
    lines, comments = source.splitlines(), dict[int, str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("# ")
    texts = {}
    for node in typing.cast(ast.ClassDef, ast.parse(source).body[0]).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, last = node.lineno, node.end_lineno or node.lineno
            while lines[first - 2].lstrip().startswith("#"):
                first -= 1
            parts = [
                " ".join(comments[i] for i in range(*part) if i in comments)
                for part in ((first, node.lineno), (node.lineno, last + 1))
            ]
            texts[node.target.id] = _join(*parts)
    return texts


def _join(first: str, second: str) -> str:
    return "; ".join(filter(None, [first.removesuffix("." * bool(second)), second]))


def _sentence(text: str) -> str:
    """Begins with a capital, unless that is a symbol, and ends with a full stop."""
    first = text[:1].upper() if text[1:2].isalpha() else text[:1]
    return f"{first}{text[1:].removesuffix('.')}." if text else ""


def _text(value: Any) -> str:
    return json.dumps(encode(value), ensure_ascii=False)


def _escape(text: str) -> str:
    """Escapes mathematics, HTML and emphasis, except in code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([$<*_\[\]\\])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
