"""Parallel text: splits that do not leak, limits, leakage, made-up names."""

import re

import numpy as np
import pytest

import storage
from data import parallel_text
from data.corpora import libreoffice
from data.parallel_text import leakage, load, make_up_names
from errors import UserError

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
    ]
    assert leakage(train, test) == {"verbatim": 0.25, "near": 0.75}


def test_near_duplicates_equal_a_comparison_of_all_pairs():
    corpus = load("numbers", "en", "de")
    train = {parallel_text._words(source) for source, _ in corpus.train}
    near = 0
    for source, _ in corpus.test:
        words = parallel_text._words(source)
        near += any(len(words & t) / len(words | t) >= 0.8 for t in train)
    assert 0 < near < len(corpus.test)
    assert corpus.leakage["near"] == near / len(corpus.test)


def test_groups_are_never_split_and_pairs_are_in_one_split():
    records = [(f"g{n % 53}", f"s {n} {n}", f"t {n}") for n in range(1009)]
    splits = parallel_text._split_groups(records, 0, (1, 40))
    group = {(source, target): g for g, source, target in records}
    groups = {name: {group[p] for p in pairs} for name, pairs in splits.items()}
    assert sum(map(len, splits.values())) == 1009
    assert sum(map(len, groups.values())) == 53
    for name in ("validation", "test"):
        assert 0.07 * 1009 <= len(splits[name]) < 0.07 * 1009 + 20


def test_unknown_names_say_what_is_accepted():
    with pytest.raises(UserError, match="corpus is 'wmt': must be homeassistant"):
        load("wmt", "en", "de")
    with pytest.raises(UserError, match="source_language and target_language are 'en'"):
        load("numbers", "en", "en")
    with pytest.raises(UserError, match="has no validation pairs .of 30 to 40 words"):
        load("numbers", "en", "de", min_words=30)


def test_files_keep_the_given_splits_and_training_gives_way(tmp_path):
    train = _write(tmp_path, "train", list("abcadd  "), list("ABCADD  "))
    validation = _write(tmp_path, "valid", list("bc"), list("BX"))
    test = _write(tmp_path, "test", list("cc"), list("CC"))
    corpus = _load_files(train=train, validation=validation, test=test)
    assert corpus.train == [("a", "A"), ("d", "D")]
    assert corpus.validation == [("b", "B"), ("c", "X")]
    assert corpus.test == [("c", "C")] * 2
    assert corpus.leakage == {"verbatim": 0.0, "near": 0.0}


def test_files_without_splits_lose_their_end_to_them(tmp_path):
    lines = [f"line {n}" for n in range(100)]
    corpus = _load_files(train=_write(tmp_path, "all", lines, lines))
    held = [source for source, _ in corpus.validation + corpus.test]
    assert [source for source, _ in corpus.train] + held == lines
    assert len(corpus.test) == len(corpus.validation) == 7


def test_word_limits_spare_the_given_test_set(tmp_path):
    lines = ["a", "a b", "a b c", "a b c d"]
    place = _write(tmp_path, "x", lines, lines[::-1])
    other = _write(tmp_path, "y", ["e " * 9, "f"], ["e", "f " * 9])
    corpus = load(
        "files",
        *LANGUAGES,
        files={
            "train": place,
            "validation": other,
            "test": _write(tmp_path, "z", ["g " * 9], ["g"]),
        },
        max_words=3,
        train_min_words=2,
    )
    assert corpus.train == [("a b", "a b c"), ("a b c", "a b")]
    assert len(corpus.validation) == 2 and len(corpus.test) == 1


def test_training_that_is_all_held_out_is_told(tmp_path):
    prefix = _write(tmp_path, "x", ["a b", "c d"], ["e", "f"])
    with pytest.raises(UserError, match="all 2 training pairs are in validation or"):
        _load_files(train=prefix, validation=prefix, test=prefix)


def test_made_up_names_are_the_same_on_both_sides_and_leave_the_rest_alone():
    pairs = [
        (f"Turn on Acme{n} of {{room_{n}}} at 12:30", f"Acme{n} in {{room_{n}}}, 12:30")
        for n in range(101)
    ]
    renamed = make_up_names(pairs, 1.0)
    assert renamed == make_up_names(pairs, 1.0)
    names = set()
    for source, target in renamed:
        name, place = re.fullmatch(
            r"Turn on (\w+) of {(\w+)} at 12:30", source
        ).groups()
        assert target == f"{name} in {{{place}}}, 12:30"
        assert name.startswith("Ac") and place.islower()  # halves of names of its kind
        names.add(name)
    assert len(names) > 50


def test_the_share_of_made_up_names_is_kept_and_words_without_names_are():
    named = [(f"Acme{n} is on", f"Acme{n} ist an") for n in range(1009)]
    plain = [("the Light is on", "das Licht ist an"), ("in 2024", "in 2024")] * 7
    renamed = make_up_names([*named, *plain], 0.3)
    assert renamed[len(named) :] == plain
    changed = np.mean([a != b for a, b in zip(named, renamed, strict=False)])
    assert 0.25 < changed < 0.35
    assert make_up_names(named, 0.0) == named
    with pytest.raises(UserError, match=r"made_up_names is 1.5: must be in \[0, 1\]"):
        make_up_names(named, 1.5)


def test_a_second_corpus_joins_training_only(cache, monkeypatch):
    alone = load("numbers", "en", "de")
    records = [("page", *alone.test[0]), ("page", "one more page", "noch eine Seite")]
    monkeypatch.setattr(libreoffice, "_read", lambda *_: iter(records))
    both = load("numbers", "en", "de", extra=("libreoffice",))
    assert both.test == alone.test and both.validation == alone.validation
    assert both.train == [*alone.train, ("one more page", "noch eine Seite")]
