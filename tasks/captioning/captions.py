"""Images with captions: composed scenes, or files in the format of MS-COCO.

Captions are lower case and without punctuation, as captioning metrics expect them
("A dog, and two cats" is five words).

*   `scenes`: see `data.scenes`; training is endless, the held-out scenes are fixed.
*   `files`: a JSON file for each split, and the folder of its images. The file has the
    format of MS-COCO, {"images": [{"id", "file_name"}, ...], "annotations":
    [{"image_id", "caption"}, ...]}, or of Karpathy's splits of MS-COCO and Flickr, one
    file for all splits: {"images": [{"filename", "split", "sentences": [{"raw"}, ...]},
    ...]}. There, images may have a subfolder "filepath", and the split "restval"
    belongs to training. Images are scaled and cropped to a square. Their names may not
    lead out of the folder.

Axes: B images; I, J rows and columns of an image; T target steps.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from base import storage
from base.errors import UserError, parse_json
from tasks.captioning.scenes import Scene
from tasks.common.batches import Batch, EndlessBatches, pad
from tasks.common.images import image_files, read_image
from tasks.common.text import INNER, fold, words
from tasks.common.user_files import UserFiles
from tasks.common.vocabulary import EOS, PAD, Vocabulary

_KARPATHY = {"train": ("train", "restval"), "validation": ("val",), "test": ("test",)}
_FORMATS = (
    "MS-COCO, {images: [{id, file_name}], annotations: [{image_id, caption}]}, or of "
    "Karpathy's splits, {images: [{filename, split, sentences: [{raw}]}]}"
)
_LENGTH_MULTIPLE = 8  # T is a multiple of it: every new length costs a compilation


class CaptionedImage(NamedTuple):
    """An image uint8 [I, J, 3] or its feature map, in memory, and its captions."""

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
    return " ".join(words(fold(caption).replace("_", " "), INNER))


Captioned = CaptionedImage | Photo | Scene


class PhotoSet(NamedTuple):
    """The images of a split that have captions, in the order of the file."""

    photos: list[Photo]  # the images
    files: list[str]  # paths of the image files, without symbolic links
    without_captions: int  # number of images without a caption
    has_splits: bool  # whether the file is in Karpathy's format


def read_files(
    captions: Path, folder: Path, size: int, split: str, images: UserFiles | None = None
) -> PhotoSet:
    """Reads the captions of a split; images are read on access.

    Args:
        captions: JSON file; see the module's docstring.
        folder: folder of its images.
        size: side of the images, in pixels.
        split: selects images in Karpathy's format.
        images: those that are left out; by default none are.

    Raises:
        UserError: if the file cannot be read or has another format, an image file is
            damaged, missing or outside the folder, or there are no captions.
    """
    images = images or image_files()
    field = f"config.data.files.{split}.captions is {str(captions)!r}"
    try:
        text = storage.read_regular(captions).decode("utf-8-sig")
        content = parse_json(text, parse_constant=_refuse)
        images_of_file = content["images"]
        has_splits = bool(images_of_file) and "sentences" in images_of_file[0]
        read = _karpathy if has_splits else _coco
        texts_by_image = read(content, split)
    except OSError as error:
        raise UserError(f"{field}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{field}: byte {error.start + 1} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{field}: not JSON: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = "a value has another type"
        if isinstance(error, ValueError | KeyError):
            missing = " is missing" * isinstance(error, KeyError)
            reason = f"{error}{missing}"
        raise UserError(
            f"{field}: not in the format of {_FORMATS} ({reason})"
        ) from None
    if not os.path.isdir(folder):
        field = f"config.data.files.{split}.images"
        raise UserError(f"{field} is {str(folder)!r}: must be a folder")
    photos, without, root = [], 0, os.path.join(os.path.realpath(folder), "")
    for name, texts in texts_by_image:
        path = folder / name
        try:
            file = os.path.realpath(path)
        except ValueError:  # a NUL or a lone surrogate, which no path has
            file = ""
        inside = not name.is_absolute() and ".." not in name.parts
        if file and not (inside and file.startswith(root)):
            raise UserError(f"{field}: its image {str(name)!r} is not inside {folder}")
        if not images.uses(path):
            continue
        if not os.path.isfile(file):
            raise UserError(f"{field}: {folder} has no file {str(name)!r}")
        if texts := tuple(filter(None, texts)):
            photos.append((Photo(path, texts, size), file))
        else:
            without += 1
    images.check((photo.path for photo, _ in photos), field)
    photos = [pair for pair in photos if images.uses(pair[0].path)]
    if not photos:
        raise UserError(f"{field}: it has no caption for {split}")
    return PhotoSet(*map(list, zip(*photos, strict=True)), without, has_splits)


def _karpathy(content: dict, split: str) -> list[tuple[Path, list[str]]]:
    """Paths of the images of a split and their captions."""
    return [
        (
            Path(image.get("filepath", ""), image["filename"]),
            [plain(sentence["raw"]) for sentence in image["sentences"]],
        )
        for image in content["images"]
        if image["split"] in _KARPATHY[split]
    ]


def _coco(content: dict, split: str) -> list[tuple[Path, list[str]]]:
    """Paths of all images and their captions."""
    images = content["images"]
    names = {image["id"]: Path(image["file_name"]) for image in images}
    if len(names) < len(images):
        number, _ = Counter(image["id"] for image in images).most_common(1)[0]
        raise ValueError(f"several images have the id {number!r}")
    texts: dict = {number: [] for number in names}
    for annotation in content["annotations"]:
        number = annotation["image_id"]
        if number not in texts:
            raise ValueError(f"a caption of image {number!r}, which is not in images")
        texts[number].append(plain(annotation["caption"]))
    return [(names[number], captions) for number, captions in texts.items()]


def _refuse(constant: str) -> None:
    raise ValueError(f"it has the number {constant}")


def read_images(examples: Sequence[Captioned]) -> list[np.ndarray]:
    """Returns the images of examples; reads files with several threads."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda example: example.image, examples))


def batches(
    pick: Callable[[np.random.Generator, int], Captioned],
    vocabulary: Vocabulary,
    *,
    max_length: int,
    batch_size: int,
    seed: int,
) -> EndlessBatches:
    """Returns training batches; `pick(rng, n)` returns example n, counted from step 0.

    A batch is {"source": uint8 [B, I, J, 3] or feature maps, "target": int32 [B, T]},
    with one caption for each image. T is a multiple of 8; captions of more than
    `max_length` ids, EOS included, are cut.
    """

    def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        examples, targets = [], []
        for row in range(batch_size):
            example = pick(rng, index * batch_size + row)
            caption = example.captions[rng.integers(len(example.captions))]
            examples.append(example)
            ids = vocabulary.encode(plain(caption))
            if len(ids) > max_length:
                ids = [*ids[: max_length - 1], EOS]
            targets.append(ids)
        images = read_images([examples[row] for row in rows])
        # The longest target of the whole batch determines the width of every part.
        target = pad(targets, fill=PAD, multiple=_LENGTH_MULTIPLE)
        return {"source": np.stack(images), "target": target[rows]}

    return EndlessBatches(make, batch_size, seed)
