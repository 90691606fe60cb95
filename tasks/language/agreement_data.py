"""Generated sentences of artificial languages with long-distance agreement.

| language | sentence | dependent word | controller |
|---|---|---|---|
| agreement | the dog near the doors that the girls see runs | verb | its subject |
| brackets | ( [ ] { ( ) } ) | closing bracket | the bracket that it closes |

Agreement: a clause is a subject, up to S prepositional phrases with a noun each (the
attractors), optionally a relative clause of the same form, and a verb. Nouns have one
of four classes and a number; a verb has a form for each class and number, and agrees
with its subject. Clauses nest up to `DEPTH` deep. Brackets: 1 to S pairs of eight
types.

Sentences are drawn word by word, with known probabilities, so that the perplexity of
the source itself is known.

Axes: B batch; T words; S size; N dependent words.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from tasks.common.batches import Batch, EndlessBatches, pad
from tasks.common.splits import held_out_rng
from tasks.common.vocabulary import PAD, Words

DEPTH = 3
_CLASSES = {  # verb, and nouns by class
    "speak": ("girl", "king", "doctor", "uncle"),
    "run": ("dog", "horse", "cat", "goat"),
    "grow": ("tree", "rose", "fern", "vine"),
    "fall": ("stone", "door", "cup", "hat"),
}
_NUMBERS = ("", "s")  # singular and plural noun; the verb has the other ending
_PREPOSITIONS = ("near", "behind", "beside", "above")
_PAIRS = ("()", "[]", "{}", "<>", "/\\", "«»", "bd", "pq")
_FIRST = 2  # the first group has the distances 1 and 2; each further one doubles
_ATTRACTOR, _RELATIVE = 0.6, 0.5  # probabilities of one more, of a relative clause


@dataclasses.dataclass
class Sentence:
    """A sentence, drawn word by word."""

    rng: np.random.Generator
    words: list[str] = dataclasses.field(default_factory=list)
    # position of the controller of each word, -1 for none
    controllers: list[int] = dataclasses.field(default_factory=list)
    nats: float = 0.0  # -log p of the sentence, including its end

    def _write(self, word: str, controller: int = -1) -> None:
        self.words.append(word)
        self.controllers.append(controller)

    def _choose(self, options: Sequence) -> int:
        """Index of one of several equally probable options."""
        self.nats += math.log(len(options))
        return int(self.rng.integers(len(options)))

    def _decide(self, probability: float) -> bool:
        yes = bool(self.rng.random() < probability)
        self.nats -= math.log(probability if yes else 1 - probability)
        return yes

    def _noun(self) -> tuple[int, int]:
        """Writes "the NOUN"; returns its class and number."""
        kind, number = self._choose(_CLASSES), self._choose(_NUMBERS)
        nouns = list(_CLASSES.values())[kind]
        self._write("the")
        self._write(nouns[self._choose(nouns)] + _NUMBERS[number])
        return kind, number

    def clause(self, size: int, depth: int) -> None:
        """Draws a clause of size S that nests up to `depth` clauses."""
        kind, number = self._noun()
        subject, attractors = len(self.words) - 1, 0
        while attractors < size and self._decide(_ATTRACTOR):
            self._write(_PREPOSITIONS[self._choose(_PREPOSITIONS)])
            self._noun()
            attractors += 1
        if depth > 1 and self._decide(_RELATIVE):
            self._write("that")
            self.clause(size, depth - 1)
        self._write(list(_CLASSES)[kind] + _NUMBERS[1 - number], subject)

    def brackets(self, size: int) -> None:
        """Draws 1 to S pairs of brackets."""
        pairs = 1 + self._choose(range(size))
        stack: list[tuple[int, int]] = []
        opened = 0
        while stack or opened < pairs:
            if opened < pairs and (not stack or self._decide(0.5)):
                kind = self._choose(_PAIRS)
                stack.append((kind, len(self.words)))
                self._write(_PAIRS[kind][0])
                opened += 1
            else:
                kind, position = stack.pop()
                self._write(_PAIRS[kind][1], position)


def draw(language: str, rng: np.random.Generator, size: int) -> Sentence:
    """Draws a sentence of size S of one of `LANGUAGES`."""
    sentence = Sentence(rng)
    if language == "agreement":
        sentence.clause(size, DEPTH)
    else:
        sentence.brackets(size)
    return sentence


def max_length(language: str, size: int) -> int:
    """Returns the maximum number of words of a sentence, EOS included."""
    if language == "agreement":
        return DEPTH * (3 + 3 * size) + DEPTH - 1 + 1
    return 2 * size + 1


_VERBS = [verb + ending for verb in _CLASSES for ending in _NUMBERS]
_NOUNS = [x + ending for y in _CLASSES.values() for x in y for ending in _NUMBERS]
_OPENING, _CLOSING = zip(*_PAIRS, strict=True)
LANGUAGES = {
    "agreement": Words(["the", "that", *_PREPOSITIONS, *_NOUNS, *_VERBS], _VERBS),
    "brackets": Words([*_OPENING, *_CLOSING], _CLOSING),
}


def encode(language: str, sentences: Sequence[Sentence], width: int) -> Batch:
    """Returns B sentences of at most `width` words, EOS included, as a batch.

    Returns:
        int32 `tokens` [B, T], and `controllers` [B, T]: the position of the controller
        of a dependent word, -1 elsewhere.
    """
    encode = LANGUAGES[language].encode
    tokens = [encode(" ".join(sentence.words)) for sentence in sentences]
    controllers = pad([each.controllers for each in sentences], width, fill=-1)
    return {"tokens": pad(tokens, width, fill=PAD), "controllers": controllers}


def batches(language: str, size: int, *, batch_size: int, seed: int) -> EndlessBatches:
    """Returns training batches of sentences of a language, of size S."""

    def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        rngs = map(np.random.default_rng, rng.integers(2**63, size=batch_size)[rows])
        sentences = [draw(language, rng, size) for rng in rngs]
        return encode(language, sentences, max_length(language, size))

    return EndlessBatches(make, batch_size, seed)


@functools.lru_cache(maxsize=16)
def held_out(language: str, split: str, size: int, count: int) -> tuple[Batch, float]:
    """Returns the first `count` sentences of a split, always the same.

    Returns:
        A batch, and -log p of its sentences under the source itself, in nats.
    """
    rng = held_out_rng(split, list(LANGUAGES).index(language), size)
    sentences = [draw(language, rng, size) for _ in range(count)]
    batch = encode(language, sentences, max_length(language, size))
    return batch, sum(sentence.nats for sentence in sentences)


def group(distance: np.ndarray) -> np.ndarray:
    """Returns the maximum distance of each distance's group: 2, 4, 8, 16, ..."""
    return np.maximum(_FIRST, 2 ** np.ceil(np.log2(distance)).astype(int))


def by_distance(correct: np.ndarray, distance: np.ndarray) -> dict[str, float]:
    """Accuracy of dependent words, overall and by distance to their controller.

    Args:
        correct: bool [N].
        distance: int [N], number of words from the controller, at least 1.

    Returns:
        Per cent: `accuracy`, and `accuracy_G` of each group of distances that occurs,
        from G / 2 + 1 to G words (1 and 2 for G = 2).
    """
    groups = group(distance)
    scores = {"accuracy": 100 * float(correct.mean())}
    for name in np.unique(groups):
        scores[f"accuracy_{name}"] = 100 * float(correct[groups == name].mean())
    return scores
