"""Stories: numbered statements and questions, with answers and supporting facts."""

import dataclasses
import functools
import random
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tasks.common.text import fold, normal

PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
OBJECTS = ("apple", "football", "milk")
ACTORS = {"Daniel": "he", "John": "he", "Mary": "she", "Sandra": "she"}

# Characters of words: letters, marks, digits, symbols such as "+" and "$", and these.
_CATEGORIES = ("L", "M", "N", "Sc", "Sm", "So")
_OTHERS = "_'-#%&*@\u200c\u200d"
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
