"""Vocabularies and questions of a run: generated tasks, or a user's stories.

A run directory keeps its vocabularies, and copies of a user's stories, in `assets/`.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from base import asset_files, storage
from base.errors import WRITTEN_AGAIN, UserError, parse_json
from tasks.common.splits import SPLITS, read_splits
from tasks.questions.babi import generator, text
from tasks.questions.babi.encoding import Questions, Vocabulary, encode
from tasks.questions.babi.story import Lines

_FILE = "vocabularies.json"
_CONTENT = "stories in the bAbI format"
OWN_STORIES = 0  # task number of a user's stories

Splits = Mapping[int, Mapping[str, Iterable[Lines]]]  # stories by task and split


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
        for task, splits in self.stories.items():
            if split not in splits:
                raise UserError(
                    f"config.data.files.{split} is not set: there are no questions for "
                    f"--split={split}"
                )
            name = f"task {task}" if task else f"config.data.files.{split}"
            parts[task] = encode(splits[split], self.vocabularies[task], name)
        return parts


def generated(tasks: Sequence[int], questions: int) -> Splits:
    """Returns the stories of generated tasks; see `generator.all_splits`."""
    return {task: generator.all_splits(task, questions) for task in tasks}


def from_files(files: Mapping[str, str]) -> Splits:
    """Reads a user's stories.

    Args:
        files: path of each split; "" for none. Without a validation file, the last
            tenth of the training stories is for validation. Stories without a
            question are left out.

    Raises:
        UserError: for a file that is missing or not in the format of `text`.
    """

    def parse(content: str, name: str) -> list[Lines]:
        stories = text.read(content, name)
        return [x for x in stories if any(line.answer for line in x)]

    splits = read_splits(files, parse, _CONTENT, taken=("validation",))
    if not splits["train"]:
        raise UserError(
            f"config.data.files.train: {files['train']} has 1 story with a "
            "question: must have at least 2 without config.data.files.validation"
        )
    return {OWN_STORIES: splits}


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

    Raises:
        UserError: for assets that are missing or damaged.
    """
    folder = workdir / "assets"
    try:
        names = parse_json((folder / _FILE).read_text("utf-8"))
        vocabularies = {int(task): Vocabulary(each) for task, each in names.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f"{folder / _FILE} cannot be read ({type(error).__name__}): {WRITTEN_AGAIN}"
        ) from None
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
