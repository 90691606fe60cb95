"""Generated corpora, for runs without a network: number words, reversed letters.

The reversal of random letters is hard for a fixed-size encoding of the source and easy
with attention.
"""

import numpy as np

from tasks.translation.corpora.records import Record

LANGUAGES = ("en", "de")
_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_GERMAN = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn "
    "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
_GERMAN_TENS = (
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
).split()


def number_records(languages: tuple[str, str], seed: int) -> list[Record]:
    """Draws 2,000 numbers below a million, each in its own group.

    Raises:
        KeyError: if a language is not in `LANGUAGES`.
    """
    words = {"en": english_number, "de": german_number}
    chosen = np.random.default_rng(seed).choice(1_000_000, 2_000, replace=False)
    return [(str(n), *(words[x](int(n)) for x in languages)) for n in chosen]


def english_number(n: int) -> str:
    """Returns the words of a number below a million: 21 is "twenty-one"."""
    for unit, name in ((1000, "thousand"), (100, "hundred")):
        if n >= unit:
            rest = f" {english_number(n % unit)}" if n % unit else ""
            return f"{english_number(n // unit)} {name}{rest}"
    if n < 20:
        return _ENGLISH[n]
    tens = _ENGLISH_TENS[n // 10 - 2]
    return f"{tens}-{_ENGLISH[n % 10]}" if n % 10 else tens


def german_number(n: int) -> str:
    """Returns the word of a number below a million: 21 is "einundzwanzig"."""
    return _german(n) + ("s" if n % 100 == 1 else "")


def _german(n: int) -> str:
    for unit, name in ((1000, "tausend"), (100, "hundert")):
        if n >= unit:
            return _german(n // unit) + name + (_german(n % unit) if n % unit else "")
    if n < 20:
        return _GERMAN[n]
    tens = _GERMAN_TENS[n // 10 - 2]
    return f"{_GERMAN[n % 10]}und{tens}" if n % 10 else tens


def reversal_records(limits: tuple[int, int], seed: int) -> list[Record]:
    """Draws 10,000 sequences of letters, each in its own group.

    Their lengths are uniform within the limits; none if the minimum is above the
    maximum.
    """
    if limits[0] > limits[1]:
        return []
    rng = np.random.default_rng(seed)
    lengths = rng.integers(limits[0], limits[1] + 1, 10_000)
    drawn = (rng.choice(list("abcdefghijklmnopqrst"), length) for length in lengths)
    pairs = ((" ".join(letters), " ".join(letters[::-1])) for letters in drawn)
    return [(source, source, target) for source, target in pairs]
