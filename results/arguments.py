"""Arguments and errors of the modules of `results` that are run."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from base.errors import UserError, parse_number


def whole(text: str) -> int:
    """Returns the whole number of an argument, for `type` of `add_argument`."""
    return parse_number(text, int)


class Parser(argparse.ArgumentParser):
    """Parser of the arguments of a module; a wrong one raises a UserError."""

    def __init__(self, description: str | None):
        """Creates a parser that shows `description` as it is for `--help`."""
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(
            description=description, formatter_class=layout, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        """Raises a UserError for an error of argparse."""
        raise UserError(f"{message}; see --help")


def run_main(main: Callable[[], Iterable[Path] | None]) -> None:
    """Runs a module and prints the paths it returns; an error of a user is one line."""
    try:
        for path in main() or ():
            print(path)
    except UserError as error:
        sys.exit(f"error: {error}")
