"""Stories of a run, generated or a user's, and its vocabularies.

A generated story's split depends on a hash of its statements, so no two splits share
one, unlike in the published files. Stories may repeat within a split: task 4 has only
480 different ones. A run directory keeps its vocabularies, and copies of a user's
stories, in `assets/`.
"""

import dataclasses
import functools
import json
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from base import asset_files, storage
from base.errors import UserError, parse_json
from tasks.common.splits import SPLITS, read_splits
from tasks.common.user_files import read_text
from tasks.questions.babi import moves, people, puzzles, text
from tasks.questions.babi.encoding import Questions, Vocabulary, encode
from tasks.questions.babi.text import Lines, Story, facts

Splits = Mapping[int, Mapping[str, Iterable[Lines]]]  # stories by task and split

_FILE = "vocabularies.json"
_CONTENT = "stories in the bAbI format"
OWN_STORIES = 0  # task number of a user's stories
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
def generate(task: int, split: str, count: int) -> tuple[Lines, ...]:
    """Returns stories of one of `TASKS` with `count` questions in all.

    They are always the same ones; the last story ends with the last question.
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


def generated(tasks: Iterable[int], questions: int) -> Splits:
    """Returns the stories of some of `TASKS`, by task and split.

    A tenth of the questions of a task is for validation, the rest for training.
    """
    validation = max(1, questions // 10)
    counts = {
        "train": questions - validation,
        "validation": validation,
        "test": TEST_QUESTIONS,
    }
    return {
        task: {split: generate(task, split, n) for split, n in counts.items()}
        for task in tasks
    }


@dataclasses.dataclass(frozen=True)
class Source:
    """Stories of the tasks of a run."""

    stories: Splits  # stories by task and split
    # vocabulary of each task; the same for all in joint training
    vocabularies: Mapping[int, Vocabulary]

    @property
    def vocab_size(self) -> int:
        """The maximum number of words of a vocabulary, with nil."""
        return 1 + max(len(each.names) for each in self.vocabularies.values())

    def questions(self, split: str) -> dict[int, Questions]:
        """Returns the questions of a split by task.

        Raises:
            UserError: if a user's stories lack the split, or for an unknown word.
        """
        parts = {}
        for task, stories in self.of_split(split).items():
            name = f"task {task}" if task else f"config.data.files.{split}"
            parts[task] = encode(stories, self.vocabularies[task], name)
        return parts

    def of_split(self, split: str) -> dict[int, Sequence[Lines]]:
        """Returns the stories of a split by task.

        Raises:
            UserError: if a user's stories lack the split.
        """
        if any(split not in splits for splits in self.stories.values()):
            raise UserError(
                f"config.data.files.{split} is not set: there are no questions for "
                f"--split={split}"
            )
        return {task: splits[split] for task, splits in self.stories.items()}


def from_files(files: Mapping[str, str]) -> Splits:
    """Reads a user's stories.

    Args:
        files: path of each split; "" for none. Without a validation file, the last
            tenth of the training stories is for validation. Stories without a
            question are left out.

    Raises:
        UserError: for a file that is missing or not in the format of `text`.
    """

    def read(path: Path, name: str) -> list[Lines]:
        stories = text.read(read_text(path, name), name)
        return [x for x in stories if any(line.answer for line in x)]

    unit, taken = "story with a question", ("validation",)
    return {OWN_STORIES: read_splits(files, read, _CONTENT, unit=unit, taken=taken)}


def create(stories: Splits, workdir: Path, *, joint: bool) -> Source:
    """Returns the source of a new run, and writes its assets.

    In joint training all tasks share a vocabulary.
    """
    by_task = {
        task: [story for part in splits.values() for story in part]
        for task, splits in stories.items()
    }
    if joint:
        everything = [story for part in by_task.values() for story in part]
        by_task = dict.fromkeys(by_task, everything)
    vocabularies = {task: Vocabulary.of(part) for task, part in by_task.items()}
    names = {str(task): each.names for task, each in vocabularies.items()}
    folder = workdir / "assets"
    for split, part in stories.get(OWN_STORIES, {}).items():
        asset_files.write(folder / f"{split}.txt", text.write(part))
    asset_files.write(folder / _FILE, json.dumps(names) + "\n")
    return Source(stories, vocabularies)


def load(stories: Splits | None, workdir: Path) -> Source:
    """Returns the source of a run from its assets.

    Generated stories are given; a user's stories are assets.
    """
    folder = workdir / "assets"
    names = parse_json((folder / _FILE).read_bytes())
    vocabularies = {int(task): Vocabulary(each) for task, each in names.items()}
    if stories is None:
        paths = {split: folder / f"{split}.txt" for split in SPLITS}
        stories = {
            OWN_STORIES: {
                split: text.read(storage.read_text(path), str(path))
                for split, path in paths.items()
                if storage.is_file(path, str(path))
            }
        }
    return Source(stories, vocabularies)
