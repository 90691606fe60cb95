"""Stories: lines, their words, the text format of the bAbI tasks, typed questions.

A file is a list of stories. Each line has a number, which starts again at 1 with each
story; a question is followed by its answer and the numbers of its supporting facts,
separated by tabs:

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary?<TAB>bathroom<TAB>1

A typed question is a story and a question on one line: "Mary moved to the bathroom.
John went to the hallway. Where is Mary?" Sentences are those of
`tasks.common.text.sentences`, so that "Mary has 3.5 euro." is one statement.

Answers are equal if their texts are equal in lower case and normal form: "C++" and "C#"
are two answers.
"""

import dataclasses
import functools
import random
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from base import storage
from base.errors import UserError
from tasks.common.text import INNER, QUESTION_MARKS, fold, normal, sentences

PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
OBJECTS = ("apple", "football", "milk")
ACTORS = {"Daniel": "he", "John": "he", "Mary": "she", "Sandra": "she"}

# Characters of words: letters, marks, digits, symbols such as "+" and "$", and these.
_CATEGORIES = ("L", "M", "N", "Sc", "Sm", "So")
_OTHERS = f"_{INNER}#%&*@\u200c\u200d"
_WORD = re.compile(r"[^\s,]+(?:,[^\s,]+)*")


class Line(NamedTuple):
    """A line of a story."""

    text: str  # a statement, or a question
    answer: str = ""  # the answer to a question; "" for a statement
    # numbers of the lines that support the answer, in the order of the reasoning; lines
    # are counted from 1, questions included
    support: tuple[int, ...] = ()


Lines = tuple[Line, ...]


@dataclasses.dataclass
class Story:
    """A story under construction."""

    rng: random.Random
    lines: list[Line] = dataclasses.field(default_factory=list)
    questions: int = 0
    pause: int = 0  # number of statements since the last question

    def state(self, *texts: str) -> int:
        """Adds one of `texts` as a statement; returns its number."""
        self.lines.append(Line(self.rng.choice(texts)))
        self.pause += 1
        return len(self.lines)

    def ask(self, text: str, answer: str, support: Iterable[int]) -> None:
        """Adds a question; repeated supporting facts count once."""
        facts = tuple(dict.fromkeys(support))
        self.lines.append(Line(text, normal_answer(answer), facts))
        self.questions += 1
        self.pause = 0


def words(text: str) -> list[str]:
    """Returns the lower-case words of a text with their symbols; "n,w" is one word."""
    return _WORD.findall("".join(map(_part, fold(text))))


@functools.cache
def _part(character: str) -> str:
    """The character if it can be part of a word, else a space."""
    category = unicodedata.category(character)
    is_part = category.startswith(_CATEGORIES) or character in f"{_OTHERS},"
    return character if is_part else " "


def normal_answer(text: str) -> str:
    """Returns an answer in the form in which answers are compared."""
    return normal(fold(text))


def facts(lines: Sequence[Line]) -> str:
    """Returns the statements of a story, without its questions."""
    return " ".join(line.text for line in lines if not line.answer)


def write(stories: Iterable[Lines]) -> str:
    """Returns stories as text."""
    return "".join(
        f"{number} {_text(line)}\n"
        for lines in stories
        for number, line in enumerate(lines, 1)
    )


def _text(line: Line) -> str:
    if not line.answer:
        return line.text
    return f"{line.text}\t{line.answer}\t{' '.join(map(str, line.support))}"


def read(text: str, name: str) -> list[Lines]:
    """Parses stories; skips blank lines. The text has a `name` in errors.

    Raises:
        UserError: for a line that is not in the format, or a text without questions.
    """
    stories: list[list[Line]] = []
    for place, row in enumerate(storage.lines(text, name), 1):
        if row.strip():
            _read_line(stories, row.rstrip(), f"{name}, line {place}")
    if not any(line.answer for lines in stories for line in lines):
        raise UserError(f"{name} has no questions: each needs a tab and its answer")
    return [tuple(lines) for lines in stories]


def _read_line(stories: list[list[Line]], row: str, name: str) -> None:
    """Adds a line to the last of the stories, or to a new one."""
    number, _, rest = row.lstrip().partition(" ")
    following = len(stories[-1]) + 1 if stories else 1
    accepted = "1" if following == 1 else f"{following}, or 1 for a new story"
    if number not in (str(following), "1"):
        raise UserError(f"{name} has the number {number[:40]!r}: must be {accepted}")
    if number == "1":
        stories.append([])
    story = stories[-1]
    text, *fields = (field.strip() for field in rest.split("\t"))
    if not words(text):
        raise UserError(f"{name} has no words after its number")
    if not fields:
        if any(mark in text for mark in QUESTION_MARKS):
            raise UserError(
                f"{name} is a question without an answer: must be QUESTION, a tab, "
                "ANSWER, a tab, and the numbers of the supporting facts"
            )
        story.append(Line(text))
        return
    if len(fields) > 2:
        raise UserError(f"{name} has {len(fields)} tabs: must be at most 2")
    if all(line.answer for line in story):
        raise UserError(f"{name} is a question before the first statement")
    if not words(fields[0]):
        raise UserError(f"{name} has an empty answer")
    support = tuple(_fact(x, story, name) for x in " ".join(fields[1:]).split())
    story.append(Line(text, normal_answer(fields[0]), support))


def _fact(number: str, story: list[Line], name: str) -> int:
    statements = [n for n, line in enumerate(story, 1) if not line.answer]
    if number not in map(str, statements):
        fact = f"{name} has the supporting fact {number[:40]!r}"
        raise UserError(f"{fact}: must be the number of an earlier statement")
    return int(number)


def parse(text: str) -> Lines:
    """Parses a typed question: statements with a period, and a question.

    Returns:
        The statements, and the question with the answer "?".

    Raises:
        UserError: for text without a statement, or that does not end with a question.
    """
    parts, ends = [x for x in sentences(text.strip()) if words(x)], (*QUESTION_MARKS,)
    if not parts or not parts[-1].endswith(ends):
        raise UserError(f"{text[:40]!r} must end with a question mark")
    *statements, question = parts
    if not statements or any(x.endswith(ends) for x in statements):
        raise UserError(
            f"{text[:40]!r} must be statements, each with a period, and one question"
        )
    return (*map(Line, statements), Line(question, "?"))
