"""Parallel text: aligned sentence pairs in splits without leakage.

Corpora by name, each a module of `data.corpora`:

*   `homeassistant`: the interface strings of Home Assistant, split by component.
*   `libreoffice`: paragraphs of the LibreOffice help, split by help page.
*   `files`: the user's aligned text, one sentence per line.
*   `tfds:NAME`: a translation data set of TensorFlow Datasets.
*   `numbers`: English and German number words, generated.
*   `reversal`: random letters and their reversal, generated.

Corpora without splits are split by groups (component, page or number) instead of
sentences, since near-duplicates are usually in the same group. No pair is in two splits
or twice in training. A test source may still be in training with another translation or
a changed word; `leakage` measures how often.

In `homeassistant` and `libreoffice`, pairs with equal sides of three or more words are
dropped: they are product names or untranslated. Shorter equal pairs are kept: they are
mostly words that both languages share, such as "Display".
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import storage
from data.corpora import home_assistant, libreoffice
from data.corpora.files import read_files
from data.corpora.numbers import number_records
from data.corpora.records import TRAINING, Pair, Record
from data.corpora.reversal import reversal_records
from data.corpora.tfds import read_tfds
from data.splits import EVALUATION_SPLITS, SPLITS
from errors import UserError

HELD_OUT = (
    0.07  # fraction of a corpus for validation, and for test, if it has no splits
)


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs of one language pair.

    Attributes:
        train: pairs to train on.
        validation: pairs to choose settings and checkpoints with.
        test: pairs for reported results.
        leakage: overlap of the test split with training; see `leakage`.
        digest: SHA-256 of the three splits.
    """

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    leakage: dict[str, float]
    digest: str

    def __str__(self) -> str:
        """Returns the sizes and the leakage in one line, for the log."""
        return (
            f"{len(self.train):,} / {len(self.validation):,} / {len(self.test):,} "
            f"pairs for training, validation, test; of the test sources, "
            f"{self.leakage['verbatim']:.1%} are in training and "
            f"{self.leakage['near']:.1%} have a near-duplicate in training"
        )


def load(
    corpus: str,
    source_language: str,
    target_language: str,
    *,
    extra: Sequence[str] = (),
    min_words: int = 3,
    max_words: int = 40,
    train_min_words: int = 1,
    made_up_names: float = 0.0,
    files: Mapping[str, str] | None = None,
    split_seed: int = 0,
) -> Corpus:
    """Reads a corpus; downloads and converts it on first use.

    Args:
        corpus: name of the corpus; see the module's docstring.
        source_language: source language, such as "en".
        target_language: target language, such as "de".
        extra: names of corpora to add to training, with the pairs of all their splits.
        min_words: minimum number of words of a source in validation and test.
        max_words: maximum number of words of either side. Validation and test splits
            that are part of the corpus are not limited: a published test set stays
            complete.
        train_min_words: minimum number of words of a source in training.
        made_up_names: fraction of the training pairs with names in which the names are
            replaced; see `make_up_names`.
        files: files of the corpus `files`; see `data.corpora.files.read_files`. A
            missing "validation" or "test" is taken from the end of "train".
        split_seed: seed that selects the groups for validation and test, if the corpus
            has no splits.

    Returns:
        The splits.

    Raises:
        UserError: if the data cannot be found, downloaded or read.
    """
    languages = source_language, target_language
    if source_language == target_language:
        raise UserError(
            f"config.data.source_language is {source_language!r}: must differ from "
            "config.data.target_language"
        )
    splits = _splits(corpus, languages, files, split_seed, (min_words, max_words))
    train = splits["train"]
    for name in extra:
        whole = _splits(name, languages, files, split_seed, (1, max_words))
        train = [*train, *(pair for split in SPLITS for pair in whole[split])]
    test = splits["test"]
    validation = _without(splits["validation"], test)
    train = _within(train, train_min_words, max_words)
    count, train = len(train), _without(dict.fromkeys(train), [*validation, *test])
    if count and not train:
        raise UserError(
            f"corpus {corpus}: all {count} training pairs are in validation or test: "
            "at least one must not be"
        )
    for name, pairs in zip(SPLITS, (train, validation, test), strict=True):
        if not pairs:
            raise UserError(
                f"corpus {corpus} {source_language}-{target_language} has no {name} "
                f"pairs (of {min_words} to {max_words} words, "
                f"{train_min_words} to {max_words} in training)"
            )
    leaked = leakage(train, test)
    train = make_up_names(train, made_up_names)
    content = json.dumps([train, validation, test], ensure_ascii=False)
    return Corpus(train, validation, test, leaked, storage.sha256(content.encode()))


def make_up_names(pairs: Sequence[Pair], share: float, seed: int = 0) -> list[Pair]:
    """Replaces names that occur in both source and target by made-up names.

    New text has names that are not in training and must be copied; training with names
    too rare to memorise teaches the model to copy. A name is a word on both sides with
    a capital letter or an underscore, or after a brace; a made-up name is the first
    half of one name and the second half of another.

    Args:
        pairs: sentence pairs.
        share: fraction, in [0, 1], of the pairs with names in which the names are
            replaced.
        seed: seed that selects pairs and names.

    Returns:
        As many pairs, in the same order.

    Raises:
        UserError: if `share` is not in [0, 1].
    """
    if not 0 <= share <= 1:
        raise UserError(f"config.data.made_up_names is {share}: must be in [0, 1]")
    names = [sorted(_names(source) & _names(target)) for source, target in pairs]
    rng = np.random.default_rng(seed)
    pools = defaultdict(set)  # placeholders such as {host_name} have their own pool
    for name in {name for copied in names for name in copied}:
        pools[name.islower()].add(name)
    pools = {lower: sorted(pool) for lower, pool in pools.items()}

    def make_up(name: str) -> str:
        first, second = rng.choice(pools[name.islower()], 2)
        return first[: (len(first) + 1) // 2] + second[len(second) // 2 :]

    def rename(pair: Pair, copied: Sequence[str]) -> Pair:
        table = {name: make_up(name) for name in copied}
        source, target = (
            re.sub(r"\w+", lambda word: table.get(word[0], word[0]), text)
            for text in pair
        )
        return source, target

    return [
        rename(pair, copied) if copied and rng.random() < share else pair
        for pair, copied in zip(pairs, names, strict=True)
    ]


def _names(text: str) -> set[str]:
    """Words of at least three characters that look like names or placeholders."""
    words = re.findall(r"{?\w{3,}", text)
    return {
        word.removeprefix("{")
        for word in words
        if re.search(r"[^\W\d_]", word)  # a letter
        and (re.search(r"[{_]", word) or word != word.lower())
    }


def leakage(train: Iterable[Pair], test: Sequence[Pair]) -> dict[str, float]:
    """Measures the overlap of a test set with training.

    Returns:
        Fractions of the test pairs. `verbatim`: the source is also in training. `near`:
        the Jaccard similarity between the sets of words (in lower case, digits as 0) of
        the source and of a training source is at least 0.8. `near` includes `verbatim`.
    """
    sources = {source for source, _ in train}
    sets = sorted({_words(source) for source in sources}, key=sorted)
    sets_with = defaultdict(list)
    for n, words in enumerate(sets):
        for word in words:
            sets_with[word].append(n)

    def is_near(words: frozenset[str]) -> bool:
        # A similar set lacks at most 20 % of the words. Looking up more than 20 % of
        # them, the rarest first, therefore finds every similar set.
        rarest = sorted(words, key=lambda word: len(sets_with.get(word, ())))
        for word in rarest[: len(words) - -(-4 * len(words) // 5) + 1]:
            for n in sets_with.get(word, ()):
                if 5 * len(words & sets[n]) >= 4 * len(words | sets[n]):
                    return True
        return False

    near = sum(source in sources or is_near(_words(source)) for source, _ in test)
    verbatim = sum(source in sources for source, _ in test)
    return {"verbatim": verbatim / len(test), "near": near / len(test)}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", re.sub(r"\d", "0", text.lower())))


def _without(pairs: Iterable[Pair], excluded: Iterable[Pair]) -> list[Pair]:
    excluded = set(excluded)
    return [pair for pair in pairs if pair not in excluded]


def _within(pairs: Iterable[Pair], minimum: int, maximum: int) -> list[Pair]:
    return [
        (source, target)
        for source, target in pairs
        if minimum <= len(source.split()) <= maximum and len(target.split()) <= maximum
    ]


def _splits(
    corpus: str,
    languages: tuple[str, str],
    files: Mapping[str, str] | None,
    seed: int,
    limits: tuple[int, int],
) -> dict[str, list[Pair]]:
    if corpus == "files":
        return _hold_out(read_files(files or {}, languages), limits)
    if corpus.startswith("tfds:"):
        return _hold_out(read_tfds(corpus.removeprefix("tfds:"), languages), limits)
    if corpus == "numbers":
        return _split_groups(number_records(languages, seed), seed, limits)
    if corpus == "reversal":
        return _split_groups(reversal_records(limits, seed), seed, limits)
    if corpus == "homeassistant":
        records = home_assistant.records(*languages)
    elif corpus == "libreoffice":
        records = libreoffice.records(*languages)
    else:
        raise UserError(
            f"config.data.corpus is {corpus!r}: must be homeassistant, libreoffice, "
            "files, tfds:NAME, numbers or reversal"
        )
    records = [
        (group, source, target)
        for group, source, target in records
        if source != target or len(source.split()) < 3
    ]
    return _split_groups(records, seed, limits)


def _split_groups(
    records: Sequence[Record], seed: int, limits: tuple[int, int]
) -> dict[str, list[Pair]]:
    """Fills test and validation with whole groups, in the order of a hash.

    Pairs of `TRAINING` groups are only in training.
    """
    groups = defaultdict(list)
    for group, source, target in records:
        groups[group].append((source, target))
    splits: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    training = {g: groups.pop(g) for g in list(groups) if g.startswith(TRAINING)}
    held_out = set()
    size = HELD_OUT * sum(map(len, groups.values()))
    for group in sorted(groups, key=lambda g: storage.sha256(f"{seed}:{g}".encode())):
        unfilled = (name for name in ("test", "validation") if len(splits[name]) < size)
        name = next(unfilled, "train")
        splits[name] += groups[group]
        if name != "train":
            held_out.add(group)
    for group, pairs in training.items():
        if held_out.isdisjoint(group.split(TRAINING)):
            splits["train"] += pairs
    for name in EVALUATION_SPLITS:
        splits[name] = _within(splits[name], *limits)
    return splits


def _hold_out(
    splits: dict[str, list[Pair]], limits: tuple[int, int]
) -> dict[str, list[Pair]]:
    """Takes missing splits from the end of training; neighbours stay together."""
    size = max(int(HELD_OUT * len(splits["train"])), 1)
    for name in ("test", "validation"):
        if name not in splits:
            splits[name] = _within(splits["train"][-size:], *limits)
            splits["train"] = splits["train"][:-size]
    return splits
