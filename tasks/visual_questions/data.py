"""Questions about images: generated scenes, easy-VQA, or files in the format of VQA.

*   `scenes`: see `tasks.visual_questions.scenes`; training is endless.
*   `easy`: 5,000 images of one shape and 48,248 questions with 13 answers, from the
    package easy-vqa. The last 400 training images are for validation.
*   `files`: for each split, the questions and annotations of VQA (Antol et al., 2015;
    Goyal et al., 2017) and the folder of the images, whose names end in their number.

The words are those of the training questions; the possible answers are the most
frequent ones of their annotators. Questions are in lower case, without punctuation.
Answers are in lower case, without articles and the marks that end words: "C++" and "C#"
are two answers.

Axes: B, N questions; K annotators; T words; M boxes; I, J rows and columns.
"""

import dataclasses
import functools
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from base import asset_files, storage
from base.errors import UserError, counted, parse_json
from tasks.common.batches import Batch, EndlessBatches, pad
from tasks.common.images import SUFFIXES, Photos, image_files
from tasks.common.packages import fetch
from tasks.common.splits import SPLITS, held_out_rng
from tasks.common.text import INNER, MARKS, fold, normal, words
from tasks.common.user_files import UserFiles
from tasks.common.vocabulary import UNK, Words, by_frequency
from tasks.visual_questions import scenes

SOURCES = ("scenes", "easy", "files")
EASY_SIZE = 64  # rows and columns of its images
_EASY_VALIDATION = 400  # images
_SEEDS = 2**63  # of scenes
_ARTICLES = {"a", "an", "the"}


@dataclasses.dataclass
class Questions(Sequence):
    """N questions about images, each with the answers of K annotators.

    A row is a dict of arrays, with the image; a slice is a list of rows.
    """

    texts: Sequence[str]
    answers: Sequence[Sequence[str]]
    types: Sequence[str]  # of the questions
    numbers: Sequence[int]  # of their images
    images: Sequence[np.ndarray]  # uint8 [I, J, 3], which may be read on access
    boxes: np.ndarray  # int [N, M, 4], see `tasks.visual_questions.scenes.Scene`
    objects: np.ndarray | None = None  # uint8 [N, I, J], as in `Scene`; None if unknown
    arrays: Batch = dataclasses.field(default_factory=dict)  # from `Vocabulary.encode`

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = {name: x[index] for name, x in self.arrays.items()}
        return row | {"image": self.images[self.numbers[index]]}

    def rows(self, index: np.ndarray) -> Batch:
        """Returns rows as a batch."""
        batch = {name: x[index] for name, x in self.arrays.items()}
        images = [self.images[self.numbers[i]] for i in index]
        return batch | {"image": np.stack(images)}


class Vocabulary(NamedTuple):
    """Words of questions, and possible answers."""

    words: Words
    answers: tuple[str, ...]

    def encode(self, questions: Questions, length: int) -> Batch:
        """Returns questions as arrays, without their images.

        Returns:
            int32 `question` [N, T], `answers` [N, K], -1 for answers that are not
            possible, and `boxes` [N, M, 4].
        """
        numbers = {answer: i for i, answer in enumerate(self.answers)}
        answers = [[numbers.get(x, -1) for x in each] for each in questions.answers]
        return {
            "question": pad([self.ids(x, length) for x in questions.texts], length),
            "answers": np.array(answers, np.int32),
            "boxes": questions.boxes.astype(np.int32),
        }

    def ids(self, text: str, length: int) -> list[int]:
        """Returns the ids of the first words of a question."""
        return self.words.encode(plain(text))[:-1][:length] or [UNK]


def plain(text: str) -> str:
    """Returns the words of a question in lower case, without punctuation."""
    return " ".join(words(fold(text), INNER))


def plain_answer(text: str) -> str:
    """Returns an answer in the form in which answers are compared.

    It is in lower case and normal form, without the marks that end words and without
    articles, unless nothing else is left. The official evaluation also replaces some
    contractions and number words.
    """
    whole = normal(fold(text)).split()
    unmarked = [word for each in whole if (word := each.rstrip(MARKS))] or whole
    return " ".join([word for word in unmarked if word not in _ARTICLES] or unmarked)


def build(questions: Questions | None, answers: int) -> Vocabulary:
    """Returns the vocabulary of training questions, or of scenes for None.

    `answers` is the maximum number of possible answers.
    """
    if questions is None:
        return Vocabulary(Words(scenes.WORDS), scenes.ANSWERS)
    of_texts = (word for text in questions.texts for word in text.split())
    of_annotators = (x for each in questions.answers for x in each if x)
    possible = by_frequency(of_annotators)[:answers]
    return Vocabulary(Words(by_frequency(of_texts)), tuple(possible))


class VisualData:
    """The questions of a run by split, read on first use.

    Args:
        config: the config.
        vocabulary: of a run; None to build it from the training questions.
        left_out: see `tasks.common.user_files.left_out`.
    """

    def __init__(
        self,
        config: ConfigDict,
        vocabulary: Vocabulary | None = None,
        left_out: Sequence[str] | None = None,
    ):
        self.config = config
        self.files = image_files(config.data.damaged, left_out)
        self.read = functools.cache(self._read)
        self.questions = functools.cache(self._questions)
        if vocabulary is None:
            is_endless = config.data.source == "scenes"
            train = None if is_endless else self.read("train")
            vocabulary = build(train, config.data.answers)
        self.vocabulary = vocabulary

    def _read(self, split: str) -> Questions:
        data = self.config.data
        if data.source == "easy":
            return easy(split)
        if data.source == "files":
            return read_files(data.files[split], split, data.size, self.files)
        rng = held_out_rng(split)
        return compose(
            rng.integers(_SEEDS, size=self.config.evaluation.questions), data.size
        )

    def write(self, folder: Path) -> None:
        """Writes the assets: the vocabulary, and a digest of a user's files."""
        data = self.config.data
        content = {
            "words": self.vocabulary.words.names[UNK + 1 :],
            "answers": self.vocabulary.answers,
        }
        text = json.dumps(content, ensure_ascii=False, indent=1)
        asset_files.write(folder / "vocabulary.json", text + "\n")
        if data.source == "files":
            named = any(data.files.test.values())
            splits = SPLITS if named else SPLITS[:-1]
            self.files.write(folder, (x for each in splits for x in self._used(each)))

    def _used(self, split: str) -> Iterable[tuple[Any, ...]]:
        """Image, split, type, question and answers of each of a user's questions."""
        part = self.read(split)
        columns = part.numbers, part.types, part.texts, part.answers
        for number, *values in zip(*columns, strict=True):
            yield part.images.paths[number], split, *values

    def _encoded(self, questions: Questions) -> Questions:
        length = self.config.data.max_length
        arrays = self.vocabulary.encode(questions, length)
        return dataclasses.replace(questions, arrays=arrays)

    def _questions(self, split: str) -> Questions:
        """Returns the first questions of an evaluation split."""
        whole, count = self.read(split), self.config.evaluation.questions
        names = "texts", "answers", "types", "numbers", "boxes"
        first = {name: getattr(whole, name)[:count] for name in names}
        return self._encoded(dataclasses.replace(whole, **first, objects=None))

    def batches(self) -> EndlessBatches:
        """Returns the training batches, drawn with replacement."""
        data = self.config.data
        if data.source == "scenes":

            def pick(seeds: np.ndarray) -> Batch:
                questions = self._encoded(compose(seeds, data.size))
                rows = questions.rows(np.arange(len(seeds)))
                return rows | {"objects": questions.objects}

            count = _SEEDS
        else:
            questions = self._encoded(self.read("train"))
            pick, count = questions.rows, len(questions)
        size = data.batch_size
        return EndlessBatches(
            lambda rng, index, rows: pick(rng.integers(count, size=size)[rows]),
            size,
            self.config.seed,
        )


def compose(seeds: np.ndarray, size: int) -> Questions:
    """Returns a scene with its question for each seed [N]."""
    drawn = [scenes.draw(np.random.default_rng(seed), size) for seed in seeds]
    images, texts, answers, types, boxes, objects = zip(*drawn, strict=True)
    answers = [[answer] for answer in answers]
    numbers = range(len(drawn))
    boxes, objects = np.stack(boxes), np.stack(objects)
    return Questions(texts, answers, types, numbers, images, boxes, objects)


def easy(split: str) -> Questions:
    """Returns the questions of easy-VQA."""
    path = fetch(
        "easy-vqa",
        "1.0",
        sha256="fcb51b309b78c7b00f97b64cdbcbcf5c105f94da1b39c0796cee5a787c4f650f",
        alternative="config.data.source=scenes needs no package",
    )
    return read_easy(path, split)


def read_easy(path: Path, split: str) -> Questions:
    """Reads a split of easy-VQA from its wheel."""
    from PIL import Image

    folder = f"easy_vqa/data/{'test' if split == 'test' else 'train'}"
    with zipfile.ZipFile(path) as wheel:
        entries = parse_json(wheel.read(f"{folder}/questions.json"))
        count = 1 + max(number for *_, number in entries)
        images = np.zeros((count, EASY_SIZE, EASY_SIZE, 3), np.uint8)
        for number, image in enumerate(images):
            content = io.BytesIO(wheel.read(f"{folder}/images/{number}.png"))
            image[:] = np.asarray(Image.open(content, formats=["PNG"]).convert("RGB"))
    first = count if split == "test" else count - _EASY_VALIDATION
    chosen = [x for x in entries if (x[2] >= first) == (split == "validation")]
    texts, answers, numbers = zip(*chosen, strict=True)
    texts = [plain(text) for text in texts]
    types = [_easy_type(text) for text in texts]
    none = np.zeros((len(texts), 1, 4), np.int32)
    return Questions(texts, [[x] for x in answers], types, numbers, images, none)


def _easy_type(text: str) -> str:
    if text.startswith("what"):
        return "colour" if "color" in text else "shape"
    return "exists"


def require(fields: Mapping[str, str], split: str) -> None:
    """Raises a UserError if `config.data.files.SPLIT` does not name all its files."""
    for field in ("questions", "annotations", "images"):
        if not fields[field]:
            raise UserError(f"config.data.files.{split}.{field} is missing")


def read_files(
    fields: Mapping[str, str], split: str, size: int, images: UserFiles
) -> Questions:
    """Reads questions and annotations in the format of VQA.

    Args:
        fields: paths of `questions`, {"questions": [{"question_id", "image_id",
            "question"}, ...]}, of `annotations`, {"annotations": [{"question_id",
            "answer_type", "answers": [{"answer"}, ...]}, ...]}, and of the folder of
            `images`, whose names end in the id of the image.
        split: the split.
        size: rows and columns of the images.
        images: those that are left out, with their questions.

    Raises:
        UserError: for a file that is not named, is missing or in another format, a
            question without an annotation or an image, a damaged image, or if all
            images or questions are left out.
    """
    require(fields, split)
    name = f"config.data.files.{split}"
    questions = _entries(fields["questions"], "questions", name)
    annotations = _entries(fields["annotations"], "annotations", name)
    folder = Path(fields["images"])
    if not os.path.isdir(folder):  # a path may be too long
        raise UserError(f"{name}.images is {str(folder)!r}: must be a folder")
    paths = {}
    left_out = {x for x in map(Path, images.left_out or ()) if x.parent == folder}
    for path in sorted({*folder.iterdir(), *left_out}):  # which may be removed
        is_image = path.suffix.lower() in SUFFIXES and not storage.is_of_system(path)
        if is_image and (digits := re.search(r"(\d+)$", path.stem)):
            paths[int(digits[1])] = path
    texts, answers, types, photos = [], [], [], []
    try:
        annotated = {x["question_id"]: x for x in annotations}
        for entry in questions:
            number, image = entry["question_id"], entry["image_id"]
            if number not in annotated:
                raise UserError(f"{name}.annotations: question {number} is missing")
            if image not in paths:
                raise UserError(f"{name}.images: {folder} has no image {image}")
            annotation = annotated[number]
            texts.append(plain(entry["question"]))
            answers.append([plain_answer(x["answer"]) for x in annotation["answers"]])
            types.append(annotation["answer_type"].replace("/", "_"))
            " ".join([*answers[-1], types[-1]]).encode()  # not a lone surrogate
            photos.append(paths[image])
    except (KeyError, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise UserError(f"{name}: not in the format of VQA ({error!r})") from None
    if not texts or len({len(each) for each in answers}) > 1:
        raise UserError(f"{name}: must have questions, with equally many answers each")
    images.check(filter(images.uses, photos), f"{name}.images")
    rows = zip(texts, answers, types, photos, strict=True)
    answered = [row for row in rows if any(row[1])]
    if without := len(texts) - len(answered):
        count = counted(without, "question")
        print(f"data: {split}: {count} without an answer left out", file=sys.stderr)
    if not answered:
        raise UserError(f"{name}.annotations: no question has an answer")
    used = [row for row in answered if images.uses(row[-1])]
    if not used:
        raise UserError(f"{name}.images: all images are left out")
    texts, answers, types, photos = map(list, zip(*used, strict=True))
    unique = list(dict.fromkeys(photos))
    index = {path: i for i, path in enumerate(unique)}
    none = np.zeros((len(texts), 1, 4), np.int32)
    numbers = [index[path] for path in photos]
    return Questions(texts, answers, types, numbers, Photos(unique, size), none)


def _entries(path: str, key: str, name: str) -> list[dict]:
    """The list under a key of a JSON file."""
    try:
        entries = parse_json(storage.read_regular(Path(path)))[key]
        if not isinstance(entries, list):
            raise TypeError(f"{key} is not a list")
        return entries
    except OSError as error:
        raise UserError(f"{name}.{key} is {path!r}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{name}.{key} is {path!r}: not in the format of VQA ({error!r})"
        ) from None


def load(folder: Path) -> Vocabulary:
    """Returns the vocabulary of a run from its assets."""
    content = parse_json((folder / "vocabulary.json").read_bytes())
    return Vocabulary(Words(content["words"]), tuple(content["answers"]))
