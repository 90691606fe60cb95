"""Captioned images of a run by split, as batches and inputs of a captioner.

Scenes are drawn and image files are read on access. The splits are "train",
"validation" and "test"; scenes also have "novel", with drawings that are not in
training.

With `config.model.encoder` "maps" the inputs are feature maps of a frozen network,
EfficientNet-lite0 trained on ImageNet: float16 [B, I / 16, J / 16, 112]. Maps of the
training images are computed once and kept in the cache folder.

Axes: B images; I, J rows and columns.
"""

import dataclasses
import functools
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base import storage
from base.errors import UserError
from models import efficientnet
from tasks.captioning import captions, drawings, frozen
from tasks.captioning.captions import Captioned, CaptionedImage, Photo, PhotoSet
from tasks.captioning.scenes import Scene, Scenes, novel
from tasks.common.batches import EndlessBatches
from tasks.common.splits import SPLITS
from tasks.common.vocabulary import Vocabulary

_VOCABULARY_SCENES = 4000  # number of scenes whose captions train the vocabulary
_NETWORK = "EfficientNet-lite0"
_BATCH = 50  # images per batch of feature maps
_FILE_SIZE = 1000  # maps per cache file


@dataclasses.dataclass
class CaptionData:
    """Captioned images by split, each read once, and the model's inputs."""

    config: ConfigDict
    vocabulary: Vocabulary | None = None  # of the captions; None before it is built
    left_out: Sequence[str] | None = None  # see `tasks.common.user_files.left_out`

    def __post_init__(self):
        self.fields = self.config.data
        self.count = self.config.evaluation.images  # maximum, of an evaluation split
        self.frozen = self.config.model.encoder == "maps"
        self.files = captions.image_files(self.fields.damaged, self.left_out)
        self._read = functools.cache(self._read)
        self.photos = functools.cache(self._photos)
        self.examples = functools.cache(self._examples)

    def scenes(self, split: str, seed: int = 0) -> Scenes:
        """Returns the scenes of a split, drawn on access."""
        fields = self.fields
        return Scenes(
            drawings.select(fields.groups),
            split,
            size=fields.size,
            min_objects=fields.min_objects,
            max_objects=fields.max_objects,
            references=fields.references,
            seed=seed,
        )

    def has_novel(self) -> bool:
        """Returns whether there is a split "novel"."""
        groups = self.fields.groups
        return self.fields.source == "scenes" and bool(novel(drawings.select(groups)))

    def training_texts(self) -> list[str]:
        """Returns the captions that train the vocabulary.

        Reads the files of all splits, to raise their errors before training.
        """
        if self.fields.source == "scenes":
            scenes = self.scenes("train")
            images = (scenes[i] for i in range(_VOCABULARY_SCENES))
            return [captions.plain(text) for x in images for text in x.captions]
        return [text for photo in self.photos("train") for text in photo.captions]

    def used(self) -> list[tuple[Path, str, tuple[str, ...]]]:
        """Returns path, split and captions of the image files that a run uses."""
        return [
            (photo.path, split, photo.captions)
            for split in self._read_all()
            for photo in (self.photos if split == "train" else self.examples)(split)
        ]

    def report(self) -> list[str]:
        """Returns lines for the log: the images of each split that were read."""
        if self.fields.source == "scenes":
            return []
        lines = []
        for split, photo_set in self._read_all().items():
            photos, without = self.photos(split), photo_set.without_captions
            rules = {
                "without a caption": without,
                "in validation or test": len(photo_set.photos) - len(photos),
            }
            left_out = ", ".join(f"{n:,} {rule}" for rule, n in rules.items() if n)
            count = sum(len(photo.captions) for photo in photos)
            line = (
                f"{split} images: {len(photo_set.photos) + without:,} read, "
                f"{len(photos):,} used, with {count:,} captions"
                + f"; left out: {left_out}"
                * bool(left_out)
            )
            if split != "train" and len(photos) > self.count:
                line += f"; evaluated: the first config.evaluation.images={self.count}"
            lines.append(line)
        return lines

    def _photos(self, split: str) -> list[Photo]:
        """All images of a split of files; those of training are in no other split."""
        if split != "train":
            return self._read(split).photos
        splits = self._read_all()
        photos, files, *_ = splits.pop("train")
        held_out = {file for others in splits.values() for file in others.files}
        pairs = zip(photos, files, strict=True)
        remaining = [photo for photo, file in pairs if file not in held_out]
        if not remaining:
            raise UserError(
                f"config.data.files.train: all {len(photos)} images are also in "
                "validation or test: at least one must not be"
            )
        return remaining

    def _read_all(self) -> dict[str, PhotoSet]:
        """Reads the files of all splits.

        A UserError if validation and test share an image or a file without splits.
        """
        files, splits = self.fields.files, {}
        for split in SPLITS:
            if split != "test" or files.test.captions:  # this split is optional
                splits[split] = self._read(split)
        paths = {}
        for split, photo_set in splits.items():
            path = os.path.realpath(files[split].captions)
            if path in paths and not photo_set.has_splits:
                raise UserError(
                    f"config.data.files.{split}.captions is "
                    f"{files[split].captions!r}, as in {paths[path]}: must be another "
                    "file, or one in Karpathy's format, which has splits"
                )
            paths[path] = split
        if "test" in splits:
            both = {*splits["validation"].files} & {*splits["test"].files}
            if both:
                raise UserError(
                    f"config.data.files: {len(both)} images are in validation and in "
                    f"test, such as {min(both)}: must be in one of them"
                )
        return splits

    def _read(self, split: str) -> PhotoSet:
        files = self.fields.files[split]
        if not files.captions:
            raise UserError(
                f"config.data.files.{split} is not set: there are no images for "
                f"--split={split}"
            )
        paths = Path(files.captions), Path(files.images)
        return captions.read_files(*paths, self.fields.size, split, self.files)

    def _examples(self, split: str) -> Sequence[Captioned]:
        """The images used to evaluate a split."""
        if self.fields.source == "files":
            return self.photos(split)[: self.count]
        scenes = self.scenes(split)
        return [scenes[i] for i in range(self.count)]

    def batches(self) -> EndlessBatches:
        """Returns the training batches; computes feature maps that the cache lacks."""
        data, seed = self.config.data, self.config.seed
        is_endless = data.source == "scenes" and not self.frozen
        if data.source == "files":
            examples = self.photos("train")
        else:
            examples = self.scenes("train", seed)
        if self.frozen:
            if data.source == "scenes":  # so few that each map is computed only once
                examples = [examples[i] for i in range(data.scenes)]
            examples = self._with_maps(examples)

        def pick(rng: np.random.Generator, n: int) -> Captioned:
            return examples[n if is_endless else rng.integers(len(examples))]

        lengths = {"batch_size": data.batch_size, "max_length": data.max_length}
        return captions.batches(pick, self.vocabulary, **lengths, seed=seed)

    def _with_maps(self, examples: Sequence[Photo | Scene]) -> list[CaptionedImage]:
        """The examples with maps instead of images, from files of the cache folder."""
        described: list[CaptionedImage] = []
        for start in range(0, len(examples), _FILE_SIZE):
            part = examples[start : start + _FILE_SIZE]
            digest = hashlib.sha256(_NETWORK.encode())
            for example in part:
                digest.update(example.identity())
            path = storage.cache_folder() / f"maps-{digest.hexdigest()[:16]}.npy"
            if not path.exists():
                count = f"{start:,} of {len(examples):,}"
                line = f"feature maps from image {count}: writing {path}"
                print(line, file=sys.stderr)
                maps = [
                    self.inputs(captions.read_images(part[i : i + _BATCH]))
                    for i in range(0, len(part), _BATCH)
                ]
                with (
                    storage.replacing(path) as temporary,
                    open(temporary, "wb") as file,
                ):
                    np.save(file, np.concatenate(maps))
            pairs = zip(np.load(path, mmap_mode="r"), part, strict=True)
            described += [CaptionedImage(x, example.captions) for x, example in pairs]
        return described

    def blank(self) -> jax.Array:
        """Returns an all-zero input of the model, for one image."""
        size = self.config.data.size
        if self.frozen:
            return jnp.zeros((1, size // 16, size // 16, 112), jnp.float16)
        return jnp.zeros((1, size, size, 3), jnp.uint8)

    def inputs(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the model's inputs for B images, uint8 [I, J, 3] each.

        Returns:
            uint8 [B, I, J, 3], or feature maps; see the module docstring.
        """
        if self.frozen:
            params, extract = frozen.parameters(), efficientnet.half_maps
            return efficientnet.in_batches(extract, params, images, batch_size=_BATCH)
        return np.stack(images)
