"""Captioned images by split: composed scenes, or files.

Scenes are drawn and image files are read on access. The splits are "train",
"validation" and "test"; scenes also have "novel", with drawings that are not in
training (see `data.scenes`).
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data import captions, drawings
from data.captions import Captioned, Photo
from data.scenes import Scenes, novel
from errors import UserError

SOURCES = ("scenes", "files")
_VOCABULARY_SCENES = 4000  # number of scenes whose captions train the vocabulary


class CaptionSplits:
    """Captioned images by split."""

    def __init__(self, fields: Any, count: int):
        """Stores the arguments; data are read on access.

        Args:
            fields: `config.data` of a captioner; its `source` is one of `SOURCES`.
            count: maximum number of images in an evaluation split.
        """
        self.fields, self.count = fields, count
        # Read once, for all evaluations.
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
        texts = [text for photo in self.photos("train") for text in photo.captions]
        self.photos("validation")
        if self.fields.files.test.captions:  # this split is optional
            self.photos("test")
        return texts

    def _photos(self, split: str) -> list[Photo]:
        """All images of a split of files."""
        files = self.fields.files[split]
        if not files.captions or not files.images:
            raise UserError(
                f"config.data.files.{split} needs captions, a JSON file, and images, "
                "the folder of the images that it names"
            )
        paths = Path(files.captions), Path(files.images)
        return captions.read_files(*paths, self.fields.size, split)

    def _examples(self, split: str) -> Sequence[Captioned]:
        """The images used to evaluate a split."""
        if self.fields.source == "files":
            return self.photos(split)[: self.count]
        scenes = self.scenes(split)
        return [scenes[i] for i in range(self.count)]
