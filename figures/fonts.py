"""Text of figures: fonts for all scripts, widths, line breaks.

matplotlib falls back glyph by glyph along a list of families: DejaVu Sans, which comes
with it, and installed ones. A character without a font is drawn as a box.
"""

import bisect
import contextlib
import functools
import logging
import re
import sys
import unicodedata
from collections.abc import Iterable

_BOX = "\u25a1"
_JOINERS = "\u200c\u200d"  # they shape letters
_CJK = "CJK|HIRAGANA|KATAKANA|HANGUL|IDEOGRAPHIC|FULLWIDTH|HALFWIDTH|KANGXI|BOPOMOFO"
MAX_LABEL = 34  # characters
_MAX_TITLE = 400  # characters
_families = ["DejaVu Sans"]  # that cover the texts so far
_missing: set[str] = set()  # scripts without a font


def families() -> list[str]:
    """Returns the font families that cover the texts that `readable` has returned."""
    return list(_families)


def readable(text: str) -> str:
    """Returns a text on one line that can be drawn; boxes replace missing characters.

    Control characters become escapes, as in Python.
    """
    visible = ""
    for c in text:
        kind = unicodedata.category(c)
        if kind in ("Cc", "Cs", "Zl", "Zp"):  # controls, surrogates, line ends
            visible += c.encode("unicode_escape").decode()
        elif c in _JOINERS or kind != "Cf":
            visible += c if c in _JOINERS or _has_font(c) else _BOX
    return visible


@functools.cache
def _has_font(character: str) -> bool:
    """Adds a family with a character, or names once what to install for its script."""
    from matplotlib.font_manager import findfont, get_font

    name, word = unicodedata.name(character, "unnamed"), "symbol"
    if unicodedata.category(character) != "So":
        word = "CJK" if re.match(_CJK, name) else re.split("[ -]", name)[0].capitalize()
    if character.isspace():
        return True
    others = [] if word in _missing else _installed()
    for family in dict.fromkeys([*_families, *others]):
        with contextlib.suppress(OSError, RuntimeError):  # a damaged file
            if get_font(findfont(family)).get_char_index(ord(character)):
                _families.extend({family}.difference(_families))
                return True
    if word in _missing:
        return False
    _missing.add(word)
    package = {"CJK": "fonts-noto-cjk", "symbol": "fonts-symbola"}
    print(
        f"figures: no font for the script {word}: install "
        f"{package.get(word, 'fonts-noto-core')} (Debian, Ubuntu) or another font",
        file=sys.stderr,
        flush=True,
    )
    return False


@functools.cache
def _installed() -> list[str]:
    """Installed font families, the plainest first."""
    from matplotlib import font_manager

    # It would warn of each family without a bold font.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    manager = font_manager.fontManager
    # Fonts may be newer than matplotlib's list of them.
    for path in {*font_manager.findSystemFonts()} - {x.fname for x in manager.ttflist}:
        with contextlib.suppress(Exception):  # many types, for damaged files
            manager.addfont(path)
    special = "Mono|Serif|Naskh|Nastaliq|Kufi|Looped|Display|UI"
    return sorted(
        {
            x.name
            for x in manager.ttflist
            if not x.name.startswith(("Last Resort", "cm"))
        },
        key=lambda name: (bool(re.search(special, name)), "Sans" not in name, name),
    )


def shorten(labels: Iterable[str], limit: int = MAX_LABEL) -> list[str]:
    """Returns readable labels of at most `limit` characters; "…" marks an omission."""
    labels = list(map(str, labels))
    cut = (x if len(x) <= limit else f"{x[: limit - 1].rstrip()}…" for x in labels)
    return list(map(readable, cut))


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Returns the width of a line of text in inches, at a size in points."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    text, renderer = readable(text), RendererAgg(1, 1, 300)
    font = FontProperties(
        family=families(), size=size, weight="bold" if bold else "normal"
    )
    return renderer.get_text_width_height_descent(text, font, ismath=False)[0] / 300


def wrap(
    text: str, inches: float, size: float, *, bold: bool = False, lines: int = 3
) -> list[str]:
    """Breaks a text into lines; "…" marks that text beyond the last line is omitted.

    Args:
        text: one line.
        inches: maximum width of a line.
        size: size of the font in points.
        bold: whether the font is bold.
        lines: maximum number of lines.
    """
    (rest,) = shorten([text.strip()], _MAX_TITLE)
    broken = []
    while rest and len(broken) < lines:
        end = "…" if len(broken) + 1 == lines else ""

        def too_wide(count: int, rest: str = rest, end: str = end) -> bool:
            line = rest[:count] + end * (count < len(rest))
            return width(line, size, bold=bold) > inches

        counts = range(1, len(rest) + 1)
        count = max(1, bisect.bisect(counts, False, key=too_wide))
        if count < len(rest) and not end:  # breaks at a space if there is a space
            count = rest.rfind(" ", 0, count + 1) + 1 or count
        line, rest = rest[:count].rstrip(), rest[count:].lstrip()
        broken.append(line + end * bool(rest))
    return broken or [""]
