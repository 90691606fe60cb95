"""Characters of many scripts as classes, and episodes of few examples of some of them.

*   `matplotlib`: letters of 15 scripts, in the fonts that come with matplotlib.
*   `noto`: letters of the scripts of the Debian package fonts-noto-core, which is
    downloaded and not installed.
*   `folder`: a folder with a folder of images for each class, perhaps within folders of
    scripts, as in Omniglot.

Every fourth script, in alphabetical order, is for testing, and every fourth for
validation. As in Mishra et al. (2018), section 5.1, a character turned by a multiple of
90 degrees is another class. A letter that looks like one of another class, such as A in
Latin and Greek, or O after a turn, is left out.

Differs from the paper: it has Omniglot, with 20 drawings of each of 1,623 characters by
as many people. Here letters are printed in several fonts, then turned, slanted, scaled
and moved at random.

Axes: B episodes; N classes of an episode, K labelled images of each, T = N K + 1;
E images of a character; I rows and columns of an image.
"""

import collections
import functools
import io
import itertools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from base import storage
from base.errors import UserError, one_line
from tasks.common.batches import ALL, Batch, EndlessBatches, Rows
from tasks.common.images import SUFFIXES, read_image
from tasks.common.packages import deb_files, fetch_deb
from tasks.common.splits import SPLITS, held_out_rng
from tasks.common.user_files import UserFiles

SOURCES = ("matplotlib", "noto", "folder")
SIDE = 28  # I
IMAGES = (*SUFFIXES, ".tif", ".tiff")  # the last two cannot be read: damaged
_EXAMPLES = 20  # E of printed letters, as in Omniglot
_LETTERS = range(10, 41)  # numbers of letters of a script; the first ones are taken
_DIFFERENT = 0.9  # maximum correlation of two classes
_PARTS = ("train", "test", "train", "validation")  # of four scripts
_SIZE = 32  # of a font, in pixels


class Characters(NamedTuple):
    """Classes of one split."""

    images: np.ndarray  # uint8 [characters, E, I, I], bright on black
    names: Sequence[str]  # the script and name of each character
    # int [classes, 2], the number of a character and its quarter turns
    classes: np.ndarray
    paths: Sequence[Sequence[Path]] = ()  # of the images of a user's characters


# (images, paths) by script and character; only a user's images have paths.
Scripts = dict[str, dict[str, tuple[np.ndarray, Sequence[Path]]]]


@functools.cache
def read(source: str, *, rotations: bool = True) -> dict[str, Characters]:
    """Returns the classes of a source of printed letters by split."""
    splits = _split(_printed(source), rotations)
    # The first image of each is not distorted.
    clean = [
        np.rot90(x.images[n, 0], turn) for x in splits.values() for n, turn in x.classes
    ]
    ends = np.cumsum([len(x.classes) for x in splits.values()])[:-1]
    parts = np.split(distinct(np.stack(clean)), ends)
    return {
        split: x._replace(images=x.images[:, 1:], classes=x.classes[part])
        for (split, x), part in zip(splits.items(), parts, strict=True)
    }


def read_folder(
    folder: Path, files: UserFiles, *, rotations: bool = True
) -> dict[str, Characters]:
    """Returns the classes of a user's folder by split.

    Scripts are the folders of the folders of images. Without at least four scripts,
    each class is one.

    Args:
        folder: the folder.
        files: those that are left out.
        rotations: whether a turned character is another class.

    Raises:
        UserError: if there are too few classes, a class has a single image, or an image
            cannot be read.
    """
    name = f"config.data.folder={folder}"
    every = class_folders(folder)
    files.check((x for y in every.values() for x in y if files.uses(x)), name)
    used = {path: [*filter(files.uses, every[path])] for path in every}
    classes = {path: x for path, x in used.items() if x}
    if len(classes) < 4:
        raise UserError(
            f"{name} has {len(classes)} folders of images: must have one for each "
            "class, at least 4"
        )
    count, path = min((len(images), path) for path, images in classes.items())
    if count < 2:
        raise UserError(f"{path} has one image: must have at least 2")
    by_script = len({path.parent for path in classes}) >= 4
    scripts: Scripts = collections.defaultdict(dict)
    for path, images in classes.items():
        label = str(path.relative_to(folder))
        script = str(path.parent.relative_to(folder)) if by_script else label
        drawings = np.stack([image_of(x) for x in images[:count]])
        scripts[script][path.name] = drawings, images[:count]
    return _split(scripts, rotations)


def files_of(splits: Mapping[str, Characters]) -> Iterator[tuple[Path, str, str]]:
    """Yields path, split and class of each of a user's images."""
    for split, x in splits.items():
        for name, paths in zip(x.names, x.paths, strict=True):
            yield from ((path, split, name) for path in paths)


def _split(scripts: Scripts, rotations: bool) -> dict[str, Characters]:
    """The characters of each split, each with all its turns as classes."""
    turns, splits = range(4 if rotations else 1), {}
    for split in SPLITS:
        rows = [
            (f"{script} {name}", *images)
            for number, script in enumerate(sorted(scripts))
            for name, images in scripts[script].items()
            if _PARTS[number % 4] == split
        ]
        names, images, paths = map(list, zip(*rows, strict=True))
        classes = np.array([*itertools.product(range(len(rows)), turns)])
        splits[split] = Characters(np.stack(images), names, classes, paths)
    return splits


def distinct(images: np.ndarray) -> np.ndarray:
    """Returns bool [n]: whether an image [n, I, I] differs from all kept before it."""
    count = len(images)
    coarse = images.reshape(count, SIDE // 2, 2, SIDE // 2, 2).mean((2, 4))
    x = coarse.reshape(count, -1).astype(np.float32)
    x -= x.mean(1, keepdims=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    is_new = np.zeros(count, bool)
    for start in range(0, count, 500):
        similar = x[start : start + 500] @ x[: start + 500].T > _DIFFERENT
        for number, row in enumerate(similar, start):
            is_new[number] = not (row[:number] & is_new[:number]).any()
    return is_new


def _printed(source: str) -> Scripts:
    """Prints the letters of each script: uint8 [1 + E, I, I], the first undistorted."""
    from PIL import ImageFont

    fonts = _noto() if source == "noto" else _matplotlib()
    has: dict[str, list[bytes]] = collections.defaultdict(list)  # fonts by letter
    for content in fonts:
        for letter in _letters(content):
            has[letter].append(content)
    scripts = collections.defaultdict(list)
    for letter in sorted(has):
        scripts[unicodedata.name(letter).split()[0].capitalize()].append(letter)
    load = functools.cache(lambda x: ImageFont.truetype(io.BytesIO(x), _SIZE))
    drawn: Scripts = {}
    for script, letters in scripts.items():
        if len(letters) >= _LETTERS.start:
            drawn[script] = {
                letter: (_drawings([load(x) for x in has[letter]], letter), ())
                for letter in letters[: _LETTERS.stop - 1]
                if max(load(has[letter][0]).getmask(letter).size) >= _SIZE // 3
            }
    return drawn


def _letters(font: bytes) -> Iterator[str]:
    """Yields the letters of a font that are no combination of others."""
    from matplotlib.ft2font import FT2Font

    for letter in map(chr, FT2Font(io.BytesIO(font)).get_charmap()):
        if unicodedata.category(letter) in ("Lu", "Ll", "Lo"):
            if unicodedata.name(letter, "") and not unicodedata.decomposition(letter):
                yield letter


def _drawings(fonts: Sequence, letter: str) -> np.ndarray:
    """Prints a letter 1 + E times, always in the same ways."""
    rng = np.random.default_rng(ord(letter))
    chosen = [0, *rng.integers(0, len(fonts), _EXAMPLES)]
    jitter = rng.uniform(-1, 1, (1 + _EXAMPLES, 6))
    jitter[0] = 0
    return np.stack(
        [print_letter(fonts[n], letter, x) for n, x in zip(chosen, jitter, strict=True)]
    )


def print_letter(font, letter: str, jitter: Sequence[float]) -> np.ndarray:
    """Prints a letter in the middle of an image.

    Args:
        font: a font of Pillow.
        letter: the letter.
        jitter: six numbers from -1 to 1: angle, slant, two scales, two shifts.

    Returns:
        uint8 [I, I].
    """
    from PIL import Image, ImageDraw

    large = Image.new("L", (4 * _SIZE, 4 * _SIZE))
    middle = (2 * _SIZE, 2 * _SIZE)
    ImageDraw.Draw(large).text(middle, letter, fill=255, font=font, anchor="mm")
    left, top, right, bottom = large.getbbox() or (0, 0, 1, 1)
    angle, slant, width, height, x, y = jitter
    turn = np.radians(20 * angle)
    rotation = np.array(
        [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    ) @ [[1, 0.25 * slant], [0, 1]]
    # Pixels of the font for a pixel of the image, in which a letter has 19 pixels.
    scale = max(right - left, bottom - top) / 19
    matrix = scale * rotation / (1 + 0.2 * np.array([width, height]))
    centre = np.array([left + right, top + bottom]) / 2
    start = centre - matrix @ (np.array([SIDE, SIDE]) / 2 + 2 * np.array([x, y]))
    coefficients = np.column_stack([matrix, start]).ravel()
    image = large.transform(
        (SIDE, SIDE),
        Image.Transform.AFFINE,
        tuple(coefficients),
        Image.Resampling.BILINEAR,
    )
    return np.asarray(image)


def _matplotlib() -> list[bytes]:
    """Fonts that come with matplotlib: DejaVu, and STIX in its general form."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    paths = sorted(folder.glob("DejaVuS*.ttf")) + sorted(folder.glob("STIXG*.ttf"))
    upright = [path for path in paths if "Display" not in path.name]
    upright.sort(key=lambda path: (path.name != "DejaVuSans.ttf", path.name))
    return [path.read_bytes() for path in upright]


def _noto() -> list[bytes]:
    """Regular and bold fonts of the package fonts-noto-core."""
    path = fetch_deb(
        "fonts-noto-core", alternative="config.data.source=matplotlib needs no package"
    )
    fonts = dict(deb_files(path, r"-(Regular|Bold)\.ttf$"))
    regular_first = sorted(fonts, key=lambda name: ("Bold" in name, name))
    return [fonts[name] for name in regular_first]


def class_folders(folder: Path) -> dict[Path, list[Path]]:
    """Returns the folders that have images, and these images, in order.

    Raises:
        UserError: if `folder` cannot be read.
    """
    try:
        folder.stat()  # `rglob` finds nothing in a folder that is missing
        files = [x for x in sorted(folder.rglob("*")) if x.suffix.lower() in IMAGES]
    except (OSError, ValueError) as error:  # a long name, or a NUL in it
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"folder {one_line(str(folder))}: {reason}") from None
    classes: dict[Path, list[Path]] = collections.defaultdict(list)
    for path in files:
        if not storage.is_of_system(path):
            classes[path.parent].append(path)
    return dict(classes)


def image_of(path: Path) -> np.ndarray:
    """Reads an image as uint8 [I, I]; dark on white becomes bright on black.

    Raises:
        UserError: if the file cannot be read.
    """
    image = read_image(path, SIDE).mean(-1)
    return (255 - image if image.mean() > 127 else image).astype(np.uint8)


def episodes(
    rng: np.random.Generator,
    characters: Characters,
    count: int,
    *,
    ways: int,
    shots: int,
    rows: Rows = ALL,
) -> Batch:
    """Draws episodes: labelled images in random order, then one to classify.

    Args:
        rng: random generator.
        characters: classes of a split.
        count: B.
        ways: N; the classes of an episode differ, and their labels are random.
        shots: K; the images of a class differ.
        rows: episodes to return.

    Returns:
        {"image": uint8 [B, T, I, I], "label": int32 [B, T]}; the last image and label
        of each episode are the query and its answer.
    """
    examples = characters.images.shape[1]
    classes = rng.random((count, len(characters.classes))).argsort(1)[:, :ways]
    drawings = rng.random((count, ways, examples)).argsort(2)[..., : shots + 1]
    order = rng.random((count, ways * shots)).argsort(1)
    query = rng.integers(0, ways, count)
    chosen = np.arange(count)[rows]
    label = np.column_stack([order[chosen] // shots, query[chosen]])  # [B, T]
    example = np.column_stack([order[chosen] % shots, np.full(len(chosen), shots)])
    images = [
        _images(characters, classes[row][labels], drawings[row][labels, number])
        for row, labels, number in zip(chosen, label, example, strict=True)
    ]
    return {"image": np.stack(images), "label": label.astype(np.int32)}


def _images(
    characters: Characters, classes: np.ndarray, drawings: np.ndarray
) -> np.ndarray:
    """The images [T, I, I] of an episode, of classes [T] and drawings [T]."""
    pairs = zip(characters.classes[classes], drawings, strict=True)
    return np.stack(
        [np.rot90(characters.images[n, drawing], turn) for (n, turn), drawing in pairs]
    )


def held_out(
    characters: Characters, split: str, count: int, *, ways: int, shots: int
) -> Batch:
    """Returns episodes of a held-out split, always the same."""
    rng = held_out_rng(split, ways, shots)
    return episodes(rng, characters, count, ways=ways, shots=shots)


def check(characters: Mapping[str, Characters], ways: int, shots: int) -> None:
    """Raises a UserError if a split has too few classes, or a class too few images."""
    for split, each in characters.items():
        if len(each.classes) < ways:
            raise UserError(
                f"config.data.ways is {ways}: must be at most {len(each.classes)}, the "
                f"number of classes for {split}"
            )
        if (images := each.images.shape[1]) <= shots:
            raise UserError(
                f"{shots} shots need {shots + 1} images of each class: a class has "
                f"{images}"
            )


def batches(
    characters: Characters, *, ways: int, shots: int, batch_size: int, seed: int
) -> EndlessBatches:
    """Returns batches of `episodes`, each with a number of shots from 1 to `shots`."""

    def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        options = {"ways": ways, "shots": int(rng.integers(1, shots + 1))}
        return episodes(rng, characters, batch_size, **options, rows=rows)

    return EndlessBatches(make, batch_size, seed)
