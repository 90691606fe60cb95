"""Parallel text: splits without leakage, limits, leakage, made-up names."""

import re

import numpy as np
import pytest
from translators import load

from base import storage
from base.errors import UserError
from tasks.translation import parallel_text
from tasks.translation.corpora import libreoffice
from tasks.translation.parallel_text import leakage, make_up_names, overlap

LANGUAGES = ("en", "de")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_DATA", str(tmp_path / "cache"))
    return storage.cache_folder()


def _write(tmp_path, name, source, target):
    (tmp_path / f"{name}.en").write_text("\n".join(source) + "\n", "utf-8")
    (tmp_path / f"{name}.de").write_text("\n".join(target) + "\n", "utf-8")
    return str(tmp_path / name)


def _load_files(**files):
    return load("files", *LANGUAGES, files=files, min_words=1)


def test_leakage_counts_verbatim_and_near_sources():
    train = [("Failed to connect to host 12", "x"), ("Current power", "y")]
    test = [
        ("Current power", "z"),  # verbatim
        ("failed to connect to host 37!", "x"),  # near: case, digits, punctuation
        ("Failed to connect to host 12 again", "x"),  # near: 6 of 7 words
        ("Failed to reach the host 12", "x"),  # 4 of 8 words
        ("Current state", "x"),  # a word changed, but only two words
    ]
    flags = overlap(train, test)
    assert flags["near"] == [True, True, True, False, False]
    assert leakage(flags) == {"verbatim": 0.2, "edit": 0.6, "near": 0.6}


def test_near_duplicates_equal_those_of_a_full_comparison():
    corpus = load("numbers", "en", "de")
    train = {frozenset(parallel_text._sequence(source)) for source, _ in corpus.train}
    near = 0
    for source, _ in corpus.test:
        words = frozenset(parallel_text._sequence(source))
        near += any(len(words & t) / len(words | t) >= 0.8 for t in train)
    assert 0 < near < len(corpus.test)
    assert corpus.leakage["near"] == near / len(corpus.test)


def test_sources_with_one_word_changed_equal_those_of_a_full_comparison():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abc"), rng.integers(1, 7))) for _ in range(311)]
    train, test = [(x, "x") for x in texts[:47]], [(x, "x") for x in texts[47:]]

    def distance(a, b):
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            previous, row = row, [i]
            for j, y in enumerate(b, 1):
                change = previous[j - 1] + (x != y)
                row.append(min(change, previous[j] + 1, row[-1] + 1))
        return row[-1]

    near = 0
    for text, _ in test:
        limit = int(len(text.split()) > 2)
        near += any(distance(text.split(), t.split()) <= limit for t, _ in train)
    assert len(test) / 3 < near < len(test)
    assert leakage(overlap(train, test))["edit"] == near / len(test)


def test_groups_are_never_split_and_pairs_are_in_one_split():
    records = [(f"g{n % 53}", f"s {n} {n}", f"t {n}") for n in range(1009)]
    splits = parallel_text._split_groups(records, 0, (1, 40))
    group_of = {(source, target): g for g, source, target in records}
    splits = {name: selection.pairs for name, selection in splits.items()}
    groups = {name: {group_of[p] for p in pairs} for name, pairs in splits.items()}
    assert sum(map(len, splits.values())) == 1009
    assert sum(map(len, groups.values())) == 53
    for name in ("validation", "test"):
        assert 0.07 * 1009 <= len(splits[name]) < 0.07 * 1009 + 20


@pytest.mark.parametrize(("rare", "count"), [(7, 20), (53, 7)])
def test_evaluation_splits_have_enough_pairs_within_the_limits(rare, count):
    texts = [f"s {n}" if n % rare else f"s {n} {n}" for n in range(2003)]
    records = [(f"g{n // 3}", text, f"t {n}") for n, text in enumerate(texts)]
    splits = parallel_text._split_groups(records, 0, (3, 40))
    for name in ("validation", "test"):
        assert count <= len(splits[name].pairs) < count + 20


def test_a_split_without_pairs_is_refused_with_the_reasons():
    with pytest.raises(
        UserError,
        match=(
            "^corpus numbers en-de has no validation pairs: 140 read, "
            "0 used; left out: 140 with a source under "
            "config.data.min_words=30 words$"
        ),
    ):
        load("numbers", "en", "de", min_words=30)


def test_pairs_of_given_evaluation_files_are_removed_from_training(tmp_path):
    train = _write(tmp_path, "train", list("abcadd  "), list("ABCADD  "))
    validation = _write(tmp_path, "valid", list("bc"), list("BX"))
    test = _write(tmp_path, "test", list("cc"), list("CC"))
    corpus = _load_files(train=train, validation=validation, test=test)
    assert corpus.train == [("a", "A"), ("d", "D")]
    assert corpus.validation == [("b", "B"), ("c", "X")]
    assert corpus.test == [("c", "C")] * 2
    assert corpus.leakage == {"verbatim": 0.0, "edit": 0.0, "near": 0.0}
    assert corpus.report[0] == (
        "train pairs: 8 read, 2 used; left out: 2 empty, 2 repeated, 2 in validation "
        "or test"
    )


def test_every_rule_counts_the_pairs_that_it_leaves_out(tmp_path):
    lines = [f"line {n} of it" for n in range(101)]
    lines += ["", "", *["w " * 7] * 3, "one", *lines[:11]]
    given = _write(tmp_path, "valid", ["line 100 of it", "x"], ["line 100 of it", "y"])
    corpus = load(
        "files",
        *LANGUAGES,
        files={"train": _write(tmp_path, "all", lines, lines), "validation": given},
        min_words=3,
        max_words=6,
        train_min_words=2,
    )
    assert corpus.report == (
        "train pairs: 118 read, 92 used; left out: 2 empty, 8 taken for test, 1 with a "
        "source under config.data.train_min_words=2 words, 3 over "
        "config.data.max_words=6 words, 3 repeated, 9 in validation or test",
        "validation pairs: 2 read, 2 used",
        "test pairs: 8 read, 8 used",
    )
    assert all(line in str(corpus) for line in corpus.report)


def test_missing_splits_of_files_are_taken_from_the_end_of_training(tmp_path):
    lines = [f"line {n}" for n in range(100)]
    corpus = _load_files(train=_write(tmp_path, "all", lines, lines))
    held_out = [source for source, _ in corpus.validation + corpus.test]
    assert [source for source, _ in corpus.train] + held_out == lines
    assert len(corpus.test) == len(corpus.validation) == 7


def test_word_limits_do_not_apply_to_given_evaluation_sets(tmp_path):
    lines = ["a", "a b", "a b c", "a b c d"]
    train = _write(tmp_path, "x", lines, lines[::-1])
    validation = _write(tmp_path, "y", ["e " * 9, "f"], ["e", "f " * 9])
    corpus = load(
        "files",
        *LANGUAGES,
        files={
            "train": train,
            "validation": validation,
            "test": _write(tmp_path, "z", ["g " * 9], ["g"]),
        },
        max_words=3,
        train_min_words=2,
    )
    assert corpus.train == [("a b", "a b c"), ("a b c", "a b")]
    assert len(corpus.validation) == 2 and len(corpus.test) == 1


def test_training_pairs_that_are_all_held_out_are_refused(tmp_path):
    prefix = _write(tmp_path, "x", ["a b", "c d"], ["e", "f"])
    with pytest.raises(
        UserError,
        match=(
            "^corpus files: all 2 training pairs are in validation or "
            "test: at least one must not be$"
        ),
    ):
        _load_files(train=prefix, validation=prefix, test=prefix)


def test_made_up_names_are_equal_on_both_sides_and_change_nothing_else():
    pairs = [
        (f"Turn on Acme{n} of {{room_{n}}} at 12:30", f"Acme{n} in {{room_{n}}}, 12:30")
        for n in range(101)
    ]
    renamed = make_up_names(pairs, 1.0)
    assert renamed == make_up_names(pairs, 1.0)
    names = set()
    for source, target in renamed:
        name, room = re.fullmatch(r"Turn on (\w+) of {(\w+)} at 12:30", source).groups()
        assert target == f"{name} in {{{room}}}, 12:30"
        # Names are made of names, and placeholders of placeholders.
        assert name.startswith("Ac") and room.islower()
        names.add(name)
    assert len(names) > 50


def test_the_share_of_made_up_names_is_as_given():
    named = [(f"Acme{n} is on", f"Acme{n} ist an") for n in range(1009)]
    plain = [("the Light is on", "das Licht ist an"), ("in 2024", "in 2024")] * 7
    renamed = make_up_names([*named, *plain], 0.3)
    assert renamed[len(named) :] == plain
    changed = np.mean([a != b for a, b in zip(named, renamed, strict=False)])
    assert 0.25 < changed < 0.35
    assert make_up_names(named, 0.0) == named


def test_names_in_the_users_text_are_kept(tmp_path, cache, monkeypatch):
    pairs = [(f"Acme{n} is on", f"Acme{n} ist an") for n in range(101)]
    path = _write(tmp_path, "x", *zip(*pairs, strict=True))
    corpora = [
        load("files", *LANGUAGES, files={"train": path}, made_up_names=share)
        for share in (0.0, 1.0)
    ]
    assert corpora[0].train == corpora[1].train
    assert corpora[1].report[3].startswith("names in files and tfds:NAME are kept")
    records = [("page", f"Emca{n} is off", f"Emca{n} ist aus") for n in range(101)]
    monkeypatch.setattr(libreoffice, "_read", lambda *_: iter(records))
    extra = {"extra_corpora": ("libreoffice",), "made_up_names": 1.0}
    both = load("files", *LANGUAGES, files={"train": path}, **extra)
    count = len(corpora[0].train)
    assert both.train[:count] == corpora[0].train
    renamed = zip(both.train[count:], records, strict=True)
    assert sum(pair != tuple(record[1:]) for pair, record in renamed) > 90


def test_an_extra_corpus_is_added_only_to_training(cache, monkeypatch):
    single = load("numbers", "en", "de")
    records = [("page", *single.test[0]), ("page", "one more page", "noch eine Seite")]
    monkeypatch.setattr(libreoffice, "_read", lambda *_: iter(records))
    both = load("numbers", "en", "de", extra_corpora=("libreoffice",))
    assert both.test == single.test and both.validation == single.validation
    assert both.train == [*single.train, ("one more page", "noch eine Seite")]


def test_leakage_is_measured_on_the_text_as_it_was_read(tmp_path, monkeypatch):
    """Names that are made up afterwards would hide that test sources are known."""
    sources = [f"Acme{n} is on" for n in range(53)]
    targets = [f"Acme{n} ist an" for n in range(53)]
    records = [("page", *pair) for pair in zip(sources, targets, strict=True)]
    monkeypatch.setattr(libreoffice, "_read", lambda *_: iter(records))
    files = {
        "train": _write(tmp_path, "train", ["one word"], ["ein Wort"]),
        "validation": _write(tmp_path, "validation", ["other"], ["anders"]),
        "test": _write(tmp_path, "test", sources, [f"{text}!" for text in targets]),
    }
    fields = dict(files=files, min_words=1, extra_corpora=("libreoffice",))
    corpus = load("files", *LANGUAGES, made_up_names=1.0, **fields)
    assert not {*sources} <= {source for source, _ in corpus.train}
    assert corpus.test == load("files", *LANGUAGES, **fields).test
    assert corpus.leakage == {"verbatim": 1.0, "edit": 1.0, "near": 1.0}
    assert corpus.near_duplicates == {"validation": [], "test": list(range(53))}
