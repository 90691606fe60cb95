"""Interface strings of Home Assistant, in 65 languages.

Read from its published wheels (Apache-2.0): the strings of its components, grouped by
component, and the strings of its web interface. The latter are only for training, and
are left out if their key names a held-out component. In a language with few strings of
components, the strings of the web interface are grouped by section instead, and held
out like components; those with equal sides are left out.
"""

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from base.errors import FieldError
from tasks.common.packages import fetch
from tasks.translation.corpora.records import TRAINING, Record, cached

_HOME_ASSISTANT = "2026.2.3"
_FRONTEND = "20261028.6"
# SHA-256 of the wheels.
_HASHES = {
    "homeassistant": (
        "8167820cac4b8defe895fd2c36ac23402a445d1fe6028e8cde24caabb935282c"
    ),
    "home-assistant-frontend": (
        "8b113579212f36ef74e76cd998e5690422d108f486c7ea4395fe2f5aa21206ac"
    ),
}
_FEW = 2000  # with fewer pairs from components, the web interface is held out, too
_SECTION = 4  # names of a key that form a section, as in ui.panel.config.automation
# SHA-256 of the records used for the reported results, by languages.
_EXPECTED = {
    "en-de": "c188cd2e59ebe99d460ce4035e309ce3c1c5a8cceb9ee242dabd7d2bd659c8b6",
    "en-es": "6b3eb7a426880af7fd54cfe95dfb2335cc2792b0668e9a936e5f368592f1a657",
    "en-fr": "d4449425a434c024d44f5c8403d472425cb07fe4cf1692784a9be9e92e20fd3a",
    "en-nl": "7d5a8ac927c17325a6d64b313344a154554af1642638197d356eebdb80e5cbe3",
}


def records(source: str, target: str) -> list[Record]:
    """Reads the strings of two languages.

    Raises:
        UserError: if a language is missing, a package cannot be downloaded, or the
            records differ from the published ones.
    """
    languages = f"{source}-{target}"
    name = f"home-assistant-strings-{_HOME_ASSISTANT}-{_FRONTEND}-{languages}"
    return cached(name, lambda: _read(source, target), _EXPECTED.get(languages))


def _read(source: str, target: str) -> Iterator[Record]:
    path = _fetch("homeassistant", _HOME_ASSISTANT)
    pattern = r"homeassistant/components/(\w+)/translations/([\w-]+)\.json"
    components, pairs = set(), set()
    for component, _, *pair in _read_wheel(path, pattern, source, target):
        if all(pair):
            components.add(component)
            pairs.add(tuple(pair))
        yield component, *pair
    path = _fetch("home-assistant-frontend", _FRONTEND)
    pattern = r"hass_frontend/static/translations/(?:(.+)/)?([\w-]+)-[0-9a-f]{32}\.json"
    for panel, key, *pair in _read_wheel(path, pattern, source, target):
        names = ".".join(key).split(".")
        named = components.intersection([*panel.split("."), *names])
        if len(pairs) < _FEW and not named:
            if pair[0] != pair[1]:  # most of these strings are not translated
                yield f"web:{'.'.join(names[:_SECTION])}", *pair
        else:
            yield TRAINING + TRAINING.join(sorted(named)), *pair


def _fetch(name: str, version: str) -> Path:
    return fetch(name, version, sha256=_HASHES[name], python_version="3.14")


def _read_wheel(
    path: Path, pattern: str, source: str, target: str
) -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    """Yields (table, key, source, target) for the aligned strings of a wheel.

    `pattern` is a regular expression of the tables' paths, with groups for table and
    language.
    """
    with zipfile.ZipFile(path) as wheel:
        tables = defaultdict(dict)
        for name in wheel.namelist():
            if match := re.fullmatch(pattern, name):
                tables[match[1] or ""][match[2]] = name
        languages = {language for table in tables.values() for language in table}
        for side, language in (("source", source), ("target", target)):
            if language not in languages:
                near = get_close_matches(language, sorted(languages), cutoff=0)
                accepted = (
                    f"one of the {len(languages)} languages of Home Assistant, such as "
                    f"{', '.join(near)}"
                )
                name = f"config.data.{side}_language"
                raise FieldError(name, language, accepted)
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


def _flatten(table: Mapping, key: tuple = ()) -> Iterator[tuple[tuple, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, (*key, name))
        else:
            yield (*key, name), value
