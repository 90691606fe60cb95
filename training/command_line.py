"""Command lines of the entry points: flags, overrides of the config, options of tasks.

absl parses the flags that an entry point defines. `--config.FIELD=VALUE` overrides a
field of the config; other flags are options of the task.
"""

import difflib
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from absl import flags

from base.errors import UserError, one_line


class Arguments(NamedTuple):
    """Flags that are not defined with absl.

    Attributes:
        overrides: overrides of the config, as ["FIELD=VALUE", ...].
        options: text of each option of the task, by name; None for an option without a
            value.
    """

    overrides: list[str]
    options: dict[str, str | None]


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line into absl's arguments and overrides of the config."""
    rest, overrides, args = [], [], list(argv)
    while args:
        arg = args.pop(0)
        name = arg.lstrip("-")
        if not arg.startswith("-") or not name.startswith("config."):
            rest.append(arg)
            continue
        if "=" not in name:
            if not args or args[0].startswith("--"):
                raise UserError(f"{arg} needs a value: {arg}=VALUE")
            name += f"={args.pop(0)}"
        overrides.append(name.removeprefix("config."))
    return rest, overrides


def flag_names() -> list[str]:
    """Returns the names of the flags that the entry point defines."""
    flags_of_main = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    return [flag.name for flag in flags_of_main]


def require_workdir(workdir: str | None, given: Mapping[str, str]) -> Path:
    """Returns the folder of `--workdir`.

    Args:
        workdir: value of the flag.
        given: the options of the task, in which a mistyped `--workdir` is.

    Raises:
        UserError: if the flag is missing.
    """
    if workdir:
        return Path(workdir)
    for name in given:
        if difflib.get_close_matches(name, flag_names(), n=1) == ["workdir"]:
            raise UserError(f"--{name} is unknown: did you mean --workdir?")
    raise UserError("--workdir is missing: name the folder of a run")


def not_a_flag(argument: str) -> str:
    """Returns the line to print for an argument that does not begin with "-"."""
    name, equals, _ = argument.partition("=")
    if equals and (name.startswith("config.") or name in flag_names()):
        hint = f"did you mean --{argument}?"
    elif "input" in flag_names():
        hint = "inputs are lines of standard input, or of the file --input=FILE"
    else:
        hint = "see --help"
    return f"{argument} is not a flag: {hint}"


def check_numbers(argv: Sequence[str]) -> None:
    """Raises a UserError for a number of a flag with Python's underscores."""
    for name in flag_names():
        value = _value_of(f"--{name}", argv) or ""
        if isinstance(flags.FLAGS[name].parser, flags.IntegerParser) and "_" in value:
            raise UserError(f"--{name} is {one_line(value)}: must be a whole number")


def flag_error(error: flags.Error, argv: Sequence[str]) -> str:
    """Returns the line to print for an error of absl.

    Args:
        error: the error.
        argv: the command line if it may set fields of a config.
    """
    if isinstance(error, flags.UnrecognizedFlagError):
        near = difflib.get_close_matches(error.flagname, flag_names(), n=1)
        near = near or _similar_fields(error.flagname, _value_of("--config", argv))
        hint = f"did you mean {' or '.join(f'--{n}' for n in near)}?"
        return f"--{error.flagname} is unknown: {hint if near else 'see --help'}"
    if match := re.match(r"flag --(\w+)=(.*?): ", str(error)):
        name, value = match.groups()
        parser = flags.FLAGS[name].parser
        accepted = list(getattr(parser, "enum_values", ()))
        if isinstance(parser, flags.BooleanParser):
            accepted = ["true", "false"]
        if isinstance(parser, flags.IntegerParser):
            low, high = parser.lower_bound, parser.upper_bound
            text = "a whole number" + f", at least {low}" * (low is not None)
            accepted = [text + f" and at most {high}" * (high is not None)]
        if accepted:
            return f"--{name} is {one_line(value)}: must be {' or '.join(accepted)}"
    if match := re.match(r"Missing value for flag --?(\w+)", str(error)):
        return f"--{match[1]} needs a value: --{match[1]}=VALUE"
    return str(error)


def _similar_fields(name: str, config: str | None) -> list[str]:
    """Returns the fields of a config that an unknown flag may mean."""
    if not config:
        return []
    from training import configuration

    try:
        fields = configuration.similar_fields(configuration.read(config), name)
    except UserError:  # in the config; the flag is reported first
        return []
    return [f"config.{field}" for field in fields]


def parse_options(rest: Sequence[str]) -> dict[str, str | None]:
    """Returns the text of options such as ["--beam=4", "--alpha", "0.6"], by name."""
    options, rest = dict[str, str | None](), list(rest)
    while rest:
        arg = rest.pop(0)
        if not arg.startswith("-") or not arg.strip("-"):
            raise UserError(not_a_flag(arg))
        name, equals, value = arg.lstrip("-").partition("=")
        if not equals:
            given = rest and not rest[0].startswith("--")
            options[name] = rest.pop(0) if given else None
            continue
        options[name] = value
    return options


def help_text(argv: Sequence[str], options: str | None) -> str:
    """Returns the help of an entry point of the task of --workdir and of --config."""
    parts = [sys.modules["__main__"].__doc__ or "", flags.FLAGS.main_module_help()]
    if options:
        text = "  add --workdir=RUN to list them"
        if workdir := _value_of("--workdir", argv):
            from training import configuration, reference

            task = configuration.load(Path(workdir)).task
            text = reference.options_text(getattr(task, options))
        parts.append(f"options of the task:\n{text}")
    if "config" in flags.FLAGS:
        text = "  add --config=FILE to list its variants and fields"
        if config := _value_of("--config", argv):
            from training import reference

            text = reference.help_text(config)
        parts.append(text)
    return "\n".join(parts)


def _value_of(flag: str, argv: Sequence[str]) -> str | None:
    for arg, following in itertools.zip_longest(argv, argv[1:]):
        name, equals, value = arg.partition("=")
        if name == flag:
            return value if equals else following
    return None
