"""Labelled sentences and pairs of sentences for classification.

| source | texts | labels |
|---|---|---|
| reviews | 10,072 snippets of film reviews (Hutto and Gilbert 2014) | two |
| entailment | generated pairs, see `tasks.sentences.entailment` | three |
| files | a user's lines, with tabs or in SNLI's JSON format, see `parse` | any |

The reviews are those with a mean rating, by twenty readers on a scale from -4 to 4, of
at least 0.5 or at most -0.5; the 10,043 of the authors leave out those at the bounds.
A batch is a dict of int32 `first` [B, S], for pairs also `second` [B, T], padded with
PAD, and `label` [B].

Axes: B batch; S, T tokens.
"""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from base import asset_files, storage
from base.errors import UserError, parse_json
from tasks.common.batches import Batch, EndlessBatches, pad, take
from tasks.common.packages import fetch
from tasks.common.splits import EVALUATION_SPLITS, SPLITS, read_splits
from tasks.common.text import normal as normal_form
from tasks.common.user_files import filled_lines, read_text
from tasks.common.vocabulary import EOS, PAD, Words, by_frequency
from tasks.language.text_data import normal_lines
from tasks.sentences import entailment

SOURCES = ("reviews", "entailment", "files")
_PACKAGE, _VERSION = "vaderSentiment", "0.5"
_SHA256 = "5d97c37f3ef6e24eef331122e055dbedafeb6a56abfce0608b326701116ea49a"
_ALTERNATIVE = "config.data.source=files reads your own sentences"
_RATED = 0.5  # minimum absolute rating of a review
_CONTENT = (
    "lines LABEL<tab>TEXT, of LABEL<tab>TEXT<tab>TEXT, or of JSON lines in the format "
    "of SNLI"
)
_STEPS = 300  # of gradient descent, of the logistic regression
_HELD_OUT = 1000  # examples of validation and of test

Example = tuple[str, ...]  # label and one or two texts
Splits = Mapping[str, Sequence[Example]]


def normal(text: str) -> str:
    """Returns a text in lower case, with spaces between its tokens."""
    return " ".join(normal_lines(text))


def read(source: str, files: Mapping[str, str], examples: int) -> dict[str, list]:
    """Returns the examples of each split.

    Args:
        source: one of `SOURCES`.
        files: path of each split's file for "files"; "" for none. A split
            without a file takes the last tenth of the remaining training examples,
            which are shuffled first.
        examples: number of training pairs of "entailment".

    Raises:
        UserError: if the package cannot be downloaded, or a file cannot be read.
    """
    if source == "entailment":
        counts = dict.fromkeys(EVALUATION_SPLITS, min(examples, _HELD_OUT))
        counts |= {"train": examples}
        return {split: entailment.pairs(split, counts[split]) for split in SPLITS}
    return _reviews() if source == "reviews" else _files(files)


def _reviews() -> dict[str, list[Example]]:
    path = fetch(
        _PACKAGE, _VERSION, sha256=_SHA256, kind="source", alternative=_ALTERNATIVE
    )
    folder = "hutto_ICWSM_2014"
    with zipfile.ZipFile(path) as package:
        name = f"{_PACKAGE}-{_VERSION}/additional_resources/{folder}.tar.gz"
        with tarfile.open(fileobj=io.BytesIO(package.read(name))) as archive:
            file = archive.extractfile(f"{folder}/movieReviewSnippets_GroundTruth.txt")
            text = file.read().decode("utf-8", "replace")
    examples = []
    for line in storage.lines(text, name):
        _, rating, text = line.split("\t")
        if abs(float(rating)) >= _RATED:
            label = "positive" if float(rating) > 0 else "negative"
            examples.append((label, normal(text)))
    order = np.random.default_rng(0).permutation(len(examples))
    shuffled = [examples[i] for i in order]
    return {
        "train": shuffled[2 * _HELD_OUT :],
        "validation": shuffled[:_HELD_OUT],
        "test": shuffled[_HELD_OUT : 2 * _HELD_OUT],
    }


def _files(files: Mapping[str, str]) -> dict[str, list[Example]]:
    splits = read_splits(files, _read_file, _CONTENT, shuffle=True, unit="line")
    if len({label for label, *_ in splits["train"]}) < 2:
        raise UserError(
            f"config.data.files.train: {files['train']} has a single label: must have "
            "two or more"
        )
    kinds = {len(example) for part in splits.values() for example in part}
    if len(kinds) > 1:
        raise UserError("config.data.files have sentences and pairs: must be the same")
    return splits


def _read_file(path: Path, name: str) -> list[Example]:
    examples = []
    for number, line in filled_lines(read_text(path, name), name):
        example = parse(line, f"{name}, line {number}")
        undecided = _is_json(line) and example[0] == "-"  # SNLI: no majority
        if not undecided:
            examples.append(example)
    if not examples:
        raise UserError(f"{name}: must have at least one example")
    return examples


def parse(line: str, name: str) -> Example:
    """Returns the example of a line, for errors a `name`.

    The line is "LABEL<tab>TEXT", "LABEL<tab>TEXT<tab>TEXT", or a JSON object with the
    fields `gold_label`, `sentence1` and `sentence2` of SNLI (Bowman et al. 2015).

    Raises:
        UserError: for a line in neither format.
    """
    is_json = _is_json(line)
    try:
        fields = _snli_fields(line) if is_json else line.split("\t")
        label, *texts = (normal_form(field) for field in fields)
        if not label or len(texts) not in (1, 2) or not all(texts):
            raise ValueError("an empty field, or another number of fields")
        return (label, *map(normal, texts))
    except (ValueError, KeyError, AttributeError):
        accepted = (
            "a JSON object with texts gold_label, sentence1 and sentence2, not empty"
            if is_json
            else "LABEL<tab>TEXT, LABEL<tab>TEXT<tab>TEXT, or JSON in SNLI's format"
        )
        raise UserError(f"{name}: must be {accepted}") from None


def _snli_fields(line: str) -> list[str]:
    values = parse_json(line)
    fields = [values[name] for name in ("gold_label", "sentence1", "sentence2")]
    for field in fields:
        field.encode("utf-8")  # fails for half of a character, which JSON can escape
    return fields


def _is_json(line: str) -> bool:
    return line.lstrip().startswith("{")


class Sentences(NamedTuple):
    """The examples and the vocabulary of a run."""

    words: Words  # the vocabulary, of the training texts
    labels: tuple[str, ...]  # the labels, in order of their numbers
    splits: Splits  # examples by split

    @property
    def paired(self) -> bool:
        """True if an example has two texts."""
        return len(self.splits["train"][0]) == 3

    def encode(self, examples: Sequence[Example], length: int) -> Batch:
        """Returns B examples as a batch; cuts texts of more than S = T tokens."""
        batch = {
            field: pad([self.ids(x[i], length) for x in examples], length, fill=PAD)
            for i, field in enumerate(("first", "second")[: 1 + self.paired], 1)
        }
        numbers = [self.labels.index(example[0]) for example in examples]
        return batch | {"label": np.array(numbers, np.int32)}

    def ids(self, text: str, length: int) -> list[int]:
        """Returns the ids of a text without EOS, or EOS alone if it is empty."""
        return self.words.encode(text)[:-1][:length] or [EOS]


def create(splits: Splits, folder: Path, *, vocab_size: int) -> Sentences:
    """Returns the sentences of a new run, and writes its assets to `folder`.

    The vocabulary has the most frequent words of training, at most `vocab_size` ids.

    Raises:
        UserError: if a label is only in an evaluation split.
    """
    labels = tuple(sorted({example[0] for example in splits["train"]}))
    for split in EVALUATION_SPLITS:
        for example in splits[split]:
            if example[0] not in labels:
                raise UserError(
                    f"the {split} split has the label {example[0]!r}: must be one of "
                    f"the training labels, {', '.join(labels)}"
                )
    texts = (text for _, *pair in splits["train"] for text in pair)
    words = by_frequency(word for text in texts for word in text.split())
    names = words[: vocab_size - 4]
    assets = {"words": names, "labels": labels, "splits": splits}
    content = json.dumps(assets, ensure_ascii=False)
    asset_files.write(folder / "sentences.json", content)
    return Sentences(Words(names), labels, splits)


def load(folder: Path) -> Sentences:
    """Returns the sentences of a run from its assets."""
    assets = parse_json((folder / "sentences.json").read_bytes())
    splits = {split: list(map(tuple, assets["splits"][split])) for split in SPLITS}
    return Sentences(Words(assets["words"]), tuple(assets["labels"]), splits)


def batches(
    sentences: Sentences, length: int, *, batch_size: int, seed: int
) -> EndlessBatches:
    """Returns training batches, shuffled anew in each epoch; see `Sentences.encode`."""
    data = sentences.encode(sentences.splits["train"], length)
    count = len(data["label"])

    def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        numbers = index * batch_size + rows
        examples = np.empty(len(rows), int)
        for epoch in np.unique(numbers // count):
            order = np.random.default_rng((seed, epoch, 1)).permutation(count)
            chosen = numbers // count == epoch
            examples[chosen] = order[numbers[chosen] % count]
        return take(data, examples)

    return EndlessBatches(make, batch_size, seed)


def tfidf_accuracy(sentences: Sentences, split: str) -> float:
    """Accuracy of a logistic regression on TF-IDF vectors, in per cent.

    The bags of words of two texts are concatenated. Vectors have norm 1; the penalty
    |w|^2 / 2 is added to the summed training loss, as in scikit-learn with C = 1.
    """
    train = _bags(sentences, "train")
    idf = np.log((1 + len(train)) / (1 + (train > 0).sum(0))) + 1

    def vectors(bags):
        weighed = bags * idf
        return weighed / np.maximum(np.linalg.norm(weighed, axis=1), 1e-9)[:, None]

    def targets(split: str) -> np.ndarray:
        examples = sentences.splits[split]
        return np.array([sentences.labels.index(example[0]) for example in examples])

    x = vectors(train)
    y = np.eye(len(sentences.labels), dtype=np.float32)[targets("train")]
    w, b = np.zeros((x.shape[1], y.shape[1]), np.float32), np.zeros(y.shape[1])
    momentum = np.zeros_like(w)
    for _ in range(_STEPS):
        logits = x @ w + b
        p = np.exp(logits - logits.max(1, keepdims=True))
        error = p / p.sum(1, keepdims=True) - y
        momentum = 0.9 * momentum + (x.T @ error + w) / len(x)
        w -= 2 * momentum
        b -= 0.5 * error.mean(0)
    answers = (vectors(_bags(sentences, split)) @ w + b).argmax(1)
    return 100 * float((answers == targets(split)).mean())


def _bags(sentences: Sentences, split: str) -> np.ndarray:
    examples, size = sentences.splits[split], sentences.words.size
    bags = np.zeros((len(examples), size * (1 + sentences.paired)), np.float32)
    for row, (_, *texts) in enumerate(examples):
        for number, text in enumerate(texts):
            ids = np.array(sentences.ids(text, len(text) + 1))
            np.add.at(bags[row], ids + number * size, 1)
    return bags
