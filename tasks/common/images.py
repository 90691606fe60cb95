"""Image files: safe decoding, and access to many of them.

Axes: I rows and columns of an image.
"""

import functools
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from base import storage
from base.errors import UserError
from tasks.common.user_files import UserFiles

# Pillow reads more formats; some of them start other programs.
_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")  # of their files
_MAX_PIXELS = 50_000_000  # of an image file; decoding takes up to 12 bytes for each


def read_image(path: Path, size: int) -> np.ndarray:
    """Reads an image, scales its shorter side to `size` and crops the longer one.

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
    return np.asarray(ImageOps.fit(image, (size, size)))


image_files = functools.partial(UserFiles, lambda path: read_image(path, 8), "image")


class Photos(Sequence):
    """N image files, read on access: uint8 [I, I, 3]; several as [B, I, I, 3]."""

    def __init__(self, paths: Sequence[Path], size: int):
        self.paths, self.size = np.array(paths, object), size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        paths = self.paths[index]
        if isinstance(paths, Path):
            return read_image(paths, self.size)
        read = functools.partial(read_image, size=self.size)
        with ThreadPoolExecutor() as pool:
            return np.stack([*pool.map(read, paths)])
