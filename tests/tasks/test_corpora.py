"""Corpora: number words, the user's files, packages, TensorFlow Datasets."""

import functools
import gzip
import json
import subprocess
import zipfile
from pathlib import Path

import pytest
from translators import load

from base import storage
from base.errors import UserError
from tasks.common import packages
from tasks.translation.corpora import files, home_assistant, libreoffice, records
from tasks.translation.corpora.files import read_files
from tasks.translation.corpora.generated import (
    english_number,
    german_number,
    reversal_records,
)

LANGUAGES = ("en", "de")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(home_assistant, "_HASHES", {})  # filled by `_wheels`
    monkeypatch.setattr(home_assistant, "_EXPECTED", {})
    return storage.cache_folder()


def _load_files(**files):
    return load("files", *LANGUAGES, files=files, min_words=1)


# Number words.


def test_numbers_in_words():
    expected = {
        0: ("zero", "null"),
        1: ("one", "eins"),
        17: ("seventeen", "siebzehn"),
        21: ("twenty-one", "einundzwanzig"),
        70: ("seventy", "siebzig"),
        101: ("one hundred one", "einhunderteins"),
        1000: ("one thousand", "eintausend"),
        21_016: ("twenty-one thousand sixteen", "einundzwanzigtausendsechzehn"),
        101_111: (
            "one hundred one thousand one hundred eleven",
            "einhunderteintausendeinhundertelf",
        ),
        999_999: (
            "nine hundred ninety-nine thousand nine hundred ninety-nine",
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        ),
    }
    for n, words in expected.items():
        assert (english_number(n), german_number(n)) == words


def test_reversal_pairs_letters_with_their_reversal():
    drawn = reversal_records((3, 5), 0)
    assert len(drawn) == 10_000 and drawn == reversal_records((3, 5), 0)
    assert all(x.split() == y.split()[::-1] for _, x, y in drawn)
    assert {len(source.split()) for _, source, _ in drawn} == {3, 4, 5}


def test_numbers_need_no_package_in_either_direction(monkeypatch):
    monkeypatch.setattr(packages, "_fetch", None)
    corpus = load("numbers", "en", "de")
    reverse = load("numbers", "de", "en", min_words=1)
    sizes = len(corpus.train), len(corpus.validation), len(corpus.test)
    assert sizes == (1720, 140, 140)
    assert [pair[::-1] for pair in corpus.test] == reverse.test
    assert load("numbers", "en", "de", split_seed=1).test != corpus.test


# The user's own files.


def test_files_may_be_compressed_or_two_paths_with_unusual_separators(tmp_path):
    text = "\ufeffone\u2028two\r\n\ufeffthree\n".encode()  # two joined files
    with gzip.open(tmp_path / "a.en.gz", "wb") as file:
        file.write(text)
    (tmp_path / "a.de").write_bytes(b"eins zwei\ndrei")
    expected = [("one two", "eins zwei"), ("three", "drei")]
    for location in (f"{tmp_path}/a", f"{tmp_path}/a.en,{tmp_path}/a.de"):
        (train,) = read_files({"train": location}, LANGUAGES).values()
        assert train.pairs == expected


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"x\n \n", b"\ny\n", "a.en and .*a.de have no line with text in both"),
        (b"x\ny\nz\n", b"x\ny\n", "a.de has 2: line 3 of .*a.en has no translation"),
        (b"x\n", b"x\ny\n", "a.de has 2: line 2 of .*a.de has no translation"),
        (b"x\n", b"x\xe4\n", "line 1 of .*a.de is not UTF-8: byte 0xe4 at column 2"),
        (b"x\ny\n", b"x\n\xff\n", "line 2 of .*a.de is not UTF-8: byte 0xff at col"),
        ("x\n".encode("utf-16"), b"x\n", "line 1 of .*a.en is not UTF-8: byte 0xff"),
        (b"x\ny\0\n", b"x\ny\n", "line 2 of .*a.en is not text in UTF-8: it has a NUL"),
    ],
)
def test_an_invalid_file_is_named_with_its_line(tmp_path, source, target, message):
    for name, content in (("a.en", source), ("a.de", target)):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"^config.data.files.train is .*: .*{message}"):
        _load_files(train=f"{tmp_path}/a")


def test_lines_that_are_empty_on_one_side_are_left_out_and_counted(tmp_path):
    (tmp_path / "a.en").write_text("a\n\n \n\u2028\nb\n\nc\n", "utf-8")
    (tmp_path / "a.de").write_text("A\nx\ny\nz\nB\n\n\u2581\n", "utf-8")
    train = read_files({"train": f"{tmp_path}/a"}, LANGUAGES)["train"]
    assert train.pairs == [("a", "A"), ("b", "B")]
    assert train.rules == {"empty": 1, "empty on one side": 4}
    assert str(train) == "7 read, 2 used; left out: 1 empty, 4 empty on one side"


def test_other_locations_than_two_files_are_refused(tmp_path):
    (tmp_path / "a.de").write_text("x\n")
    with pytest.raises(
        UserError,
        match="^config.data.files.train is 'a,b,c': names 3 files, must be 2$",
    ):
        _load_files(train="a,b,c")
    with pytest.raises(UserError, match="a.de and .*a.de are the same file$"):
        _load_files(train=f"{tmp_path}/a.de,{tmp_path}/a.de")
    with pytest.raises(UserError, match="a.de': is one file, must be two: the beg"):
        _load_files(train=f"{tmp_path}/a.de")


def test_an_archive_that_expands_too_far_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MIN_SIZE", 10_007)
    for language in LANGUAGES:
        with gzip.open(tmp_path / f"a.{language}.gz", "wb") as file:
            file.write(b"\n" * 1_000_003)
    with pytest.raises(UserError, match="a.en.gz has more than 100 times its size"):
        _load_files(train=f"{tmp_path}/a")


def test_too_few_pairs_for_three_splits_are_refused(tmp_path):
    for language in LANGUAGES:
        (tmp_path / f"a.{language}").write_text("x\nx\n")
    message = (
        "^config.data.files.train has too few pairs, 2: must have at least 3, "
        "as test and validation are taken from its end$"
    )
    with pytest.raises(UserError, match=message):
        _load_files(train=f"{tmp_path}/a")


# Words.


def test_words_are_separated_by_spaces_or_are_a_few_characters():
    assert records.words(" a  dog's\tlife ") == ["a", "dog's", "life"]
    assert records.words("Turn on 照明をオン") == ["Turn", "on", "照明", "をオ", "ン"]
    assert records.words("打开2.4GHz灯。") == ["打开", "2.4GHz", "灯", "。"]
    assert records.words("เปิดไฟในห้องครัว") == ["เปิดไ", "ฟในห้", "องครั", "ว"]
    assert records.words("한국어 문장") == ["한국어", "문장"]
    assert records.words("") == records.words(" \u3000 ") == []


# Packages.


def _wheels(cache, components, panels=None):
    """Writes tables {(component, language): strings} and {path: strings}.

    Their hashes become the published ones.
    """
    name = f"homeassistant-{home_assistant._HOME_ASSISTANT}-py3-none-any.whl"
    frontend = f"home_assistant_frontend-{home_assistant._FRONTEND}-py3-none-any.whl"
    with zipfile.ZipFile(cache / name, "w") as wheel:
        for (component, language), table in components.items():
            path = f"homeassistant/components/{component}/translations/{language}.json"
            wheel.writestr(path, json.dumps(table))
    empty = {f"translations/{x}-{'0' * 32}.json": {} for x in LANGUAGES}
    with zipfile.ZipFile(cache / frontend, "w") as wheel:
        for path, table in {**empty, **(panels or {})}.items():
            wheel.writestr(f"hass_frontend/static/{path}", json.dumps(table))
    for package, file in (
        ("homeassistant", name),
        ("home-assistant-frontend", frontend),
    ):
        digest = storage.sha256((cache / file).read_bytes())
        home_assistant._HASHES[package] = digest
    return cache / name


def test_home_assistant_strings_are_aligned_by_path(cache):
    english = {
        "a": {"b": "Turn  on\nthe {name}", "c": "only here"},
        "d": "[%key:common::x%]",
        "e": "USB Power Delivery",
        "f": "Display",
    }
    german = {
        "a": {"b": "{name} einschalten"},
        "d": "An",
        "e": "USB Power Delivery",
        "f": "Display",
    }
    tables = {("alpha", "en"): english, ("alpha", "de"): german, ("x", "en"): english}
    for n in range(40):
        text = {"a": f"State of number {n}", "same": "Turn on the {name}"}
        tables[f"c{n}", "en"] = text
        tables[f"c{n}", "de"] = {"a": f"{n}. Zustand", "same": "{name} einschalten"}
    path = _wheels(cache, tables)
    corpus = load("homeassistant", *LANGUAGES, min_words=1)
    pairs = corpus.train + corpus.validation + corpus.test
    expected = [(f"State of number {n}", f"{n}. Zustand") for n in range(40)]
    expected += [("Turn on the {name}", "{name} einschalten"), ("Display", "Display")]
    assert sorted(pairs) == sorted(expected)

    # Converted once, and again if the converted file is damaged.
    path.unlink()
    assert load("homeassistant", *LANGUAGES, min_words=1) == corpus
    (converted,) = cache.glob("*.jsonl")
    content = converted.read_text()
    converted.write_text(content.replace("Zustand", "Zvstand"))
    _wheels(cache, tables)
    assert load("homeassistant", *LANGUAGES, min_words=1) == corpus
    assert converted.read_text() == content
    with pytest.raises(
        UserError,
        match=(
            "^config.data.target_language is 'du': must be one of the "
            "2 languages of Home Assistant, such as de, en$"
        ),
    ):
        load("homeassistant", "en", "du")
    with pytest.raises(UserError, match="^config.data.source_language is 'ja': must"):
        load("homeassistant", "ja", "de")


def test_the_strings_of_the_web_interface_are_in_training_only(cache, monkeypatch):
    monkeypatch.setattr(home_assistant, "_FEW", 0)
    components, panels = {}, {}
    for n in range(40):
        for language, word in (("en", "State"), ("de", "Zustand")):
            components[f"c{n}", language] = {"a": f"{word} of number {n}"}
            table = {"b": f"{word} on panel {n}", "c": f"{word} of number {n}"}
            panels[f"translations/p{n}/{language}-{n:032x}.json"] = table
    _wheels(cache, components, {})
    components_only = load("homeassistant", *LANGUAGES)
    panels[f"translations/en-{'f' * 32}.json"] = {"x": "Save it"}
    panels[f"translations/de-{'f' * 32}.json"] = {"x": "Sichere es"}
    panels[f"other/en-{'f' * 32}.json"] = {"x": "not a translation"}
    next(cache.glob("*.jsonl")).unlink()
    _wheels(cache, components, panels)
    both = load("homeassistant", *LANGUAGES)
    expected = [(f"State on panel {n}", f"Zustand on panel {n}") for n in range(40)]
    expected.append(("Save it", "Sichere es"))
    assert sorted(both.train) == sorted([*components_only.train, *expected])
    assert both.test == components_only.test
    assert both.validation == components_only.validation

    # Strings whose key or panel names a held-out component are left out.
    held_out = f"c{components_only.test[0][0].split()[-1]}"
    for n, folder in enumerate((f"{held_out}/", "")):
        for language, word in (("en", "About"), ("de", "Zu")):
            table = {"y": {held_out: f"{word} it {n}"}, "z": f"{word} the rest {n}"}
            panels[f"translations/{folder}{language}-{n + 7:032x}.json"] = table
    next(cache.glob("*.jsonl")).unlink()
    _wheels(cache, components, panels)
    added = set(load("homeassistant", *LANGUAGES).train) - set(both.train)
    assert added == {("About the rest 1", "Zu the rest 1")}


def test_records_that_differ_from_the_published_ones_are_refused(cache):
    home_assistant._EXPECTED["en-de"] = "0" * 64
    tables = {("a", language): {"x": language} for language in LANGUAGES}
    _wheels(cache, tables)
    with pytest.raises(UserError, match="en-de in .* differ from the published ones"):
        load("homeassistant", *LANGUAGES)


def test_the_web_interface_is_held_out_if_components_have_few_strings(cache):
    panels = {}
    for language, word in (("en", "Text"), ("de", "Satz")):
        table = {
            f"ui.panel.config.s{n % 53}.k{n}": f"{word} of number {n}"
            for n in range(211)
        }
        panels[f"translations/config/{language}-{'f' * 32}.json"] = table
    _wheels(cache, {("a", x): {"x": f"On {x}"} for x in LANGUAGES}, panels)
    corpus = load("homeassistant", *LANGUAGES)
    sections = [
        {int(source.split()[-1]) % 53 for source, _ in pairs if "number" in source}
        for pairs in (corpus.train, corpus.validation, corpus.test)
    ]
    assert len(corpus.validation) >= 12 and len(corpus.test) >= 12
    assert sum(map(len, sections)) == len(set.union(*sections)) == 53


def test_both_directions_have_the_same_groups(cache):
    # The component "config" has no German string: its name in a key holds nothing out.
    components = {("config", "en"): {"x": "On"}, ("config", "de"): {}}
    panels = {}
    for language, word in (("en", "Text"), ("de", "Satz")):
        components["a", language] = {"x": f"On {language}"}
        table = {f"ui.config.s{n % 5}.k{n}": f"{word} {n}" for n in range(13)}
        table |= {f"ui.config.t.k{n}": f"Untranslated {n}" for n in range(7)}
        panels[f"translations/{language}-{'f' * 32}.json"] = table
    _wheels(cache, components, panels)
    forth, back = (
        set(home_assistant.records(*languages))
        for languages in (LANGUAGES, LANGUAGES[::-1])
    )
    assert len(forth) == 14
    assert forth == {(group, text, other) for group, other, text in back}


def test_a_file_with_another_hash_is_neither_used_nor_kept(cache, monkeypatch):
    path = _wheels(cache, {})
    path.write_bytes(b"another file")

    def download(command, cwd, **_):
        Path(cwd, path.name).write_bytes(b"a third file")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.subprocess, "run", download)
    with pytest.raises(UserError, match=f"the SHA-256 of {path.name} is not the publi"):
        load("homeassistant", *LANGUAGES)
    assert path.read_bytes() == b"another file"
    home_assistant._HASHES["homeassistant"] = storage.sha256(b"a third file")
    wheel = home_assistant._fetch("homeassistant", home_assistant._HOME_ASSISTANT)
    assert wheel == path and wheel.read_bytes() == b"a third file"


def test_a_debian_package_has_the_hash_of_the_package_lists(cache, monkeypatch):
    hashes = [storage.sha256(b"content")]

    def run(command, cwd=None, **_):
        if command[0] == "apt-cache":
            text = "".join(f"Package: x\nSHA256: {x}\n\n" for x in hashes)
            return subprocess.CompletedProcess(command, 0, text, "")
        Path(cwd, "x_1_all.deb").write_bytes(b"content")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.subprocess, "run", run)
    assert packages.fetch_deb("x").read_bytes() == b"content"
    hashes[:] = ["0" * 64]
    with pytest.raises(UserError, match="SHA-256 of x_1_all.deb is not the published"):
        packages.fetch_deb("x")
    hashes.clear()
    with pytest.raises(UserError, match="not in apt's package lists, which apt-get up"):
        packages.fetch_deb("x")


def test_help_pages_are_read_by_element_id():
    parser = libreoffice._HelpPage()
    parser.feed(
        '<h1 id="hd_1">Open &amp; save</h1><p>no id</p><p id="other">other</p>'
        '<p id="par_2" class="paragraph">Choose <span>File</span><br>and <i>go</i>.</p>'
        '<p id="par_3" class="code">x = 1</p><p id="par_2">embedded again</p>'
    )
    assert parser.texts == {"hd_1": "Open & save", "par_2": "Choose File and go."}


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("ERROR: No matching distribution found for x==1\n", "No matching distrib"),
        ("W: unsandboxed\nE: Unable to locate package x\n", "E: Unable to locate"),
        ("/usr/bin/python: No module named pip\n", "has no pip: python -m ensurepip"),
        (
            "WARNING: Retrying (Retry(total=1)) after connection broken by "
            "'NewConnectionError('Temporary failure in name resolution')'\n"
            "ERROR: No matching distribution found for x==1\n",
            "the network cannot be reached",
        ),
        (
            "E: Failed to fetch http://a/b.deb  Temporary failure resolving 'a'\n",
            "the network cannot be reached",
        ),
    ],
)
def test_a_failed_download_names_package_folder_and_alternatives(
    cache, monkeypatch, stderr, reason
):
    def fail(command, **_):
        text = "SHA256: 0\n" if command[0] == "apt-cache" else ""
        return subprocess.CompletedProcess(command, not text, text, stderr)

    monkeypatch.setattr(packages.subprocess, "run", fail)
    for package in (
        lambda: packages.fetch("x", "1", sha256="0"),
        lambda: packages.fetch_deb("x"),
    ):
        with pytest.raises(UserError, match=f"package x.* {cache} .*{reason}") as error:
            package()
        assert "files" in str(error.value) and "tfds:NAME" in str(error.value)
        assert "\n" not in str(error.value)
    assert not list(cache.iterdir())


def test_a_missing_client_is_named(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="apt-cache: No such file"):
        packages.fetch_deb("x")


@pytest.mark.network
def test_home_assistant_has_the_pairs_of_the_reported_results():
    corpus = load("homeassistant", *LANGUAGES)
    sizes = len(corpus.train), len(corpus.validation), len(corpus.test)
    assert sizes == (27_577, 1_148, 1_178)
    long = [pair for pair in corpus.train if len(pair[0].split()) >= 3]
    assert len(long) == 17_017
    shares = {name: round(100 * x, 1) for name, x in corpus.leakage.items()}
    assert shares == {"verbatim": 1.4, "edit": 19.7, "near": 3.9}  # as in docs/data.md


@pytest.mark.network
@pytest.mark.parametrize("language", ["bs", "ne", "ja", "zh-Hans", "th"])
def test_languages_with_few_strings_or_no_spaces_have_all_splits(language):
    corpus = load("homeassistant", "en", language)
    assert len(corpus.train) > 500
    assert min(len(corpus.validation), len(corpus.test)) > 5
    reverse = load("homeassistant", language, "en")
    assert min(len(reverse.validation), len(reverse.test)) > 5


# TensorFlow Datasets.


def test_tfds_data_sources_are_read(tmp_path, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")

    class TinyTranslation(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.Translation(languages=LANGUAGES)
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, manager):
            return {
                "train": self._generate_examples(0, 29),
                "test": self._generate_examples(29, 31),
            }

        def _generate_examples(self, start, stop):
            for n in range(start, stop):
                yield n, {"en": english_number(n), "de": german_number(n)}

    local = functools.partial(
        tfds.data_source,
        data_dir=tmp_path,
        # The default format, except together with data_dir.
        builder_kwargs={"file_format": "array_record"},
    )
    monkeypatch.setattr(tfds, "data_source", local)
    corpus = load("tfds:tiny_translation", *LANGUAGES, min_words=1)
    pairs = corpus.train + corpus.validation
    assert sorted(pairs) == sorted(
        (english_number(n), german_number(n)) for n in range(29)
    )
    assert len(corpus.validation) == 2
    assert sorted(corpus.test) == [
        ("thirty", "dreißig"),
        ("twenty-nine", "neunundzwanzig"),
    ]
    with pytest.raises(UserError, match="has no text in 'fr', only de, en$"):
        load("tfds:tiny_translation", "en", "fr")


def test_a_data_set_that_tfds_cannot_open_is_named_with_alternatives():
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(UserError, match="tfds:no_such_set cannot be opened") as error:
        load("tfds:no_such_set", *LANGUAGES)
    assert "tensorflow-cpu" in str(error.value) and "files" in str(error.value)
    assert "\n" not in str(error.value)
