"""Image files: safe decoding, and access to many of them.

Axes: I rows and columns of an image.
"""

import functools
import io
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from base import storage
from base.errors import UserError
from tasks.common.text import normal
from tasks.common.user_files import UserFiles

# Pillow reads more formats; some of them start other programs.
_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
_MAX_BYTES = 2**30  # larger data sets are read on access instead of kept in memory
_MAX_PIXELS = 50_000_000  # of an image file; decoding takes up to 12 bytes for each


def read_image(path: Path, size: int, *, whole: bool = False) -> np.ndarray:
    """Reads an image, scales its shorter side to `size` and crops the longer one.

    If `whole`, scales its longer side instead and pads the shorter one with black.

    Returns:
        uint8 [size, size, 3], with a white background.

    Raises:
        UserError: if the file cannot be read, or has more than 50 million pixels.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # checked here, in one line
    try:
        content = io.BytesIO(storage.read_regular(path))
        with Image.open(content, formats=_IMAGE_FORMATS) as file:
            if file.width * file.height > _MAX_PIXELS:
                raise UserError(
                    f"image {path} has {file.width:,} x {file.height:,} pixels: must "
                    f"have at most {_MAX_PIXELS:,}"
                )
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            image = image.convert("RGBA")
    except FileNotFoundError:
        raise UserError(f"image {path}: no such file") from None
    except UnidentifiedImageError:
        raise UserError(
            f"image {path} cannot be read: not an image in the format "
            f"{', '.join(_IMAGE_FORMATS[:-1])} or {_IMAGE_FORMATS[-1]}"
        ) from None
    except UserError:
        raise
    except Exception as error:  # decoders raise errors of all kinds
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = " ".join(reason.split())
        raise UserError(f"image {path} cannot be read: {reason}") from None
    white = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(white, image).convert("RGB")
    resize = ImageOps.pad if whole else ImageOps.fit
    return np.asarray(resize(image, (size, size)))


image_files = functools.partial(UserFiles, lambda path: read_image(path, 8), "image")


class Photos(Sequence):
    """N image files, read on access: uint8 [I, I, 3]; several as [B, I, I, 3]."""

    def __init__(self, paths: Sequence[Path], size: int, *, whole: bool = False):
        self.paths = np.array(paths, object)
        self._read = functools.partial(read_image, size=size, whole=whole)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        paths = self.paths[index]
        if isinstance(paths, Path):
            return self._read(paths)
        with ThreadPoolExecutor() as pool:
            return np.stack([*pool.map(self._read, paths)])


def load(
    paths: Sequence[Path], size: int, *, whole: bool = False
) -> np.ndarray | Photos:
    """Returns images, uint8 [N, size, size, 3], read on access if they exceed 1 GB.

    For the arguments see `Photos`.
    """
    photos = Photos(paths, size, whole=whole)
    return photos[:] if 3 * size**2 * len(paths) <= _MAX_BYTES else photos


def read_classes(path: Path, name: str, files: UserFiles) -> list[tuple[Path, str]]:
    """Reads a folder with one subfolder of images per class.

    Files that an operating system leaves beside images are ignored.

    Args:
        path: path of the folder; the classes are named after its subfolders.
        name: name of the folder, for errors.
        files: those that are left out.

    Returns:
        Path and class of each image, by class.

    Raises:
        UserError: if there are no classes, a class has no images, or an image cannot
            be read.
    """
    try:
        entries = _entries(path)
        folders = {p: _entries(p) for p in entries if p.is_dir()}
    except (FileNotFoundError, NotADirectoryError):
        folders = {}
    except OSError as error:
        raise UserError(f"{name}: {error.filename or path}: {error.strerror}") from None
    classes = {p: normal(p.name) for p in folders if not p.name.startswith(".")}
    if not classes:
        raise UserError(f"{name}: must be a folder of folders of images, one per class")
    every = [(p, label) for x, label in classes.items() for p in folders[x]]
    images = [(p, label) for p, label in every if p.suffix.lower() in SUFFIXES]
    others = len(every) - len(images)
    files.check([p for p, _ in images if files.uses(p)], name)
    images = [(p, label) for p, label in images if files.uses(p)]
    filled = {p.parent for p, _ in images}
    for subfolder in classes:
        if subfolder not in filled:
            raise UserError(f"{subfolder} has no images ({', '.join(SUFFIXES)})")
    rules = {
        f"in class folders with another suffix than {', '.join(SUFFIXES)}": others,
        "not in a class folder": sum(not p.is_dir() for p in entries),
        "hidden folders": len(folders) - len(classes),
    }
    left_out = ", ".join(f"{n:,} {rule}" for rule, n in rules.items() if n)
    label, count = Counter(classes.values()).most_common(1)[0]
    if count > 1:
        raise UserError(f"{path} has several folders of the class {label!r}")
    _say(
        f"data: {len(images):,} images in {len(classes)} classes read from {path}"
        + f"; left out: {left_out}" * bool(left_out)
    )
    return images


def _entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not storage.is_of_system(p))


@functools.cache  # a run reads the folder twice
def _say(line: str) -> None:
    print(line, file=sys.stderr)
