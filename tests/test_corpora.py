"""Corpora: number words, the user's files, packages, TensorFlow Datasets."""

import functools
import gzip
import json
import subprocess
import zipfile

import pytest

import storage
from data import packages
from data.corpora import home_assistant, libreoffice
from data.corpora.files import read_files
from data.corpora.numbers import english_number, german_number
from data.parallel_text import load
from errors import UserError

LANGUAGES = ("en", "de")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_DATA", str(tmp_path / "cache"))
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
    corpus = load("reversal", "en", "de", min_words=3, max_words=5)
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    assert len(pairs) > 9_000 and corpus.test and corpus.validation
    assert all(source.split() == target.split()[::-1] for source, target in pairs)
    assert {len(source.split()) for source, _ in pairs} == {3, 4, 5}
    assert corpus.digest == load("reversal", "x", "y", min_words=3, max_words=5).digest


def test_numbers_need_no_package_in_either_direction(monkeypatch):
    monkeypatch.setattr(packages, "_fetch", None)
    corpus = load("numbers", "en", "de")
    reverse = load("numbers", "de", "en", min_words=1)
    sizes = len(corpus.train), len(corpus.validation), len(corpus.test)
    assert sizes == (1720, 140, 140)
    assert [pair[::-1] for pair in corpus.test] == reverse.test
    assert load("numbers", "en", "de").digest == corpus.digest != reverse.digest
    assert load("numbers", "en", "de", split_seed=1).digest != corpus.digest
    message = "^the languages of corpus numbers are en-fr: must be en or de$"
    with pytest.raises(UserError, match=message):
        load("numbers", "en", "fr")


# The user's own files.


def test_files_may_be_compressed_or_two_paths_with_unusual_separators(tmp_path):
    text = "\ufeffone\u2028two\r\nthree\n".encode()
    with gzip.open(tmp_path / "a.en.gz", "wb") as file:
        file.write(text)
    (tmp_path / "a.de").write_bytes(b"eins zwei\ndrei")
    expected = [("one two", "eins zwei"), ("three", "drei")]
    for location in (f"{tmp_path}/a", f"{tmp_path}/a.en,{tmp_path}/a.de"):
        splits = read_files({"train": location}, LANGUAGES)
        assert splits == {"train": expected}


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (None, b"x\n", "{en} does not exist, nor does a.en.gz"),
        (b"", b"x\n", "{en} is empty"),
        (b"\n\n", b"\n\n", "{en} and {de} have only empty lines"),
        (
            b"x\ny\nz\n",
            b"x\ny\n",
            "{en} has 3 lines and {de} has 2: line 3 of {en} has no translation",
        ),
        (
            b"x\n",
            b"x\ny\n",
            "{en} has 1 lines and {de} has 2: line 2 of {de} has no translation",
        ),
        (
            b"x\n \n",
            b"x\ny\n",
            "line 2 of {en} is empty and line 2 of {de} is not: remove both, or add "
            "the translation",
        ),
        (
            b"x\n",
            b"x\xe4\n",
            "line 1 of {de} is not UTF-8: byte 0xe4 at column 2",
        ),
        (
            b"x\ny\n",
            b"x\n\xff\n",
            "line 2 of {de} is not UTF-8: byte 0xff at column 1",
        ),
    ],
)
def test_an_invalid_file_is_named_with_its_line(tmp_path, source, target, message):
    for name, content in (("a.en", source), ("a.de", target)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        _load_files(train=f"{tmp_path}/a")
    expected = message.format(en=tmp_path / "a.en", de=tmp_path / "a.de")
    assert str(error.value) == expected


def test_an_invalid_archive_and_a_missing_location_are_named(tmp_path):
    (tmp_path / "a.en.gz").write_bytes(b"no archive")
    (tmp_path / "a.de").write_text("x\n")
    with pytest.raises(UserError, match="a.en.gz cannot be read"):
        _load_files(train=f"{tmp_path}/a")
    message = (
        "^config.data.files.train is missing: must be SOURCE_FILE,TARGET_FILE or "
        "PREFIX, for files PREFIX.en and PREFIX.de, optionally with .gz$"
    )
    with pytest.raises(UserError, match=message):
        _load_files()
    with pytest.raises(UserError, match="^a,b,c names 3 files: must be 2$"):
        _load_files(train="a,b,c")


# Packages.


def _wheels(cache, components, panels=None):
    """Writes tables {(component, language): strings} and {path: strings}."""
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
    return cache / name


def test_home_assistant_strings_are_aligned_by_path(cache, monkeypatch):
    monkeypatch.setattr(home_assistant, "_EXPECTED", {})
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
    message = "^Home Assistant has no language 'du'; similar ones: de, en$"
    with pytest.raises(UserError, match=message):
        load("homeassistant", "en", "du")


def test_the_strings_of_the_web_interface_are_in_training_only(cache, monkeypatch):
    monkeypatch.setattr(home_assistant, "_EXPECTED", {})
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
    tables = {("a", language): {"x": language} for language in LANGUAGES}
    _wheels(cache, tables)
    with pytest.raises(UserError, match="en-de in .* differ from the published ones"):
        load("homeassistant", *LANGUAGES)


def test_a_broken_wheel_is_named(cache):
    _wheels(cache, {}).write_bytes(b"cut off")
    with pytest.raises(UserError, match="whl is not a wheel: delete it"):
        load("homeassistant", *LANGUAGES)


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
    ],
)
def test_a_failed_download_names_package_folder_and_alternatives(
    cache, monkeypatch, stderr, reason
):
    def fail(command, **_):
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.setattr(packages.subprocess, "run", fail)
    for package in (lambda: packages.fetch("x", "1"), lambda: packages.fetch_deb("x")):
        with pytest.raises(UserError, match=f"package x.* {cache} .*{reason}") as error:
            package()
        assert "files" in str(error.value) and "tfds:NAME" in str(error.value)
        assert "\n" not in str(error.value)
    assert not list(cache.iterdir())


def test_a_missing_client_is_named(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="apt-get: No such file"):
        packages.fetch_deb("x")


@pytest.mark.network
def test_home_assistant_has_the_pairs_of_the_reported_results():
    corpus = load("homeassistant", *LANGUAGES)
    sizes = len(corpus.train), len(corpus.validation), len(corpus.test)
    assert sizes == (27_577, 1_148, 1_178)
    long = [pair for pair in corpus.train if len(pair[0].split()) >= 3]
    assert len(long) == 17_017
    assert corpus.leakage["verbatim"] < 0.02 and corpus.leakage["near"] < 0.05


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
