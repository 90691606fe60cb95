"""Parallel text: aligned sentence pairs in splits without leakage.

Corpora by name, each a module of `tasks.translation.corpora`:

*   `homeassistant`: the interface strings of Home Assistant, split by component.
*   `libreoffice`: paragraphs of the LibreOffice help, split by help page.
*   `files`: the user's aligned text, one sentence per line.
*   `tfds:NAME`: a translation data set of TensorFlow Datasets.
*   `numbers`: English and German number words, generated.
*   `reversal`: random letters and their reversal, generated.

Texts are in the form of `tasks.common.text.normal`: pairs that look equal are equal.
Corpora without splits are split by groups (component, page or number) instead of
sentences, since near-duplicates are usually in the same group. No pair of validation or
test is in training, none of test is in validation, and no pair is twice in training. A
test source may still be in training with another translation or a changed word;
`leakage` measures how often.

In `homeassistant` and `libreoffice`, pairs with equal sides of three or more words are
left out: they are product names or untranslated. Shorter equal pairs are kept: they are
mostly words that both languages share, such as "Display". Only these two corpora get
made-up names; the user's own text is not rewritten.

Each rule that leaves out pairs is counted in `Corpus.report`. Words are those of
`tasks.translation.corpora.records.words`.
"""

import functools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ml_collections import ConfigDict

from base import storage
from base.errors import UserError
from tasks.common.splits import EVALUATION_SPLITS, SPLITS
from tasks.common.text import LETTER, RUN, fold, normal
from tasks.common.text import words as runs
from tasks.translation.corpora import home_assistant, libreoffice
from tasks.translation.corpora.files import read_files
from tasks.translation.corpora.generated import number_records, reversal_records
from tasks.translation.corpora.records import TRAINING, Pair, Record, Selection, words
from tasks.translation.corpora.tfds import read_tfds

_HELD_OUT = 0.07  # fraction for validation, and for test, of a corpus without splits
# Minimum number of pairs within the limits in these splits; at most 1/5 of all.
_ENOUGH = 20
_OWN = ("files", "tfds:")  # the user's text: names in it are not replaced


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs of one language pair."""

    train: list[Pair]  # pairs to train on
    validation: list[Pair]  # pairs to choose settings and checkpoints with
    test: list[Pair]  # pairs for reported results
    leakage: dict[str, float]  # overlap of the test split with training; see `leakage`
    # for validation and test the indices of the pairs whose source `overlap` finds in
    # training, verbatim, edited or near
    near_duplicates: dict[str, list[int]]
    # lines for the log: for each split the number of pairs that were read, and the
    # number that each rule left out
    report: tuple[str, ...]

    def __str__(self) -> str:
        """Returns the report, the sizes and the leakage, for the log."""
        sizes = (
            f"{len(self.train):,} / {len(self.validation):,} / {len(self.test):,} "
            "pairs for training, validation, test"
        )
        leaked = (
            f"of the test sources, {self.leakage['verbatim']:.1%} are in training, "
            f"{self.leakage['edit']:.1%} are there with at most one word changed, "
            f"{self.leakage['near']:.1%} with at least 80 % of the words"
        )
        return "\n".join([*self.report, sizes, leaked])


def load(data: ConfigDict) -> Corpus:
    """Reads the corpora of `TranslationData`; downloads and converts them on first use.

    The corpora of `extra_corpora` add the pairs of all their splits to training. A
    validation or test split that is part of a corpus is not limited to `min_words` and
    `max_words`: a published test set stays complete. A missing split of `files` is
    taken from the end of its training split.

    Raises:
        UserError: if the data cannot be found, downloaded or read.
    """
    corpus, languages = data.corpus, (data.source_language, data.target_language)
    read = functools.partial(
        _splits,
        languages=languages,
        files=data.files.to_dict(),
        seed=data.split_seed,
    )
    splits = read(corpus, limits=(data.min_words, data.max_words))
    train, validation, test = (splits[name] for name in SPLITS)
    unchanged = set(train.pairs) if corpus.startswith(_OWN) else set()
    for name in data.extra_corpora:
        whole = read(name, limits=(1, data.max_words))
        for split in SPLITS:
            train.add(whole[split])
            unchanged.update(whole[split].pairs if name.startswith(_OWN) else ())
    validation.remove(test.pairs, "in test")
    train.limit(data.train_min_words, data.max_words, "train_min_words")
    train.keep(list(dict.fromkeys(train.pairs)), "repeated")
    held_out, count = [*validation.pairs, *test.pairs], len(train.pairs)
    train.remove(held_out, "in validation or test")
    if count and not train.pairs:
        raise UserError(
            f"corpus {corpus}: all {count} training pairs are in validation or test: "
            "at least one must not be"
        )
    for name, selection in splits.items():
        if not selection.pairs:
            raise UserError(
                f"corpus {corpus} {'-'.join(languages)} has no {name} pairs: "
                f"{selection}"
            )
    flags = overlap(train.pairs, held_out)
    parts = slice(len(validation.pairs)), slice(len(validation.pairs), None)
    overlaps = {
        split: {name: values[part] for name, values in flags.items()}
        for split, part in zip(EVALUATION_SPLITS, parts, strict=True)
    }
    changed = [pair for pair in train.pairs if pair not in unchanged]
    renamed = iter(make_up_names(changed, data.made_up_names))
    pairs = [pair if pair in unchanged else next(renamed) for pair in train.pairs]
    report = [f"{name} pairs: {splits[name]}" for name in SPLITS]
    if unchanged and data.made_up_names:
        report.append(
            "names in files and tfds:NAME are kept: config.data.made_up_names is for "
            "homeassistant and libreoffice"
        )
    return Corpus(
        pairs,
        validation.pairs,
        test.pairs,
        leakage(overlaps["test"]),
        {
            name: np.flatnonzero(np.any([*flags.values()], axis=0)).tolist()
            for name, flags in overlaps.items()
        },
        tuple(report),
    )


def make_up_names(pairs: Sequence[Pair], share: float) -> list[Pair]:
    """Replaces names that occur in both source and target by made-up names.

    New text has names that are not in training and must be copied; training with names
    too rare to memorise teaches the model to copy. A name is a word on both sides with
    a capital letter or an underscore, or after a brace; a made-up name is the first
    half of one name and the second half of another. `share`, in [0, 1], is that of the
    pairs with names in which the names are replaced.
    """
    if not share:
        return list(pairs)
    names = [sorted(_names(source) & _names(target)) for source, target in pairs]
    rng = np.random.default_rng(0)
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
            re.sub(RUN, lambda word: table.get(word[0], word[0]), text) for text in pair
        )
        return source, target

    return [
        rename(pair, copied) if copied and rng.random() < share else pair
        for pair, copied in zip(pairs, names, strict=True)
    ]


def _names(text: str) -> set[str]:
    """Words of at least three characters that look like names or placeholders."""
    words = re.findall(rf"{{?(?:{LETTER}){{3,}}", text)
    return {
        word.removeprefix("{")
        for word in words
        if re.search(r"[^\W\d_]", word)  # a letter
        and (re.search(r"[{_]", word) or word != word.lower())
    }


def overlap(train: Iterable[Pair], test: Sequence[Pair]) -> dict[str, list[bool]]:
    """Finds the pairs of a test set whose sources are in training, or nearly so.

    Sources are compared as words in lower case, without punctuation, digits as 0.

    Returns:
        One flag for each test pair. `verbatim`: the source is also in training. `edit`:
        a training source differs by at most one word, inserted, deleted or replaced;
        sources of one or two words must be equal. `near`: the Jaccard similarity
        between the sets of words of the source and of a training source is at least
        0.8. `edit` and `near` include `verbatim`.
    """
    sources = {source for source, _ in train}
    sequences = {_sequence(source) for source in sources}
    targets = {source: _sequence(source) for source, _ in test}
    edited = _one_edit(sequences, set(targets.values()))
    is_near = _similar({frozenset(sequence) for sequence in sequences})
    return {
        "verbatim": [source in sources for source, _ in test],
        "edit": [s in sources or targets[s] in edited for s, _ in test],
        "near": [s in sources or is_near(frozenset(targets[s])) for s, _ in test],
    }


def leakage(flags: Mapping[str, Sequence[bool]]) -> dict[str, float]:
    """Returns the fraction of the test pairs with each flag of `overlap`."""
    return {name: sum(values) / len(values) for name, values in flags.items()}


def _one_edit(
    train: Iterable[tuple[str, ...]], test: Iterable[tuple[str, ...]]
) -> set[tuple[str, ...]]:
    """Sequences of `test` that differ from one of `train` by at most one word."""
    whole = set(test)
    shortened, masked = defaultdict(list), defaultdict(list)  # without a word
    for sequence in whole:
        if len(sequence) > 2:
            for i in range(len(sequence)):
                rest = sequence[:i] + sequence[i + 1 :]
                shortened[rest].append(sequence)
                masked[i, rest].append(sequence)
    near: set[tuple[str, ...]] = set()
    for sequence in train:
        if sequence in whole:
            near.add(sequence)
        near.update(shortened.get(sequence, ()))
        for i in range(len(sequence)):
            rest = sequence[:i] + sequence[i + 1 :]
            near.update(masked.get((i, rest), ()))
            if len(rest) > 2 and rest in whole:
                near.add(rest)
    return near


def _similar(sets: Iterable[frozenset[str]]) -> Callable[[frozenset[str]], bool]:
    """Returns a test for a Jaccard similarity of at least 0.8 with one of `sets`."""
    sets = sorted(sets, key=sorted)
    sets_with = defaultdict(list)
    for n, members in enumerate(sets):
        for word in members:
            sets_with[word].append(n)

    def is_near(members: frozenset[str]) -> bool:
        # A similar set lacks at most 20 % of the words. Looking up more than 20 % of
        # them, the rarest first, therefore finds every similar set.
        rarest = sorted(members, key=lambda word: len(sets_with.get(word, ())))
        for word in rarest[: len(members) - -(-4 * len(members) // 5) + 1]:
            for n in sets_with.get(word, ()):
                if 5 * len(members & sets[n]) >= 4 * len(members | sets[n]):
                    return True
        return False

    return is_near


def _sequence(text: str) -> tuple[str, ...]:
    text = re.sub(r"\d", "0", fold(text))
    return tuple(word for run in runs(text) for word in words(run))


def _splits(
    corpus: str,
    *,
    languages: tuple[str, str],
    files: Mapping[str, str],
    seed: int,
    limits: tuple[int, int],
) -> dict[str, Selection]:
    """Reads the splits of a corpus; `limits` are those of validation and test."""
    if corpus == "files":
        splits = read_files(files, languages)
        return _hold_out(splits, limits, "config.data.files.train")
    if corpus.startswith("tfds:"):
        splits = read_tfds(corpus.removeprefix("tfds:"), languages)
        return _hold_out(splits, limits, corpus)
    if corpus == "numbers":
        return _split_groups(number_records(languages, seed), seed, limits)
    if corpus == "reversal":
        return _split_groups(reversal_records(limits, seed), seed, limits)
    package = home_assistant if corpus == "homeassistant" else libreoffice
    return _split_groups(package.records(*languages), seed, limits, equal_words=2)


def _split_groups(
    records: Sequence[Record],
    seed: int,
    limits: tuple[int, int],
    equal_words: float = math.inf,
) -> dict[str, Selection]:
    """Fills test and validation with whole groups, in the order of a hash.

    Each has at least `_HELD_OUT` of the pairs, and `_ENOUGH` within the limits.
    Pairs of `TRAINING` groups are only in training.

    Args:
        records: records of the corpus.
        seed: seed of the hash.
        limits: minimum and maximum number of words in validation and test.
        equal_words: maximum number of words of a pair with equal sides; longer ones
            are left out.
    """
    groups, equal = defaultdict(list), 0
    for group, *pair in records:
        source, target = map(normal, pair)
        if source == target and len(words(source)) > equal_words:
            equal += 1
        else:
            groups[group].append((source, target))
    splits: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    training = {g: groups.pop(g) for g in list(groups) if g.startswith(TRAINING)}
    held_out, size = set(), _HELD_OUT * sum(map(len, groups.values()))
    fitting = {}  # number of pairs within the limits
    for group, pairs in groups.items():
        selection = Selection(pairs)
        selection.limit(*limits, "min_words")
        fitting[group] = len(selection.pairs)
    enough, counts = min(_ENOUGH, sum(fitting.values()) // 5), dict.fromkeys(SPLITS, 0)
    for group in sorted(groups, key=lambda g: storage.sha256(f"{seed}:{g}".encode())):
        unfilled = (
            name
            for name in ("test", "validation")
            if len(splits[name]) < size or counts[name] < enough
        )
        name = next(unfilled, "train")
        splits[name] += groups[group]
        counts[name] += fitting[group]
        if name != "train":
            held_out.add(group)
    named = 0
    for group, pairs in training.items():
        if held_out.isdisjoint(group.split(TRAINING)):
            splits["train"] += pairs
        else:
            named += len(pairs)
    rules = {"with equal sides": equal, "about a held-out component": named}
    selections = {
        name: Selection(pairs, rules if name == "train" else None)
        for name, pairs in splits.items()
    }
    for name in EVALUATION_SPLITS:
        selections[name].limit(*limits, "min_words")
    return selections


def _hold_out(
    splits: dict[str, Selection], limits: tuple[int, int], name: str
) -> dict[str, Selection]:
    """Takes missing splits from the end of training; neighbours stay together."""
    train = splits["train"]
    missing = [split for split in ("test", "validation") if split not in splits]
    if missing and len(train.pairs) <= len(missing):
        raise UserError(
            f"{name} has too few pairs, {len(train.pairs)}: must have at least "
            f"{len(missing) + 1}, as {' and '.join(missing)} are taken from its end"
        )
    size = max(int(_HELD_OUT * len(train.pairs)), 1)
    for split in missing:
        splits[split] = Selection(train.pairs[-size:])
        splits[split].limit(*limits, "min_words")
        train.keep(train.pairs[:-size], f"taken for {split}")
    return {split: splits[split] for split in SPLITS}
