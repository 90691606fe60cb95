"""Images with captions: composed scenes, or files in the format of MS-COCO.

A caption is what is left of a text in small letters without punctuation, as captions
are scored ("a dog, and two cats" is five words).

*   `scenes`: see `data.scenes`; training is endless, and what is held out always the
    same.
*   `files`: a JSON file a split, and the folder of its images. It is in the format of
    MS-COCO, {"images": [{"id", "file_name"}, ...], "annotations": [{"image_id",
    "caption"}, ...]}; or in that of Karpathy's splits of MS-COCO and Flickr, one file
    for all three, {"images": [{"filename", "split", "sentences": [{"raw"}, ...]}, ...]}
    (and "filepath", a folder between), whose "restval" is for training, too. Images
    are scaled to a square, and cut where they are longer.

Axes: B images; I, J rows and columns of one; T target steps.
"""

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from data.endless import Batch, EndlessBatches
from data.scenes import Scene, Scenes
from data.vocabulary import EOS, PAD, Vocabulary
from errors import UserError

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_KARPATHY = {"train": ("train", "restval"), "validation": ("val",), "test": ("test",)}
_FORMATS = (
    "MS-COCO, {images: [{id, file_name}], annotations: [{image_id, caption}]}, or of "
    "Karpathy's splits, {images: [{filename, split, sentences: [{raw}]}]}"
)
_TIER = 8  # lengths of targets are multiples of it: each is a shape of its own


class Captioned(Protocol):
    """A image uint8 [I, J, 3], or what is seen of it, and its captions."""

    image: np.ndarray
    captions: tuple[str, ...]


class Shown(NamedTuple):
    """An image as the model sees it, and its captions."""

    image: np.ndarray
    captions: tuple[str, ...]


class Photo(NamedTuple):
    """A image in a file, and its captions."""

    path: Path
    captions: tuple[str, ...]
    size: int

    @property
    def image(self) -> np.ndarray:
        """Reads it: uint8 [size, size, 3]."""
        return read_image(self.path, self.size)

    def identity(self) -> bytes:
        """Tells it from others, and from what it was before it was changed."""
        return f"{self.path} {self.path.stat().st_mtime_ns} {self.size}".encode()


def plain(caption: str) -> str:
    """The words of a caption in small letters, a space between them."""
    return " ".join(_WORD.findall(caption.lower()))


def read_image(path: Path, size: int) -> np.ndarray:
    """Reads a image, scales its shorter side to `size` and cuts out the middle.

    Args:
        path: of a file that Pillow reads: PNG, JPEG, WebP, ...
        size: pixels of a side.

    Returns:
        uint8 [size, size, 3]; what is transparent is white.

    Raises:
        UserError: if it cannot be read.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            image = image.convert("RGBA")
    except FileNotFoundError:
        raise UserError(f"image {path}: no such file") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = "not a image" if "identify" in str(error) else error
        reason = getattr(error, "strerror", None) or reason
        raise UserError(f"image {path} cannot be read: {reason}") from None
    white = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(white, image).convert("RGB")
    return np.asarray(ImageOps.fit(image, (size, size)))


def read_files(captions: Path, folder: Path, size: int, split: str) -> list[Photo]:
    """Reads the captions of a split; the images are read when they are asked for.

    Args:
        captions: a JSON file; see the module's docstring.
        folder: of its images.
        size: pixels of a side.
        split: "train", "validation" or "test", of a file of all three.

    Returns:
        The images that have a caption, in the file's order.

    Raises:
        UserError: for a file of another form, a image that is not there, or no
            caption at all.
    """
    try:
        found = _captions(json.loads(captions.read_text("utf-8")), split)
    except OSError as error:
        raise UserError(f"captions {captions}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"captions {captions} are no JSON: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__} of {error}"
        raise UserError(
            f"captions {captions} are not in the format of {_FORMATS} ({what})"
        ) from None
    photos = []
    for name, texts in found:
        path = folder / name
        if not path.is_file():
            raise UserError(
                f"captions {captions} name {name}: {folder} has no such file"
            )
        if texts := tuple(filter(None, texts)):
            photos.append(Photo(path, texts, size))
    if not photos:
        raise UserError(f"captions {captions} have no caption for {split}")
    return photos


def _captions(content: dict, split: str) -> list[tuple[Path, list[str]]]:
    """Names of images and their captions, of either format."""
    images = content["images"]
    if images and "sentences" in images[0]:
        return [
            (
                Path(image.get("filepath", ""), image["filename"]),
                [plain(sentence["raw"]) for sentence in image["sentences"]],
            )
            for image in images
            if image["split"] in _KARPATHY[split]
        ]
    names = {image["id"]: Path(image["file_name"]) for image in images}
    texts: dict = {number: [] for number in names}
    for annotation in content["annotations"]:
        number = annotation["image_id"]
        if number not in texts:
            raise ValueError(f"a caption of image {number}, which is not among images")
        texts[number].append(plain(annotation["caption"]))
    return [(names[number], found) for number, found in texts.items()]


def read_images(shown: Sequence[Captioned]) -> list[np.ndarray]:
    """The images of some that are perhaps still to be read, by several threads."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda one: one.image, shown))


def all_captions(scenes: Scenes, count: int) -> list[str]:
    """The captions of the first `count` scenes."""
    return [plain(text) for i in range(count) for text in scenes[i].captions]


class Batches(EndlessBatches):
    """Endless training batches; batch i depends on (seed, i) only.

    A image and one of its captions a row: {"source": uint8 [B, I, J, 3], or what is
    shown for images, "target": int32 [B, T]}, T a multiple of 8.

    Args:
        pick: (rng, number) -> what row `number` of all that are ever drawn shows.
        vocabulary: of the captions.
        batch_size: B.
        max_length: of a target, EOS included; longer captions are cut.
        seed: of what is drawn.
    """

    def __init__(
        self,
        pick: Callable[[np.random.Generator, int], Captioned],
        vocabulary: Vocabulary,
        *,
        batch_size: int,
        max_length: int,
        seed: int,
    ):
        super().__init__(seed)
        self._pick, self._vocabulary, self._batch_size = pick, vocabulary, batch_size
        self._max_length = max_length

    def _batch(self, rng: np.random.Generator, index: int) -> Batch:
        every, targets = [], []
        for row in range(self._batch_size):
            shown = self._pick(rng, index * self._batch_size + row)
            caption = shown.captions[rng.integers(len(shown.captions))]
            every.append(shown)
            ids = self._vocabulary.encode(plain(caption))
            if len(ids) > self._max_length:
                ids = [*ids[: self._max_length - 1], EOS]
            targets.append(ids)
        return {"source": np.stack(read_images(every)), "target": pad(targets)}


def pad(targets: Sequence[Sequence[int]]) -> np.ndarray:
    """Ids side by side, int32 [B, T], T a multiple of 8."""
    longest = max(map(len, targets))
    padded = np.full((len(targets), -(-longest // _TIER) * _TIER), PAD, np.int32)
    for row, ids in zip(padded, targets, strict=True):
        row[: len(ids)] = ids
    return padded


def endless(scenes: Scenes) -> Callable[[np.random.Generator, int], Scene]:
    """Picks each scene of a split once."""
    return lambda rng, number: scenes[number]


def again(photos: Sequence[Photo]) -> Callable[[np.random.Generator, int], Photo]:
    """Picks photos at random, again and again."""
    return lambda rng, number: photos[rng.integers(len(photos))]
