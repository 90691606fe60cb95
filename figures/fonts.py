"""Text of figures: fonts for all scripts, widths, line breaks.

Figures use DejaVu Sans, which comes with matplotlib, and for other characters the
installed fonts that have them. A character without a font is drawn as a box, and one
line on standard error says which font to install.
"""

import contextlib
import functools
import logging
import re
import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

_BASE = "DejaVu Sans"
_BOX = "\u25a1"
MAX_LABEL = 34  # characters
_MAX_TITLE = 400  # characters
# Scripts of Chinese, Japanese and Korean, by the first word of a character's name.
_CJK = set(
    "CJK HIRAGANA KATAKANA HANGUL IDEOGRAPHIC FULLWIDTH HALFWIDTH KANGXI BOPOMOFO"
    " KATAKANA-HIRAGANA".split()
)
_families = [_BASE]  # of all texts so far
_has_font: dict[str, bool] = {}
_examples: dict[str, str] = {}  # text without a font, by script
_reported = False


def families() -> list[str]:
    """Returns the font families that cover the texts that `readable` has returned."""
    return list(_families)


def readable(text: str) -> str:
    """Returns a text on one line that can be drawn; boxes replace missing characters.

    Control characters become escapes, as in Python. `report` names the fonts to
    install.
    """
    text = "".join(map(_visible, text))
    missing = _load_fonts(text)
    for part in (
        re.findall(f"[{re.escape(''.join(missing))}]+", text) if missing else ()
    ):
        _examples.setdefault(_script(part[0]), part[:8])
    return "".join(_BOX if c in missing else c for c in text)


def report() -> None:
    """Says once which fonts to install, if `readable` has replaced characters."""
    global _reported
    if not _examples or _reported:
        return
    _reported, scripts = True, set(_examples)
    packages = {
        "fonts-noto-cjk": "CJK" in scripts,
        "fonts-noto-core": scripts - {"CJK", "symbol"},
        "fonts-symbola": "symbol" in scripts,
    }
    names = " ".join(name for name, needed in packages.items() if needed)
    examples = ", ".join(
        f"{text} ({script})" for script, text in sorted(_examples.items())
    )
    print(
        f"figures: no font for {examples}: install {names} (Debian, Ubuntu) or other "
        "fonts with these characters",
        file=sys.stderr,
        flush=True,
    )


def shorten(labels: Iterable[str], limit: int = MAX_LABEL) -> list[str]:
    """Returns readable labels of at most `limit` characters; "…" marks an omission."""
    labels = list(map(str, labels))
    cut = (x if len(x) <= limit else f"{x[: limit - 1].rstrip()}…" for x in labels)
    return list(map(readable, cut))


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Returns the width of a line of text in inches, at a size in points."""
    from matplotlib.font_manager import FontProperties

    text = readable(text)
    weight = "bold" if bold else "normal"
    font = FontProperties(family=families(), size=size, weight=weight)
    pixels, _, _ = _renderer().get_text_width_height_descent(text, font, ismath=False)
    return pixels / _renderer().dpi


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
    while rest:
        last = len(broken) + 1 == lines
        line = _fitting(rest, inches, size, bold, "…" if last else "")
        broken.append(line)
        rest = "" if last else rest[len(line) :].lstrip()
        broken[-1] = line.rstrip()
    return broken or [""]


def _fitting(rest: str, inches: float, size: float, bold: bool, end: str) -> str:
    """The start of a text that fits into a line, with `end` if that is not all."""

    def fits(line: str) -> bool:
        return width(line, size, bold=bold) <= inches

    if fits(rest):
        return rest
    low, high = 1, len(rest)  # rest[:low] fits, or is a single character
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(rest[:middle] + end) else (low, middle)
    if not end:  # breaks at a space if there is a space
        spaces = [m.end() for m in re.finditer(r"\s+", rest[: low + 1])]
        low = spaces[-1] if spaces else low
    return rest[:low].rstrip() + end if end else rest[:low]


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Cs", "Zl", "Zp"):  # controls, surrogates, line ends
        return character.encode("unicode_escape").decode()
    if category == "Cf" and character not in "\u200c\u200d":  # joiners shape letters
        return ""
    return character


@functools.cache
def _renderer() -> Any:
    from matplotlib.backends.backend_agg import RendererAgg

    return RendererAgg(1, 1, 300)


def _load_fonts(text: str) -> set[str]:
    """Adds fonts for the characters of a text; returns those without a font."""
    unknown = {c for c in text if c not in _has_font and not c.isspace()}
    unknown -= {"\u200c", "\u200d"}
    if not unknown:
        return {c for c in text if not _has_font.get(c, True)}
    fonts = _installed()
    for family in _families:
        unknown -= _covered(fonts.get(family), unknown)
    missing_scripts = {_script(c) for c, has_font in _has_font.items() if not has_font}
    searched = {c for c in unknown if _script(c) not in missing_scripts}
    coverage = {x: _covered(path, searched) for x, path in fonts.items() if searched}
    while searched:
        best = max(coverage, key=lambda family: len(coverage[family] & searched))
        if not coverage[best] & searched:
            break
        _families.append(best)
        searched -= coverage[best]
        unknown -= coverage[best]
    _has_font.update(dict.fromkeys(unknown, False))
    return {c for c in text if not _has_font.get(c, True)}


def _covered(path: str | None, characters: set[str]) -> set[str]:
    """The characters that a font file has; all are marked in `_has_font`."""
    from matplotlib.ft2font import FT2Font

    if not path or not characters:
        return set()
    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return set()
    # A font of bitmaps cannot be drawn at other sizes.
    covered = {c for c in characters if font.scalable and font.get_char_index(ord(c))}
    _has_font.update(dict.fromkeys(covered, True))
    return covered


@functools.cache
def _installed() -> dict[str, str]:
    """File of each installed font family, the plainest families first."""
    from matplotlib import font_manager

    # It would warn of each family without a bold font.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    manager = font_manager.fontManager
    listed = {entry.fname for entry in manager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in listed:  # newer than matplotlib's list of fonts
            with contextlib.suppress(Exception):  # many types, for damaged files
                manager.addfont(path)
    files = {}
    for entry in sorted(manager.ttflist, key=_plainness):
        if not entry.name.startswith(("Last Resort", "cm")):
            files.setdefault(entry.name, entry.fname)
    return files


def _plainness(entry: "FontEntry") -> tuple:
    """Sorting key of a font: upright, of normal weight, without serifs first."""
    normal = entry.weight in ("normal", "regular", 400)
    special = re.search("Mono|Serif|Naskh|Nastaliq|Kufi|Looped|Display|UI", entry.name)
    fallback = "CJK" in entry.name and "JP" not in entry.name
    sans = "Sans" in entry.name
    return (
        entry.style != "normal",
        not normal,
        bool(special),
        not sans,
        fallback,
        entry.name,
    )


def _script(character: str) -> str:
    """Script of a character: "CJK", "symbol" or the first word of its name."""
    if unicodedata.category(character) == "So":
        return "symbol"
    word = unicodedata.name(character, "unnamed").partition(" ")[0].partition("-")[0]
    return "CJK" if word in _CJK else word.capitalize()
