"""Captioned images of a run, as batches and inputs of a captioner.

With `config.model.encoder` "maps" the inputs are feature maps of a frozen network,
EfficientNet-lite0 trained on ImageNet: float16 [B, I / 16, J / 16, 112]. Maps of the
training images are computed once and kept in the cache folder.

Axes: B images; I, J rows and columns.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from base.ranges import BATCH, EXAMPLES, TEXT, TEXTS, VOCABULARY, Range
from models import efficientnet
from tasks.captioning import captions, frozen, image_maps
from tasks.captioning.splits import CaptionSplits
from tasks.common import user_files
from tasks.common.splits import SPLITS
from tasks.common.vocabulary import Vocabulary, train_vocabulary
from training import checks

RANGES = {
    **checks.SUPERVISED,
    "model.encoder": TEXT,
    "data.source": TEXT,
    "data.damaged": TEXT,
    "data.groups": TEXTS,
    **{
        f"data.files.{split}.{field}": TEXT
        for split in SPLITS
        for field in ("captions", "images")
    },
    "data.size": Range(24, 10_000, whole=True),
    "data.min_objects": Range(2, 9, whole=True),
    "data.max_objects": Range(2, 9, whole=True),
    "data.references": Range(1, 24, whole=True),
    "data.scenes": EXAMPLES,
    "data.vocab_size": VOCABULARY,
    "data.max_length": Range(2, 10_000, whole=True),
    "data.batch_size": BATCH,
    "evaluation.images": EXAMPLES,
    "evaluation.batch_size": BATCH,
}
_NETWORK = "EfficientNet-lite0"
_BATCH = 50  # images per batch of feature maps


class CaptionData:
    """Captioned images, their vocabulary and the model's inputs.

    Attributes:
        splits: captioned images of each split.
        vocabulary: vocabulary of the captions; None if it has not been built yet.
    """

    def __init__(
        self,
        config: ConfigDict,
        vocabulary: Vocabulary | None = None,
        left_out: Sequence[str] | None = None,
    ):
        """Stores the arguments; files are read on first use.

        Args:
            config: the config.
            vocabulary: see the class.
            left_out: see `tasks.common.user_files.left_out`.
        """
        self.config, self.vocabulary = config, vocabulary
        count = config.evaluation.images
        self.splits = CaptionSplits(config.data, count, left_out)
        self.frozen = config.model.encoder == "maps"

    def batches(self) -> captions.Batches:
        """Returns the training batches; computes feature maps missing in the cache."""
        data, seed = self.config.data, self.config.seed
        if data.source == "scenes" and not self.frozen:
            pick = captions.in_order(self.splits.scenes("train", seed))
        else:
            if data.source == "files":
                examples = self.splits.photos("train")
            else:  # a fixed set of scenes, so that each map is computed only once
                scenes = self.splits.scenes("train", seed)
                examples = [scenes[i] for i in range(data.scenes)]
            if self.frozen:
                examples = image_maps.with_maps(examples, self.inputs, _NETWORK)
            pick = captions.at_random(examples)
        lengths = {"batch_size": data.batch_size, "max_length": data.max_length}
        return captions.Batches(pick, self.vocabulary, **lengths, seed=seed)

    def blank(self) -> jax.Array:
        """Returns an all-zero input of the model, for one image."""
        size = self.config.data.size
        if self.frozen:
            return jnp.zeros((1, size // 16, size // 16, 112), jnp.float16)
        return jnp.zeros((1, size, size, 3), jnp.uint8)

    def inputs(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the model's inputs for images.

        Args:
            images: B images, uint8 [I, J, 3].

        Returns:
            uint8 [B, I, J, 3], or feature maps; see the module docstring.
        """
        if self.frozen:
            params, extract = frozen.parameters(), efficientnet.half_maps
            return efficientnet.in_batches(extract, params, images, batch_size=_BATCH)
        return np.stack(images)


def prepare(config: ConfigDict, folder: Path, *, training: bool) -> CaptionData:
    """Returns the data of a run.

    Args:
        config: a config that `Captioning.check` accepts.
        folder: folder of the vocabulary.
        training: read the captions, and build the vocabulary if it is missing;
            otherwise read only `folder`.

    Raises:
        UserError: for a file that cannot be read, or captions that have changed since
            the run began.
    """
    path = folder / "vocabulary.model"
    data = CaptionData(config, left_out=user_files.left_out(folder, training))
    if not training:
        data.vocabulary = Vocabulary(path)
        return data
    import sacrebleu  # noqa: F401  # if it is missing, say so before training

    texts, fields = data.splits.training_texts(), config.data
    data.vocabulary = train_vocabulary(texts, fields.vocab_size, path, pieces="word")
    if fields.source == "files":
        data.splits.files.write(folder, data.splits.used())
    lines = data.splits.report()
    cut = sum(len(text.split()) >= fields.max_length for text in texts)  # EOS is one
    if lines and cut:
        lines.append(
            f"{cut:,} training captions longer than config.data.max_length="
            f"{fields.max_length} words, the end included, are cut"
        )
    if jax.process_index() == 0:
        print("".join(f"data: {line}\n" for line in lines), file=sys.stderr, end="")
    return data
