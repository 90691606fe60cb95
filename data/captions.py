"""Images with captions: composed scenes, or files in the format of MS-COCO.

Captions are lower case and without punctuation, as captioning metrics expect them
("A dog, and two cats" is five words).

*   `scenes`: see `data.scenes`; training is endless, the held-out scenes are fixed.
*   `files`: a JSON file for each split, and the folder of its images. The file has the
    format of MS-COCO, {"images": [{"id", "file_name"}, ...], "annotations":
    [{"image_id", "caption"}, ...]}, or of Karpathy's splits of MS-COCO and Flickr, one
    file for all splits: {"images": [{"filename", "split", "sentences": [{"raw"}, ...]},
    ...]}. There, images may have a subfolder "filepath", and the split "restval"
    belongs to training. Images are scaled and cropped to a square.

Axes: B images; I, J rows and columns of an image; T target steps.
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
_LENGTH_MULTIPLE = 8  # T is a multiple of it: every new length costs a compilation


class Captioned(Protocol):
    """An image uint8 [I, J, 3], or its feature map, and its captions."""

    image: np.ndarray
    captions: tuple[str, ...]


class CaptionedImage(NamedTuple):
    """An image or its feature map, in memory, and its captions."""

    image: np.ndarray
    captions: tuple[str, ...]


class Photo(NamedTuple):
    """An image file and its captions."""

    path: Path
    captions: tuple[str, ...]
    size: int

    @property
    def image(self) -> np.ndarray:
        """Reads the image: uint8 [size, size, 3]."""
        return read_image(self.path, self.size)

    def identity(self) -> bytes:
        """Returns a cache key, which changes when the file changes."""
        return f"{self.path} {self.path.stat().st_mtime_ns} {self.size}".encode()


def plain(caption: str) -> str:
    """Returns the words of a caption in lower case, separated by spaces."""
    return " ".join(_WORD.findall(caption.lower()))


def read_image(path: Path, size: int) -> np.ndarray:
    """Reads an image, scales its shorter side to `size` and crops the longer one.

    Args:
        path: image file of a format that Pillow reads, such as PNG, JPEG or WebP.
        size: side of the returned image, in pixels.

    Returns:
        uint8 [size, size, 3], with a white background.

    Raises:
        UserError: if the file cannot be read.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            image = image.convert("RGBA")
    except FileNotFoundError:
        raise UserError(f"image {path}: no such file") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = "not an image" if "identify" in str(error) else error
        reason = getattr(error, "strerror", None) or reason
        raise UserError(f"image {path} cannot be read: {reason}") from None
    white = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(white, image).convert("RGB")
    return np.asarray(ImageOps.fit(image, (size, size)))


def read_files(captions: Path, folder: Path, size: int, split: str) -> list[Photo]:
    """Reads the captions of a split; images are read on access.

    Args:
        captions: JSON file; see the module's docstring.
        folder: folder of its images.
        size: side of the images, in pixels.
        split: "train", "validation" or "test"; selects images in Karpathy's format.

    Returns:
        The images that have captions, in the order of the file.

    Raises:
        UserError: if the file cannot be read or has another format, an image file is
            missing, or there are no captions.
    """
    try:
        texts_by_image = _captions(json.loads(captions.read_text("utf-8")), split)
    except OSError as error:
        raise UserError(f"captions {captions}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"captions {captions} are not JSON: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"captions {captions} are not in the format of {_FORMATS} "
            f"({type(error).__name__}: {error})"
        ) from None
    photos = []
    for name, texts in texts_by_image:
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
    """Paths of the images and their captions, from either format."""
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
            raise ValueError(f"a caption of image {number}, which is not in images")
        texts[number].append(plain(annotation["caption"]))
    return [(names[number], captions) for number, captions in texts.items()]


def read_images(examples: Sequence[Captioned]) -> list[np.ndarray]:
    """Returns the images of examples; reads files with several threads."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda example: example.image, examples))


def all_captions(scenes: Scenes, count: int) -> list[str]:
    """Returns the captions of the first `count` scenes."""
    return [plain(text) for i in range(count) for text in scenes[i].captions]


class Batches(EndlessBatches):
    """Endless training batches; batch i depends on (seed, i) only.

    A batch is {"source": uint8 [B, I, J, 3] or feature maps, "target": int32 [B, T]},
    with one caption for each image and T a multiple of 8.

    Args:
        pick: function (rng, n) -> the n-th training example, counted over all batches.
        vocabulary: vocabulary of the captions.
        batch_size: B.
        max_length: maximum length of a target, EOS included; longer captions are cut.
        seed: seed of the random generators.
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
        examples, targets = [], []
        for row in range(self._batch_size):
            example = self._pick(rng, index * self._batch_size + row)
            caption = example.captions[rng.integers(len(example.captions))]
            examples.append(example)
            ids = self._vocabulary.encode(plain(caption))
            if len(ids) > self._max_length:
                ids = [*ids[: self._max_length - 1], EOS]
            targets.append(ids)
        return {"source": np.stack(read_images(examples)), "target": pad(targets)}


def pad(targets: Sequence[Sequence[int]]) -> np.ndarray:
    """Pads lists of ids to int32 [B, T], T a multiple of 8."""
    length = -(-max(map(len, targets)) // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
    padded = np.full((len(targets), length), PAD, np.int32)
    for row, ids in zip(padded, targets, strict=True):
        row[: len(ids)] = ids
    return padded


def in_order(scenes: Scenes) -> Callable[[np.random.Generator, int], Scene]:
    """Returns a `pick` for `Batches` that takes every scene once."""
    return lambda rng, n: scenes[n]


def at_random(
    examples: Sequence[Captioned],
) -> Callable[[np.random.Generator, int], Captioned]:
    """Returns a `pick` for `Batches` that draws examples with replacement."""
    return lambda rng, n: examples[rng.integers(len(examples))]
