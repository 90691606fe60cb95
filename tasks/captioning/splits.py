"""Captioned images by split: composed scenes, or files.

Scenes are drawn and image files are read on access. The splits are "train",
"validation" and "test"; scenes also have "novel", with drawings that are not in
training (see `data.scenes`).
"""

import functools
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from base.errors import UserError
from tasks.captioning import captions, drawings
from tasks.captioning.captions import Captioned, Photo, PhotoSet
from tasks.captioning.scenes import Scenes, novel
from tasks.common.splits import SPLITS

SOURCES = ("scenes", "files")
_VOCABULARY_SCENES = 4000  # number of scenes whose captions train the vocabulary


def check_files(files: Any, split: str) -> None:
    """Checks that a split of files is named; that of the test may be missing.

    Args:
        files: `config.data.files.<split>`, with `captions` and `images`.
        split: the split.

    Raises:
        UserError: if one of the two names is missing.
    """
    if split == "test" and not files.captions and not files.images:
        return
    if not files.captions or not files.images:
        raise UserError(
            f"config.data.files.{split} needs captions, a JSON file, and images, the "
            "folder of the images that it names"
        )


class CaptionSplits:
    """Captioned images by split."""

    def __init__(
        self, fields: Any, count: int, left_out: Collection[str] | None = None
    ):
        """Stores the arguments; data are read on access.

        Args:
            fields: `config.data` of a captioner; its `source` is one of `SOURCES`.
            count: maximum number of images in an evaluation split.
            left_out: see `tasks.common.user_files.left_out`.
        """
        self.fields, self.count = fields, count
        self.files = captions.image_files(fields.damaged, left_out)
        # Read once, for all evaluations.
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

        Reads the files of all splits, so that errors in them are raised before
        training.

        Raises:
            UserError: if a file cannot be read.
        """
        if self.fields.source == "scenes":
            return captions.all_captions(self.scenes("train"), _VOCABULARY_SCENES)
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
            line = (
                f"{split} images: {len(photo_set.photos) + without:,} read, "
                f"{len(photos):,} used, with {sum(len(p.captions) for p in photos):,} "
                f"captions" + f"; left out: {left_out}" * bool(left_out)
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

        Raises:
            UserError: if a file cannot be read, or validation and test share an image
                or a file without splits.
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
        check_files(files, split)
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
