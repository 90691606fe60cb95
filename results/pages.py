"""Generated blocks of the pages: README.md and docs/**/*.md.

A block is between `<!-- results:begin NAME -->` and `<!-- results:end NAME -->`.
`NAME: RUN RUN` in the first mark selects rows of the table; in a table of claims, the
claims that compare one of the runs:

    <!-- results:begin alignments: short_bahdanau short_luong_dot_global -->
    <!-- results:end alignments -->

With `_in_words` in place of `_claims`, the claims are sentences; such a block repeats
results that another page has.

A source file is included between `<!-- source:begin PATH -->` and
`<!-- source:end PATH -->`.

A page is named by its path from the root of the repository. The home of a table is the
page that shows it in full; every table has exactly one.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from base.errors import UserError
from results.records import ROOT

Show = Callable[[tuple[str, ...]], str]  # names of runs (all if empty) -> Markdown

IN_WORDS = "_in_words"  # ends the name of a block that repeats a table of claims

_MARK = re.compile(r"<!-- *results:(.*?)-->")
_BEGIN = re.compile(r"begin (\w+)(?:: ([\w ]+))? ")
_SOURCE = re.compile(
    r"(<!-- source:begin (\S+) -->\n).*?(<!-- source:end \2 -->)", re.S
)
_LINK = re.compile(r"\]\(([^)#:]+)\)")


class Block(NamedTuple):
    """A generated block of a page: the text from `start` to `end`, between its marks.

    It shows the selected runs of a table; all if none is named.
    """

    table: str
    runs: tuple[str, ...]
    start: int
    end: int


def read() -> dict[str, str]:
    """Returns the text of every page by name."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    return {x.relative_to(ROOT).as_posix(): x.read_text("utf-8") for x in paths}


def blocks(page: str, text: str) -> Iterator[Block]:
    """Yields the blocks of a page.

    Raises:
        UserError: for a mark that is malformed or has no counterpart.
    """
    opened = None
    for mark in _MARK.finditer(text):
        begin = _BEGIN.fullmatch(mark[1])
        if opened is None and begin:
            opened = Block(begin[1], tuple((begin[2] or "").split()), mark.end(), 0)
        elif opened and mark[1] == f"end {opened.table} ":
            yield opened._replace(end=mark.start())
            opened = None
        else:
            raise UserError(f"{page}: the mark {mark[0]} is misplaced or misspelt")
    if opened:
        raise UserError(f"{page}: the table {opened.table} has no end mark")


def homes(texts: Mapping[str, str], tables: Iterable[str]) -> dict[str, str]:
    """Returns the page of each of the tables.

    Raises:
        UserError: for an unknown table, or a table on no page or on several.
    """
    tables, pages = list(tables), {}
    for page, text in texts.items():
        for block in blocks(page, text):
            if block.table not in tables:
                raise UserError(f"{page}: no table is called {block.table}")
            if block.runs or block.table.endswith(IN_WORDS):
                continue
            if home := pages.get(block.table):
                raise UserError(f"{page}: the table {block.table} is on {home} already")
            pages[block.table] = page
    for table in tables:
        if table not in pages and not table.endswith(IN_WORDS):
            problem = f"no page shows the table {table}"
            raise UserError(f"{problem}: put its marks on a page of docs/")
    return pages


def fill(page: str, text: str, tables: Mapping[str, Show]) -> str:
    """Returns the text of a page with its tables between their marks.

    Raises:
        UserError: for a table, a run or a source file that does not exist.
    """
    parts, position = [], 0
    for block in blocks(page, text):
        try:
            table = tables[block.table](block.runs)
        except UserError as error:
            raise UserError(f"{page}: {error}") from error
        parts += [text[position : block.start], f"\n\n{_relative(table, page)}\n\n"]
        position = block.end

    def include(match: re.Match[str]) -> str:
        """A source file between its marks, as a code block."""
        try:
            source = (ROOT / match[2]).read_text("utf-8")
        except FileNotFoundError:
            raise UserError(f"{page}: there is no file {match[2]}") from None
        return f"{match[1]}\n```py\n{source}```\n\n{match[3]}"

    return _SOURCE.sub(include, "".join([*parts, text[position:]]))


def write(texts: Mapping[str, str]) -> None:
    """Writes the pages whose text has changed."""
    for page, text in texts.items():
        if (ROOT / page).read_text("utf-8") != text:
            (ROOT / page).write_text(text, "utf-8")


def _relative(table: str, page: str) -> str:
    """Makes links, relative to the root of the repository, relative to a page."""
    folder = PurePosixPath(page).parent
    return _LINK.sub(lambda link: f"]({os.path.relpath(link[1], folder)})", table)
