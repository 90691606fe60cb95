"""Bad inputs of all entry points, by class of mistake, each with the line it gets.

    python tests/bad_inputs.py

writes docs/bad-inputs.md from the catalogue `bad_inputs.txt`: a heading for each class,
then commands as a user types them, each followed by the whole output. In an output,
"..." stands for text that depends on the machine. The commands run in a folder with the
files and runs of `bad_files`.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CATALOGUE = Path(__file__).with_suffix(".txt")
PAGE = ROOT / "docs/bad-inputs.md"
_HEAD = """\
<!-- Written by tests/bad_inputs.py from tests/bad_inputs.txt. -->
# Bad inputs

A mistake in a command, a config, a file or a line of input ends in one line, with \
exit status 1 and nothing lost: it names the thing, its value and what is accepted. \
The tests make {count} mistakes, which \
[`tests/bad_inputs.txt`](../tests/bad_inputs.txt) lists; the table shows one of \
each class.

| class | entry points | inputs | example | answer |
|---|---|---:|---|---|
"""


class Case(NamedTuple):
    """A bad input.

    Attributes:
        kind: class of the mistake.
        command: the command line.
        line: the whole output.
    """

    kind: str
    command: str
    line: str

    def parse(self):
        """Returns the entry point, its arguments, and bytes of standard input."""
        _, *words = shlex.split(self.command)
        words, _, stdin = _partition(words, "<<<")
        entry, *arguments = words[1:] if words[0] == "-m" else words
        return entry, arguments, "".join(f"{text}\n" for text in stdin).encode()


def _partition(words, separator):
    where = words.index(separator) if separator in words else len(words)
    return words[:where], separator, words[where + 1 :]


def read(text):
    """Returns the cases of a catalogue, by class."""
    kinds, kind, command = {}, "", ""
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "#":
            kind = rest
        elif mark == "$":
            command = rest
        elif line:
            kinds.setdefault(kind, []).append(Case(kind, command, line))
    return kinds


CASES = read(CATALOGUE.read_text("utf-8"))


def page():
    """Returns the text of docs/bad-inputs.md."""
    rows = []
    for kind, cases in CASES.items():
        entries = dict.fromkeys(case.parse()[0] for case in cases)
        names = ", ".join(f"`{entry}`" for entry in entries)
        texts = (cases[0].command, cases[0].line)
        example, answer = (f"`{text}`".replace("|", "\\|") for text in texts)
        rows.append(f"| {kind} | {names} | {len(cases)} | {example} | {answer} |\n")
    count = f"{sum(map(len, CASES.values())):,}"
    return (
        _HEAD.format(count=count) + "".join(rows) + "\n[All documentation](index.md)\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
