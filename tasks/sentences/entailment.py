"""Generated pairs of sentences with exact entailment labels.

A sentence is a quantifier, an optional adjective, a noun and a verb, which may be
negated: "not all small dogs do not run". Nouns and verbs have hypernyms. Labels follow
from logic. In a world, each individual has one leaf noun, is small or not, and does any
subset of the basic verbs; each leaf noun has at least one individual. The label is
"entailment" if no world makes the premise true and the hypothesis false,
"contradiction" if no world makes both true, and "neutral" otherwise.

Combinations of both quantifiers and both nouns are held out: those of the validation
and test pairs are in no training pair.
"""

import functools
import itertools
import zlib
from typing import NamedTuple

import numpy as np

from tasks.common.splits import SPLITS

LABELS = ("entailment", "contradiction", "neutral")
QUANTIFIERS = ("all", "some", "no", "not all")
_LEAVES = "poodles beagles tabbies lions boys girls men women".split()
_BASIC = "walk swim sing whisper".split()
_NOUNS = {  # leaf nouns by noun
    "animals": "poodles beagles tabbies lions",
    "dogs": "poodles beagles",
    "cats": "tabbies lions",
    "people": "boys girls men women",
    "children": "boys girls",
    "adults": "men women",
    "males": "boys men",
    "females": "girls women",
    **{leaf: leaf for leaf in _LEAVES},
}
_VERBS = {  # basic verbs by verb
    "move": "walk swim",
    "speak": "sing whisper",
    **{verb: verb for verb in _BASIC},
}
# An individual: its leaf noun, whether it is small, whether it does each basic verb.
_KINDS = list(itertools.product(_LEAVES, (True, False), *[(True, False)] * len(_BASIC)))
_CHANGES = 0.4  # probability that a field of the hypothesis is drawn anew


class Sentence(NamedTuple):
    """A sentence."""

    quantifier: str
    small: bool
    noun: str
    negated: bool
    verb: str

    def __str__(self) -> str:
        words = self.quantifier, "small" * self.small, self.noun
        return " ".join(filter(None, (*words, "do not" * self.negated, self.verb)))


def parse(text: str) -> Sentence:
    """Parses the text of a sentence, as `str` writes it."""
    quantifier = next(x for x in QUANTIFIERS if text.startswith(f"{x} "))
    *subject, verb = text.removeprefix(quantifier).split()
    negated = "not" in subject
    small, noun = "small" in subject, subject[-3 if negated else -1]
    return Sentence(quantifier, small, noun, negated, verb)


@functools.cache
def _kinds(small: bool, noun: str) -> int:
    """The set of individuals that a subject denotes, as bits."""
    leaves = _NOUNS[noun].split()
    return sum(
        1 << i
        for i, (leaf, is_small, *_) in enumerate(_KINDS)
        if leaf in leaves and (is_small or not small)
    )


@functools.cache
def _doing(verb: str, negated: bool) -> int:
    """The set of individuals of which a predicate is true, as bits."""
    basic = [_BASIC.index(each) for each in _VERBS[verb].split()]
    return sum(
        1 << i
        for i, (_, _, *does) in enumerate(_KINDS)
        if any(does[k] for k in basic) != negated
    )


_EACH_LEAF = [_kinds(False, leaf) for leaf in _LEAVES]
_OPPOSITE = {"all": "not all", "not all": "all", "some": "no", "no": "some"}


def _possible(*sentences: Sentence) -> bool:
    """Returns whether some world makes all sentences true.

    A sentence either excludes a set of individuals from the world, or needs at least
    one of a set. It is enough to check the world of all individuals not excluded.
    """
    excluded, needed = 0, list(_EACH_LEAF)
    for sentence in sentences:
        subject = _kinds(sentence.small, sentence.noun)
        predicate = _doing(sentence.verb, sentence.negated)
        if sentence.quantifier == "all":
            excluded |= subject & ~predicate
        elif sentence.quantifier == "no":
            excluded |= subject & predicate
        elif sentence.quantifier == "some":
            needed.append(subject & predicate)
        else:
            needed.append(subject & ~predicate)
    return all(each & ~excluded for each in needed)


def label(premise: Sentence, hypothesis: Sentence) -> str:
    """Returns the label of a pair, one of `LABELS`."""
    opposite = hypothesis._replace(quantifier=_OPPOSITE[hypothesis.quantifier])
    if not _possible(premise, opposite):
        return "entailment"
    return "neutral" if _possible(premise, hypothesis) else "contradiction"


def split_of(premise: Sentence, hypothesis: Sentence) -> str:
    """Returns the split of a pair: a hash of its quantifiers and nouns decides."""
    key = "|".join([p[i] for i in (0, 2) for p in (premise, hypothesis)])
    number = zlib.crc32(key.encode()) % 10
    return {0: "validation", 1: "test"}.get(number, "train")


def _sentence(rng: np.random.Generator) -> Sentence:
    return Sentence(
        QUANTIFIERS[rng.integers(4)],
        bool(rng.random() < 0.3),
        list(_NOUNS)[rng.integers(len(_NOUNS))],
        bool(rng.random() < 0.3),
        list(_VERBS)[rng.integers(len(_VERBS))],
    )


def pairs(split: str, count: int) -> list[tuple[str, str, str]]:
    """Returns (label, premise, hypothesis) of one of `SPLITS`, always the same.

    The labels are equally frequent; premise and hypothesis differ.
    """
    rng = np.random.default_rng((SPLITS.index(split), 22))
    drawn: list[tuple[str, str, str]] = []
    while len(drawn) < count:
        premise, other = _sentence(rng), _sentence(rng)
        changed = rng.random(len(premise)) < _CHANGES
        words = zip(changed, premise, other, strict=True)
        hypothesis = Sentence(*(new if change else old for change, old, new in words))
        if hypothesis == premise or split_of(premise, hypothesis) != split:
            continue
        if label(premise, hypothesis) == LABELS[len(drawn) % 3]:
            drawn.append((LABELS[len(drawn) % 3], str(premise), str(hypothesis)))
    return drawn
