"""Stories of the twenty tasks, by number and split.

The split of a story depends on a hash of its statements, so no two splits share one.
Stories may repeat within a split: task 4 has only 480 different ones.

Differs from the published files: the stories are new, and no two splits share one.
"""

import functools
import random
import zlib
from collections.abc import Callable, Iterable

from tasks.common.splits import SPLITS
from tasks.questions.babi import moves, people, puzzles
from tasks.questions.babi.story import Lines, Story, facts

TASKS: dict[int, Callable[[Story], None]] = {
    1: moves.single_fact,
    2: moves.two_facts,
    3: moves.three_facts,
    4: puzzles.two_arguments,
    5: moves.three_arguments,
    6: moves.yes_no,
    7: moves.counting,
    8: moves.lists,
    9: people.negation,
    10: people.indefinite,
    11: people.coreference,
    12: people.conjunction,
    13: people.compound_coreference,
    14: people.time,
    15: puzzles.deduction,
    16: puzzles.induction,
    17: puzzles.positions,
    18: puzzles.sizes,
    19: puzzles.paths,
    20: puzzles.motives,
}
TEST_QUESTIONS = 1000  # the published number
# Hash modulo 100: each split has the values below its end, from the end before it.
_ENDS = {"train": 60, "validation": 70, "test": 100}


@functools.lru_cache(maxsize=128)
def stories(task: int, split: str, count: int) -> tuple[Lines, ...]:
    """Returns stories with a given number of questions in all, always the same ones.

    Args:
        task: a key of `TASKS`.
        split: "train", "validation" or "test".
        count: number of questions; the last story ends with the last of them.
    """
    rng = random.Random(f"{task} {split}")
    drawn: list[Lines] = []
    remaining = count
    while remaining:
        story = Story(rng)
        TASKS[task](story)
        lines = tuple(story.lines)
        if split_of(lines) != split:
            continue
        asked_lines = [n for n, line in enumerate(lines, 1) if line.answer]
        if len(asked_lines) > remaining:
            lines = lines[: asked_lines[remaining - 1]]
        remaining -= min(remaining, len(asked_lines))
        drawn.append(lines)
    return tuple(drawn)


def split_of(lines: Lines) -> str:
    """Returns the split that a story belongs to."""
    value = zlib.crc32(facts(lines).encode()) % 100
    return next(split for split in SPLITS if value < _ENDS[split])


def all_splits(task: int, questions: int) -> dict[str, Iterable[Lines]]:
    """Returns the stories of each split.

    Args:
        task: a key of `TASKS`.
        questions: number of questions, of which a tenth is for validation, the rest for
            training.
    """
    validation = max(1, questions // 10)
    return {
        "train": stories(task, "train", questions - validation),
        "validation": stories(task, "validation", validation),
        "test": stories(task, "test", TEST_QUESTIONS),
    }
