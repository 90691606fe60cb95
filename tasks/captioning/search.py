"""Search for captions of images, with their attention as maps.

Axes: S positions of a feature map, row by row; T words of a caption.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from flax import linen as nn

from figures.attention import AttentionMap, Places, grid, grid_labels
from figures.strips import Strip
from generation.search import Generator, Hypothesis, Search, array_batches
from tasks.captioning.captions import Captioned, plain
from tasks.captioning.inputs import CaptionData
from tasks.captioning.metrics import word_boxes
from tasks.common.vocabulary import BOS, PAD, UNK
from training.task import Prediction


class Details(NamedTuple):
    """An image with its references, and the words and maps of a predicted caption."""

    example: Captioned
    strip: Strip

    @property
    def references(self) -> list[str]:
        """The references, in the words of captions."""
        return [*map(plain, self.example.captions)]


class CaptionSearch:
    """Search for captions with a `generation.search.Model`."""

    def __init__(self, model: nn.Module, data: CaptionData):
        self.data = data
        self.generator = Generator(model, forbidden=(PAD, BOS, UNK))

    def captions(
        self,
        params: Any,
        examples: Sequence[Captioned],
        search: Search,
    ) -> list[Prediction]:
        """Returns the best caption of each image, with `Details`, and the next best."""
        data = self.data
        batches = array_batches(
            len(examples),
            data.config.evaluation.batch_size,
            lambda indices: data.inputs([examples[i].image for i in indices]),
            length=data.config.data.max_length,
        )
        keep_weights = self.generator.attends(params, data.blank())
        hypotheses = self.generator.generate(
            params, batches, search, keep_weights=keep_weights
        )
        captions = []
        for example, ranked in zip(examples, hypotheses, strict=True):
            best, *others = [self._prediction(example, each) for each in ranked]
            captions.append(best._replace(others=tuple(others)))
        return captions

    def _prediction(self, example: Captioned, hypothesis: Hypothesis) -> Prediction:
        pieces = self.data.vocabulary.pieces(hypothesis.ids[:-1])
        words = [piece.removeprefix("▁") for piece in pieces]
        maps, attention = None, ()
        if hypothesis.weights is not None:
            weights = hypothesis.weights[: len(words)]  # [T, S]
            side = math.isqrt(weights.shape[-1])
            maps = weights.reshape(len(words), side, side)
            labels = grid_labels(side, side)
            places = None
            if example.image.ndim == 3 and example.image.dtype == np.uint8:
                places = Places(grid(side, side), example.image)
            cross = AttentionMap("cross", weights[None], words, labels, places=places)
            attention = (cross,)
        strip = Strip(words, maps, word_boxes(example, words))
        text, details = " ".join(words), Details(example, strip)
        return Prediction(text, hypothesis.score, attention, details=details)
