"""Text in every language: normal form, case, words and sentences.

Texts that look equal can have different characters: "é" is one character or two. All
texts of this project are compared and written in one form, `normal`, in which such
outputs, references, transcripts and answers are equal.

A word is a run of letters, digits and underscores, each with its combining marks, such
as the vowel signs of Hindi and Arabic. Joiners (U+200C, U+200D) belong to it as well.
"""

import functools
import re
import unicodedata

# No other plane has marks, apart from the variation selectors U+E0100 to U+E01EF.
_MARKS = "".join(
    chr(code)
    for code in range(0x300, 0x20000)
    if unicodedata.category(chr(code)).startswith("M")
)
# Regular expressions: marks and joiners after a character, a character with them, and a
# run of letters and digits.
ATTACHED = f"[{_MARKS}\u200c\u200d\U000e0100-\U000e01ef]*"
SYMBOL = rf"[^\w\s]{ATTACHED}"
LETTER = rf"\w{ATTACHED}"
RUN = rf"(?:{LETTER})+"
INNER = "'’-‐‑"  # apostrophes and hyphens, part of a word between two letters
QUESTION_MARKS = "?؟？"
_ENDS = ".!?"  # of a sentence, before a space
_FULL_STOPS = "।॥؟۔።။។。｡！？"  # of a sentence, with or without one
MARKS = f",;:{_ENDS}{_FULL_STOPS}"  # that end a sentence or a part of it
_SENTENCE = re.compile(
    rf"(?<=[{_ENDS}])\s+|(?<=[{_FULL_STOPS}])(?![{_FULL_STOPS}{_ENDS}」』”’）)\]])\s*"
)


def composed(text: str) -> str:
    """Returns a text in Unicode's form NFC, with a space for U+2581.

    A vocabulary writes spaces as U+2581, so that it cannot be part of a text.
    """
    return unicodedata.normalize("NFC", text).replace("\u2581", " ")


def normal(text: str) -> str:
    """Returns the normal form of a text: `composed`, with single spaces."""
    return " ".join(composed(text).split())


def fold(text: str) -> str:
    """Returns a text in lower case, `composed`.

    The lower case of "İ" is "i", without the mark U+0307 that Unicode adds.
    """
    parts = unicodedata.normalize("NFD", composed(text).lower())
    return composed(re.sub("(i[\u0300-\u0306\u0308-\u036f]*)\u0307+", r"\1", parts))


def words(text: str, inner: str = "") -> list[str]:
    """Returns the words of a text.

    The `inner` characters, such as apostrophes, are part of a word between two letters.
    """
    return _word(inner).findall(text)


@functools.cache
def _word(inner: str) -> re.Pattern[str]:
    return re.compile(f"{RUN}(?:[{re.escape(inner)}]{RUN})*" if inner else RUN)


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text, each with the mark that ends it.

    A period, an exclamation or a question mark ends a sentence before white space; the
    full stops of Hindi, Chinese and other languages end one everywhere.
    """
    return [part for part in _SENTENCE.split(text) if part]
