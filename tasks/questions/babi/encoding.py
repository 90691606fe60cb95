"""Stories as arrays: word ids, memories of statements, time indices.

Id 0 is nil, the padding of sentences and memories; words have the ids from 1.

Differs from the authors' code (Sukhbaatar et al., 2015): time indices are clipped to
one maximum for all tasks, where the code clips them to the number of slots of the task.

Axes: ... any batch; B batch; P models; Q questions; S statements of all stories; N
memory slots; J words of a sentence, padded; F supporting facts, padded; D distinct
statements, padded.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from base.errors import UserError
from tasks.common.batches import ALL, Batch, Rows, pad
from tasks.questions.babi.text import Lines, words


class Vocabulary:
    """Word ids: the positions of the words in a list, from 1."""

    def __init__(self, names: Sequence[str]):
        self.names = list(names)
        self._ids = {name: n for n, name in enumerate(self.names, 1)}

    @classmethod
    def of(cls, stories: Iterable[Lines]) -> "Vocabulary":
        """Returns the vocabulary of the sentences and answers of stories."""
        lines = [line for story in stories for line in story]
        names = {word for line in lines for word in words(line.text)}
        return cls(sorted(names | {line.answer for line in lines if line.answer}))

    def word(self, index: int) -> str:
        """Returns the word of an id; "" for nil or an id without a word."""
        return self.names[index - 1] if 0 < index <= len(self.names) else ""

    def encode(self, names: Iterable[str], place: str) -> list[int]:
        """Returns the ids of words.

        Raises:
            UserError: for a word that is not in the vocabulary; `place` names its text.
        """
        try:
            return [self._ids[name] for name in names]
        except KeyError as error:
            raise UserError(
                f"{place} has the word {error.args[0][:40]!r}, which is not in the "
                "vocabulary of the run"
            ) from None


@dataclasses.dataclass(frozen=True)
class Questions:
    """Questions about stories."""

    # int32 [S, J] word ids of the statements of all stories, in order
    statements: np.ndarray
    start: np.ndarray  # int32 [Q], row of the first statement of each question's story
    stop: np.ndarray  # int32 [Q], row after the last statement before each question
    question: np.ndarray  # int32 [Q, J] word ids
    answer: np.ndarray  # int32 [Q] word ids; 0 for an answer without an id
    facts: np.ndarray  # int32 [Q, F] rows of the supporting facts, -1 at padding

    def __len__(self) -> int:
        return len(self.answer)

    @property
    def longest(self) -> int:
        """The maximum number of statements before a question."""
        return int((self.stop - self.start).max())

    def batch(
        self,
        index: np.ndarray,
        slots: int,
        *,
        memory: int,
        rng: np.random.Generator | None = None,
        noise: float = 0.0,
        rows: Rows = ALL,
    ) -> Batch:
        """Returns questions with the latest statements of their stories.

        Slots follow the order of the story, with padding at the end. Time indices count
        back from the question; the last statement before it has index 1. With `noise`,
        up to ceil(noise n) indices, for n statements, are skipped at random (Sukhbaatar
        et al., 2015, section 4.1): the order is kept, the distances grow.

        Args:
            index: int [...] numbers of questions.
            slots: N, at most `memory`.
            memory: maximum time index; greater ones are clipped to it.
            rng: random generator of the noise.
            noise: maximum number of skipped indices, as a share of the statements.
            rows: elements to return, on the first axis of `index`.

        Returns:
            int32 `sentences` [..., N, J], `times` [..., N] with 0 at padding,
            `question` [..., J], `answer` [...], and `facts` [..., F], slots of the
            supporting facts, -1 for facts outside of the memory.
        """
        stop = self.stop[index]
        first = np.maximum(self.start[index], stop - slots)
        count = (stop - first)[..., None]  # [..., 1]
        if noise:
            blank = rng.integers(0, np.ceil(noise * count).astype(int) + 1)
            positions = _positions(rng, count, count + blank, slots, rows)
        index, first, count = index[rows], first[rows], count[rows]
        slot = np.arange(slots)
        valid = slot < count
        numbers = np.where(valid, first[..., None] + slot, 0)
        sentences = self.statements[numbers] * valid[..., None]
        times = np.where(valid, count - slot, 0)
        if noise:
            times = np.take_along_axis(positions, np.maximum(times - 1, 0), -1) * valid
        facts = self.facts[index] - first[..., None]
        return {
            "sentences": sentences.astype(np.int32),
            "times": np.minimum(times, memory).astype(np.int32),
            "question": self.question[index],
            "answer": self.answer[index],
            "facts": np.maximum(facts, -1).astype(np.int32),
        }


def _positions(rng, count, total, slots, rows) -> np.ndarray:
    """Sorted random subsets of 1..total, with `count` elements each, padded to N."""
    numbers = np.arange(int(total.max(initial=slots)))
    keys = rng.random((*count.shape[:-1], len(numbers)))[rows]
    count, total = count[rows], total[rows]
    keys = np.where(numbers < total, keys, 2.0)
    bound = np.take_along_axis(np.sort(keys, -1), count - 1, -1)
    return np.sort(np.where(keys <= bound, numbers + 1, 10**6), -1)[..., :slots]


def encode(
    stories: Iterable[Lines], vocabulary: Vocabulary, name: str = "the story"
) -> Questions:
    """Returns the questions of stories, one at least, as arrays.

    The vocabulary has all their words; an answer "?" needs no id.

    Raises:
        UserError: for a word that is not in the vocabulary.
    """
    statements: list[list[int]] = []
    questions, start, stop, answers, facts = [], [], [], [], []
    for lines in stories:
        first, rows = len(statements), {}
        for number, line in enumerate(lines, 1):
            ids = vocabulary.encode(words(line.text), name)
            if not line.answer:
                rows[number] = len(statements)
                statements.append(ids)
                continue
            questions.append(ids)
            start.append(first)
            stop.append(len(statements))
            names = [line.answer] if line.answer != "?" else []
            answers.append(vocabulary.encode(names, name) or [0])
            facts.append([rows[n] for n in line.support])
    return Questions(
        pad(statements, 1),
        np.array(start, np.int32),
        np.array(stop, np.int32),
        pad(questions, 1),
        np.array(answers, np.int32)[:, 0],
        pad(facts, 1, fill=-1),
    )


def concatenate(parts: Sequence[Questions]) -> Questions:
    """Returns all questions of several sets as one."""
    rows = np.cumsum([0, *(len(part.statements) for part in parts)])
    moved = [
        dataclasses.replace(
            part,
            start=part.start + n,
            stop=part.stop + n,
            facts=np.where(part.facts >= 0, part.facts + n, -1),
        )
        for part, n in zip(same_widths(parts), rows[:-1], strict=True)
    ]
    names = [field.name for field in dataclasses.fields(Questions)]
    return Questions(*(np.concatenate([getattr(x, n) for x in moved]) for n in names))


def deduplicate(
    parts: Sequence[Questions], limit: int
) -> tuple[list[Questions], np.ndarray | None]:
    """Replaces statements by numbers of distinct statements, if these are few.

    A model then embeds each distinct statement once, and not once for each slot. If it
    did not, a step on task 2 would take 1.9 times as long, and one on all tasks 1.3.

    Args:
        parts: questions of P tasks.
        limit: maximum number of distinct statements of a task.

    Returns:
        Questions whose `statements` [S, 1] are numbers, with 0 for none; and the word
        ids [P, D, J] of all numbers. `parts` and None if a task has more.
    """
    tables = [np.unique(x.statements, axis=0, return_inverse=True) for x in parts]
    count, width = (max(x.shape[axis] for x, _ in tables) for axis in (0, 1))
    if count > limit:
        return list(parts), None
    texts = np.zeros((len(parts), count + 1, width), np.int32)
    for text, (distinct, _) in zip(texts, tables, strict=True):
        text[1 : 1 + len(distinct), : distinct.shape[1]] = distinct
    numbers = [number.reshape(-1, 1).astype(np.int32) + 1 for _, number in tables]
    return [
        dataclasses.replace(part, statements=number)
        for part, number in zip(parts, numbers, strict=True)
    ], texts


def same_widths(parts: Sequence[Questions]) -> list[Questions]:
    """Questions whose arrays have equal numbers of words and of facts."""
    for name, fill in ("statements", 0), ("question", 0), ("facts", -1):
        arrays = [getattr(part, name) for part in parts]
        width = max(x.shape[-1] for x in arrays)
        arrays = [
            np.pad(x, ((0, 0), (0, width - x.shape[-1])), constant_values=fill)
            for x in arrays
        ]
        pairs = zip(parts, arrays, strict=True)
        parts = [dataclasses.replace(part, **{name: x}) for part, x in pairs]
    return list(parts)
