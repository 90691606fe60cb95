"""Parallel text: aligned sentence pairs in splits that do not leak into each other.

Corpora, by the name that `load` takes:

*   `homeassistant`: the interface strings of Home Assistant, in 60 languages, out of
    its published wheels (Apache-2.0): those of its components, split by component, and
    those of its web interface, which go to training unless their key names a
    component that is held out.
*   `libreoffice`: paragraphs of the LibreOffice help that share a file and an element
    id, out of Debian packages (MPL-2.0). Split by help file.
*   `files`: the user's own aligned text, one sentence a line.
*   `tfds:NAME`: a translation data set of TensorFlow Datasets.
*   `numbers`: English and German number words, generated; for trials without network.
*   `reversal`: random letters and the same backwards, generated; the toy on which a
    fixed vector forgets and attention does not.

Corpora that come without splits are split by component, file or number and never by
sentence, since near-duplicates sit together. No pair is in two splits, and none twice
in training. The same source text may still occur in training with another translation,
or with a word changed: `leakage` measures how much.

Of the two package corpora, pairs whose sides are equal are dropped from three words
on: they are product names or were never translated. Shorter ones are mostly words that
both languages share ("Display"), and stay.
"""

import gzip
import html.parser
import json
import re
import subprocess
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

import storage
from data.packages import fetch, fetch_deb
from errors import UserError

Pair = tuple[str, str]
Record = tuple[str, str, str]  # group, source, target

SPLITS = ("train", "validation", "test")
HELD_OUT = 0.07  # share of a corpus without splits in each of validation and test

_HOME_ASSISTANT = "2026.2.3"
_FRONTEND = "20261028.6"
_TRAINING = "+"  # begins a group that is in training or left out: "+cloud+todo"
# SHA-256 of the records that the reported results stand on.
_EXPECTED = {
    "homeassistant-2026.2.3-20261028.6-en-de": (
        "c188cd2e59ebe99d460ce4035e309ce3c1c5a8cceb9ee242dabd7d2bd659c8b6"
    ),
    "homeassistant-2026.2.3-20261028.6-en-es": (
        "6b3eb7a426880af7fd54cfe95dfb2335cc2792b0668e9a936e5f368592f1a657"
    ),
    "homeassistant-2026.2.3-20261028.6-en-fr": (
        "d4449425a434c024d44f5c8403d472425cb07fe4cf1692784a9be9e92e20fd3a"
    ),
    "homeassistant-2026.2.3-20261028.6-en-nl": (
        "7d5a8ac927c17325a6d64b313344a154554af1642638197d356eebdb80e5cbe3"
    ),
}


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs of one language pair.

    Attributes:
        train: pairs to train on.
        validation: pairs to choose settings and checkpoints by.
        test: pairs to report on.
        leakage: see `leakage`, of the test split.
        digest: SHA-256 of all three splits.
    """

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    leakage: dict[str, float]
    digest: str

    def __str__(self) -> str:
        """One line for the log."""
        return (
            f"{len(self.train):,} / {len(self.validation):,} / {len(self.test):,} "
            f"pairs to train, validate, test; of the test sources "
            f"{self.leakage['verbatim']:.1%} are verbatim in training and "
            f"{self.leakage['near']:.1%} have a near-duplicate there"
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
        corpus: a name as in the module's docstring.
        source_language: such as "en".
        target_language: such as "de".
        extra: corpora that are added to training as a whole.
        min_words: fewest words of a source in validation and test.
        max_words: most words of either side. Neither limit touches validation and test
            sets that the corpus brings along: a published test set stays whole.
        train_min_words: fewest words of a source in training.
        made_up_names: share of the training pairs with names that get others, see
            `make_up_names`.
        files: for `files`: of each split, "train" at least, a prefix to which
            ".<language>" or ".<language>.gz" is added, or the two paths with a comma
            between. Without "validation" or "test" the end of "train" is cut off.
        split_seed: of the choice of groups for validation and test, where it is ours.

    Returns:
        The splits.

    Raises:
        UserError: for what cannot be found, downloaded or read, naming it.
    """
    languages = source_language, target_language
    if source_language == target_language:
        raise UserError(f"source_language and target_language are {target_language!r}")
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
            f"corpus {corpus}: all {count} training pairs are in validation or test, "
            "from where they are taken out"
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
    """Replaces names that a translation copies by others that never occur again.

    What a model copies in a text about something new, it has not seen in training.
    Names that it cannot learn by heart teach it to copy. A name is a word that both
    sides hold and that has a capital or an underscore in it or stands behind a brace;
    a made-up one is the first half of one name and the second half of another.

    Args:
        pairs: sentence pairs.
        share: of the pairs with names, how many get others, in [0, 1].
        seed: of the choice of pairs and names.

    Returns:
        As many pairs, in the same order.

    Raises:
        UserError: if `share` is not in [0, 1].
    """
    if not 0 <= share <= 1:
        raise UserError(f"made_up_names is {share}: must be in [0, 1]")
    names = [sorted(_names(source) & _names(target)) for source, target in pairs]
    rng = np.random.default_rng(seed)
    pools = defaultdict(set)  # placeholders such as {host_name} by themselves
    for name in {name for found in names for name in found}:
        pools[name.islower()].add(name)
    pools = {kind: sorted(pool) for kind, pool in pools.items()}

    def make_up(name: str) -> str:
        first, second = rng.choice(pools[name.islower()], 2)
        return first[: (len(first) + 1) // 2] + second[len(second) // 2 :]

    def rename(pair: Pair, found: Sequence[str]) -> Pair:
        table = {name: make_up(name) for name in found}
        source, target = (
            re.sub(r"\w+", lambda word: table.get(word[0], word[0]), text)
            for text in pair
        )
        return source, target

    return [
        rename(pair, found) if found and rng.random() < share else pair
        for pair, found in zip(pairs, names, strict=True)
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
    """Measures how much of a test set training has seen.

    Returns:
        Shares of the test pairs: `verbatim`, the source is also one in training;
        `near`, the words of the source (in lower case, digits as 0, as a set) and
        those of a training source have a Jaccard similarity of at least 0.8. Verbatim
        ones are near ones too.
    """
    sources = {source for source, _ in train}
    sets = sorted({_words(source) for source in sources}, key=sorted)
    holds = defaultdict(list)
    for n, words in enumerate(sets):
        for word in words:
            holds[word].append(n)

    def is_near(words: frozenset[str]) -> bool:
        # A set this similar holds at least 0.8 of the words, so one of the rarest.
        rarest = sorted(words, key=lambda word: len(holds.get(word, ())))
        for word in rarest[: len(words) - -(-4 * len(words) // 5) + 1]:
            for n in holds.get(word, ()):
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


def _within(pairs: Iterable[Pair], least: int, most: int) -> list[Pair]:
    return [
        (source, target)
        for source, target in pairs
        if least <= len(source.split()) <= most and len(target.split()) <= most
    ]


def _splits(
    corpus: str,
    languages: tuple[str, str],
    files: Mapping[str, str] | None,
    seed: int,
    limits: tuple[int, int],
) -> dict[str, list[Pair]]:
    if corpus == "files":
        return _hold_out(_read_files(files or {}, languages), limits)
    if corpus.startswith("tfds:"):
        return _hold_out(_read_tfds(corpus.removeprefix("tfds:"), languages), limits)
    if corpus == "numbers":
        return _split_groups(_numbers(languages, seed), seed, limits)
    if corpus == "reversal":
        return _split_groups(_reversal(limits, seed), seed, limits)
    if corpus == "homeassistant":
        name = f"{corpus}-{_HOME_ASSISTANT}-{_FRONTEND}"
        convert = _read_home_assistant
    elif corpus == "libreoffice":
        name, convert = corpus, _read_libreoffice
    else:
        raise UserError(
            f"config.data.corpus is {corpus!r}: must be homeassistant, libreoffice, "
            "files, tfds:NAME, numbers or reversal"
        )
    records = _cached(f"{name}-{'-'.join(languages)}", convert, languages)
    records = [
        (group, source, target)
        for group, source, target in records
        if source != target or len(source.split()) < 3
    ]
    return _split_groups(records, seed, limits)


def _split_groups(
    records: Sequence[Record], seed: int, limits: tuple[int, int]
) -> dict[str, list[Pair]]:
    """Fills test and validation with whole groups, in the order of a hash."""
    groups = defaultdict(list)
    for group, source, target in records:
        groups[group].append((source, target))
    splits: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    others = {g: groups.pop(g) for g in list(groups) if g.startswith(_TRAINING)}
    held_out = set()
    wanted = HELD_OUT * sum(map(len, groups.values()))
    for group in sorted(groups, key=lambda g: storage.sha256(f"{seed}:{g}".encode())):
        short = (name for name in ("test", "validation") if len(splits[name]) < wanted)
        name = next(short, "train")
        splits[name] += groups[group]
        if name != "train":
            held_out.add(group)
    for group, pairs in others.items():
        if held_out.isdisjoint(group.split(_TRAINING)):
            splits["train"] += pairs
    for name in ("validation", "test"):
        splits[name] = _within(splits[name], *limits)
    return splits


def _hold_out(
    splits: dict[str, list[Pair]], limits: tuple[int, int]
) -> dict[str, list[Pair]]:
    """Cuts missing splits off the end of training, neighbours together."""
    size = max(int(HELD_OUT * len(splits["train"])), 1)
    for name in ("test", "validation"):
        if name not in splits:
            splits[name] = _within(splits["train"][-size:], *limits)
            splits["train"] = splits["train"][:-size]
    return splits


def _clean(text: str) -> str:
    return " ".join(text.split())


def _cached(name: str, convert, languages: tuple[str, str]) -> list[Record]:
    """The distinct records of a package, converted once into one file of the cache.

    Its first line is the SHA-256 of the rest.
    """
    path = storage.cache_folder() / f"{name}.jsonl"
    content = path.read_bytes() if path.exists() else b"\n"
    digest, _, content = content.partition(b"\n")
    if storage.sha256(content).encode() != digest:
        first: dict[Pair, Record] = {}
        for group, source, target in convert(*languages):
            source, target = _clean(source), _clean(target)
            if source and target:
                first.setdefault((source, target), (group, source, target))
        lines = (json.dumps(r, ensure_ascii=False) for r in first.values())
        content = "\n".join(lines).encode()
        storage.write(path, storage.sha256(content).encode() + b"\n" + content)
    if storage.sha256(content) != _EXPECTED.get(name, storage.sha256(content)):
        raise UserError(
            f"the records of {name} in {path.parent} are not those that were "
            "published: delete its files there to download them again"
        )
    return [tuple(json.loads(line)) for line in content.decode().split("\n") if line]


def _read_home_assistant(source: str, target: str) -> Iterator[Record]:
    path = fetch("homeassistant", _HOME_ASSISTANT, python_version="3.14")
    place = r"homeassistant/components/(\w+)/translations/([\w-]+)\.json"
    components = set()
    for component, _, *pair in _read_wheel(path, place, source, target):
        components.add(component)
        yield component, *pair
    path = fetch("home-assistant-frontend", _FRONTEND, python_version="3.14")
    place = r"hass_frontend/static/translations/(?:(.+)/)?([\w-]+)-[0-9a-f]{32}\.json"
    for panel, key, *pair in _read_wheel(path, place, source, target):
        about = components.intersection(".".join([panel, *key]).split("."))
        yield _TRAINING + _TRAINING.join(sorted(about)), *pair


def _read_wheel(
    path: Path, place: str, source: str, target: str
) -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    """Yields (table, key, source, target) of the string tables of a wheel, aligned.

    Args:
        path: of the wheel.
        place: a pattern of the tables' paths; its groups are name and language.
        source: language of the first text of a record.
        target: language of the second.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            tables = defaultdict(dict)
            for name in wheel.namelist():
                if match := re.fullmatch(place, name):
                    tables[match[1] or ""][match[2]] = name
            known = {language for table in tables.values() for language in table}
            for language in (source, target):
                if language not in known:
                    near = get_close_matches(language, known, 5, 0) or sorted(known)
                    raise UserError(
                        f"Home Assistant has no language {language!r}; near ones: "
                        f"{', '.join(near)}"
                    )
            for group in sorted(tables):
                table = tables[group]
                if source in table and target in table:
                    texts, translations = (
                        dict(_flatten(json.loads(wheel.read(table[language]))))
                        for language in (source, target)
                    )
                    for key, text in texts.items():
                        pair = text, translations.get(key, "")
                        # A reference to another string, not text.
                        if not any("[%key:" in side for side in pair):
                            yield group, key, *pair
    except zipfile.BadZipFile:
        raise UserError(f"{path} is not a wheel: delete it to download again") from None


def _flatten(table: Mapping, place: tuple = ()) -> Iterator[tuple[tuple, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, (*place, name))
        else:
            yield (*place, name), value


def _read_libreoffice(source: str, target: str) -> Iterator[Record]:
    pages, translations = (_read_help(language) for language in (source, target))
    for page in sorted(pages.keys() & translations.keys()):
        for place, text in pages[page].items():
            if place in translations[page]:
                yield page, text, translations[page][place]


def _read_help(language: str) -> dict[str, dict[str, str]]:
    """Text by page and element id."""
    language = {"en": "en-us"}.get(language, language.lower())
    path = fetch_deb(f"libreoffice-help-{language}")
    pages = {}
    try:
        # dpkg-deb knows every compression that a .deb comes in; Python does not.
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    page = re.search(r"/help/[^/]+/(text/.*)\.html$", member.name)
                    if page:
                        parser = _HelpPage()
                        parser.feed(archive.extractfile(member).read().decode())
                        pages[page[1]] = parser.texts
    except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    return pages


class _HelpPage(html.parser.HTMLParser):
    """Collects the paragraphs and headings of a help page by their id."""

    def __init__(self):
        super().__init__()
        self.texts: dict[str, str] = {}
        self._place: str | None = None

    def handle_starttag(self, tag, attributes):
        if re.fullmatch(r"p|h\d", tag):
            fields = dict(attributes)
            place = fields.get("id") or ""
            code = "code" in (fields.get("class") or "")
            text = place.startswith(("par_", "hd_")) and not code
            # A page may embed an element twice: the first counts.
            self._place = place if text and place not in self.texts else None
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag):
        if re.fullmatch(r"p|h\d", tag):
            self._place = None

    def handle_data(self, data):
        if self._place:
            self.texts[self._place] = self.texts.get(self._place, "") + data


def _read_files(
    files: Mapping[str, str], languages: tuple[str, str]
) -> dict[str, list[Pair]]:
    if not files.get("train"):
        raise UserError(
            "corpus files needs config.data.files.train, a split's place: a prefix "
            f"(PREFIX.{languages[0]} and PREFIX.{languages[1]}, .gz too) or "
            "SOURCE_FILE,TARGET_FILE"
        )
    return {
        name: _read_aligned(*_two_paths(files[name], languages))
        for name in SPLITS
        if files.get(name)
    }


def _two_paths(place: str, languages: tuple[str, str]) -> list[Path]:
    if "," in place:
        paths = [Path(part.strip()) for part in place.split(",")]
        if len(paths) != 2:
            raise UserError(f"{place} names {len(paths)} files: must be two")
    else:
        paths = [Path(f"{place}.{language}") for language in languages]
    for k, path in enumerate(paths):
        if not path.exists():
            paths[k] = path.with_name(path.name + ".gz")
        if not paths[k].is_file():
            raise UserError(f"{path} does not exist, nor does {path.name}.gz")
    return paths


def _read_aligned(source: Path, target: Path) -> list[Pair]:
    texts, translations = _read_lines(source), _read_lines(target)
    short = min(len(texts), len(translations))
    if len(texts) != len(translations):
        longer = source if len(texts) > short else target
        raise UserError(
            f"{source} has {len(texts)} lines and {target} has {len(translations)}: "
            f"line {short + 1} of {longer} has no partner"
        )
    pairs = []
    for n, (text, translation) in enumerate(zip(texts, translations, strict=True), 1):
        if bool(text) != bool(translation):
            empty, full = (target, source) if text else (source, target)
            raise UserError(
                f"line {n} of {empty} is empty and line {n} of {full} is not: "
                "remove both, or add the translation"
            )
        if text:
            pairs.append((text, translation))
    if not pairs:
        raise UserError(f"{source} and {target} hold nothing but empty lines")
    return pairs


def _read_lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if not content:
        raise UserError(f"{path} is empty")
    lines = []
    # Not splitlines: it also breaks at characters that are text here (U+2028, U+0085).
    for n, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            lines.append(_clean(line.decode("utf-8-sig" if n == 1 else "utf-8")))
        except UnicodeDecodeError as error:
            raise UserError(
                f"line {n} of {path} is not UTF-8: byte 0x{line[error.start]:02x} at "
                f"column {error.start + 1}"
            ) from None
    return lines


def _read_tfds(name: str, languages: tuple[str, str]) -> dict[str, list[Pair]]:
    try:
        import tensorflow_datasets as tfds

        sources = tfds.data_source(name)
    except Exception as error:  # of a hundred builders
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(
            f"tfds:{name} cannot be opened ({reason}); some data sets, such as wmt*, "
            "need `pip install tensorflow-cpu`, and the corpus files does without"
        ) from None
    if "train" not in sources:
        raise UserError(f"tfds:{name} has no split train, only {', '.join(sources)}")
    splits = {}
    for split in SPLITS:
        if split in sources:
            splits[split] = pairs = []
            for n in range(len(sources[split])):
                example = sources[split][n]
                for language in languages:
                    if not isinstance(example.get(language), (bytes, str)):
                        raise UserError(
                            f"tfds:{name} has no text in {language!r}: it holds "
                            f"{', '.join(example)}"
                        )
                pair = tuple(_clean(_text(example[x])) for x in languages)
                if all(pair):
                    pairs.append(pair)
    return splits


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _numbers(languages: tuple[str, str], seed: int) -> list[Record]:
    words = {"en": english_number, "de": german_number}
    if not words.keys() >= set(languages):
        raise UserError(f"corpus numbers is in en and de, not {'-'.join(languages)}")
    chosen = np.random.default_rng(seed).choice(1_000_000, 2_000, replace=False)
    return [(str(n), *(words[x](int(n)) for x in languages)) for n in chosen]


def _reversal(limits: tuple[int, int], seed: int) -> list[Record]:
    """Ten thousand rows of letters, of lengths drawn evenly from `limits`."""
    if limits[0] > limits[1]:
        return []
    rng = np.random.default_rng(seed)
    records = []
    for length in rng.integers(limits[0], limits[1] + 1, 10_000):
        letters = rng.choice(list("abcdefghijklmnopqrst"), length)
        source, target = " ".join(letters), " ".join(letters[::-1])
        records.append((source, source, target))
    return records


_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_GERMAN = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn "
    "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
_GERMAN_TENS = (
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
).split()


def english_number(n: int) -> str:
    """Words of a number below a million: 21 is "twenty-one"."""
    for unit, name in ((1000, "thousand"), (100, "hundred")):
        if n >= unit:
            rest = f" {english_number(n % unit)}" if n % unit else ""
            return f"{english_number(n // unit)} {name}{rest}"
    if n < 20:
        return _ENGLISH[n]
    tens = _ENGLISH_TENS[n // 10 - 2]
    return f"{tens}-{_ENGLISH[n % 10]}" if n % 10 else tens


def german_number(n: int) -> str:
    """The word of a number below a million: 21 is "einundzwanzig"."""
    return _german(n) + ("s" if n % 100 == 1 else "")


def _german(n: int) -> str:
    for unit, name in ((1000, "tausend"), (100, "hundert")):
        if n >= unit:
            return _german(n // unit) + name + (_german(n % unit) if n % unit else "")
    if n < 20:
        return _GERMAN[n]
    tens = _GERMAN_TENS[n // 10 - 2]
    return f"{_GERMAN[n % 10]}und{tens}" if n % 10 else tens
