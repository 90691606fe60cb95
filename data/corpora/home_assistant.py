"""Interface strings of Home Assistant, in 60 languages.

Read from its published wheels (Apache-2.0): the strings of its components, grouped by
component, and the strings of its web interface. The latter are only for training, and
are left out if their key names a held-out component.
"""

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from data.corpora.records import TRAINING, Record, cached
from data.packages import fetch
from errors import UserError

_HOME_ASSISTANT = "2026.2.3"
_FRONTEND = "20261028.6"
# SHA-256 of the records used for the reported results, by languages.
_EXPECTED = {
    "en-de": "c188cd2e59ebe99d460ce4035e309ce3c1c5a8cceb9ee242dabd7d2bd659c8b6",
    "en-es": "6b3eb7a426880af7fd54cfe95dfb2335cc2792b0668e9a936e5f368592f1a657",
    "en-fr": "d4449425a434c024d44f5c8403d472425cb07fe4cf1692784a9be9e92e20fd3a",
    "en-nl": "7d5a8ac927c17325a6d64b313344a154554af1642638197d356eebdb80e5cbe3",
}


def records(source: str, target: str) -> list[Record]:
    """Reads the strings of two languages.

    Args:
        source: language of the first text, such as "en".
        target: language of the second text.

    Raises:
        UserError: if a language is missing, a package cannot be downloaded, or the
            records differ from the published ones.
    """
    languages = f"{source}-{target}"
    name = f"homeassistant-{_HOME_ASSISTANT}-{_FRONTEND}-{languages}"
    return cached(name, lambda: _read(source, target), _EXPECTED.get(languages))


def _read(source: str, target: str) -> Iterator[Record]:
    path = fetch("homeassistant", _HOME_ASSISTANT, python_version="3.14")
    pattern = r"homeassistant/components/(\w+)/translations/([\w-]+)\.json"
    components = set()
    for component, _, *pair in _read_wheel(path, pattern, source, target):
        components.add(component)
        yield component, *pair
    path = fetch("home-assistant-frontend", _FRONTEND, python_version="3.14")
    pattern = r"hass_frontend/static/translations/(?:(.+)/)?([\w-]+)-[0-9a-f]{32}\.json"
    for panel, key, *pair in _read_wheel(path, pattern, source, target):
        named = components.intersection(".".join([panel, *key]).split("."))
        yield TRAINING + TRAINING.join(sorted(named)), *pair


def _read_wheel(
    path: Path, pattern: str, source: str, target: str
) -> Iterator[tuple[str, tuple[str, ...], str, str]]:
    """Yields (table, key, source, target) for the aligned strings of a wheel.

    Args:
        path: path of the wheel.
        pattern: regular expression of the tables' paths, with groups for table and
            language.
        source: language of the first text of a record.
        target: language of the second text.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            tables = defaultdict(dict)
            for name in wheel.namelist():
                if match := re.fullmatch(pattern, name):
                    tables[match[1] or ""][match[2]] = name
            languages = {language for table in tables.values() for language in table}
            for language in (source, target):
                if language not in languages:
                    matches = get_close_matches(language, languages, n=5, cutoff=0)
                    raise UserError(
                        f"Home Assistant has no language {language!r}; similar ones: "
                        f"{', '.join(matches or sorted(languages))}"
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


def _flatten(table: Mapping, key: tuple = ()) -> Iterator[tuple[tuple, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, (*key, name))
        else:
            yield (*key, name), value
