"""Images and captions of a run, in the form in which a captioner reads them.

Where `config.model.encoder` is "maps", the model gets features of a network that is
never trained, EfficientNet-lite0 for ImageNet, float16 [B, rows / 16, columns / 16,
112]. Those of the training images are computed once and kept in the cache folder.

Axes: B images; I, J rows and columns.
"""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from data import captions, image_maps
from data.caption_splits import CaptionSplits
from data.vocabulary import Vocabulary, train_vocabulary
from models import efficientnet
from tasks import frozen

_NETWORK = "EfficientNet-lite0"
_BATCH = 50  # images whose maps are computed at a time


class CaptionData:
    """Captioned images, a vocabulary, and inputs of the model.

    Attributes:
        splits: the images with their captions.
        vocabulary: of the captions; None before there is one.
    """

    def __init__(
        self,
        config: ConfigDict,
        vocabulary: Vocabulary | None = None,
        splits: CaptionSplits | None = None,
    ):
        """Reads nothing yet."""
        self.config, self.vocabulary = config, vocabulary
        self.splits = splits or CaptionSplits(config.data, config.evaluation.images)
        self.frozen = config.model.encoder == "maps"

    def batches(self) -> captions.Batches:
        """Returns the training batches; computes the maps that the cache lacks."""
        data, seed = self.config.data, self.config.seed
        if data.source == "scenes" and not self.frozen:
            pick = captions.in_order(self.splits.scenes("train", seed))
        else:
            if data.source == "files":
                examples = self.splits.photos("train")
            else:  # a few, so that maps are not computed in every step
                scenes = self.splits.scenes("train", seed)
                examples = [scenes[i] for i in range(data.scenes)]
            if self.frozen:
                examples = image_maps.with_maps(examples, self.inputs, _NETWORK)
            pick = captions.at_random(examples)
        lengths = {"batch_size": data.batch_size, "max_length": data.max_length}
        return captions.Batches(pick, self.vocabulary, **lengths, seed=seed)

    def blank(self) -> jax.Array:
        """Returns the model's input for an image, all 0."""
        size = self.config.data.size
        if self.frozen:
            return jnp.zeros((1, size // 16, size // 16, 112), jnp.float16)
        return jnp.zeros((1, size, size, 3), jnp.uint8)

    def inputs(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the model's inputs for B images uint8 [I, J, 3].

        Returns:
            uint8 [B, I, J, 3], or maps; see the module's docstring.
        """
        if self.frozen:
            params, see = frozen.parameters(), efficientnet.half_maps
            return efficientnet.in_batches(see, params, images, _BATCH)
        return np.stack(images)


def prepare(config: ConfigDict, folder: Path, *, training: bool) -> CaptionData:
    """Returns the data of a run.

    Args:
        config: a checked one.
        folder: where the vocabulary is kept.
        training: read the captions, and build the vocabulary where it is missing;
            otherwise read `folder`.

    Raises:
        UserError: for what cannot be read.
    """
    path, data = folder / "vocabulary.model", CaptionData(config)
    if not training:
        return CaptionData(config, Vocabulary(path))
    texts, size = data.splits.training_texts(), config.data.vocab_size
    vocabulary = train_vocabulary(texts, size, path, pieces="word")
    return CaptionData(config, vocabulary, data.splits)
