"""Search for the transcripts of utterances, with their alignments.

Axes: T frames; M mel bands; S positions of the attention; Q characters.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from figures.attention import AttentionMap, Places
from generation.search import Batch, Generator, Hypothesis, Search
from tasks.common.text import composed
from tasks.common.vocabulary import BOS, PAD, UNK
from tasks.speech import utterances
from tasks.speech.rescoring import Rescoring
from tasks.speech.utterances import Characters, HeldOut
from training.task import Prediction

_FRAMES = 1024


class Details(NamedTuple):
    """An utterance, and the alignment of its predicted transcript."""

    spectrogram: np.ndarray  # [T, M] in dB
    weights: np.ndarray  # [Q, S]
    frames: int  # number of frames per position of the attention
    characters: str  # Q characters; the text of a prediction composes them


@dataclasses.dataclass
class SpeechSearch:
    """Search for transcripts with a `generation.search.Model`."""

    model: nn.Module
    _: dataclasses.KW_ONLY
    bands: int  # M
    normalisation: str  # see `tasks.speech.features.normalised`
    batch_size: int  # number of utterances that are decoded together

    def __post_init__(self):
        self._generator = Generator(self.model, forbidden=(PAD, BOS, UNK))

    def transcripts(
        self,
        params: Any,
        examples: Sequence[HeldOut],
        characters: Characters,
        search: Search,
        *,
        seeds: Sequence[int] = (),
        rescoring: Rescoring | None = None,
    ) -> list[Prediction]:
        """Returns the best transcript of each utterance; `others` are the next best.

        Args:
            params: the model's parameters.
            examples: utterances; their texts are not used.
            characters: ids of characters.
            search: checked options.
            seeds: for sampling only: the seed of each utterance.
            rescoring: rescores the beam of a search; not used for samples.
        """
        n_best, samples = search.n_best, search.temperature > 0
        ranks = rescoring is not None and not samples
        if ranks:
            search = dataclasses.replace(search, n_best=search.beam)
        ranked = self._generator.generate(
            params, self._batches(examples), search, seeds=seeds, keep_weights=True
        )
        if ranks:
            ranked = rescoring.rank(ranked, characters.decode)
        frames, predictions = self._frames(params), []
        for example, hypotheses in zip(examples, ranked, strict=True):
            best, *others = [
                _prediction(example, x, characters, frames) for x in hypotheses[:n_best]
            ]
            predictions.append(best._replace(others=tuple(others)))
        return predictions

    def _batches(self, examples: Sequence[HeldOut]) -> Iterator[Batch]:
        """Batches of utterances of similar length, all padded to one batch size."""
        size = min(self.batch_size, len(examples))
        order = sorted(range(len(examples)), key=lambda i: len(examples[i].spectrogram))
        for start in range(0, len(order), max(size, 1)):
            indices = order[start : start + size]
            filled = indices + indices[-1:] * (size - len(indices))
            spectrograms = [examples[i].spectrogram for i in filled]
            source = utterances.padded(spectrograms, normalisation=self.normalisation)
            # A character takes at least two frames.
            limit = source["lengths"] // 2 + 1
            length = source["frames"].shape[1] // 2 + 1
            yield Batch(indices, functools.partial(dict, source), length, limit)

    def _frames(self, params: Any) -> int:
        """Number of frames per position of the attention."""
        frames = jnp.zeros((1, _FRAMES, self.bands))
        source = {"frames": frames, "lengths": jnp.full(1, _FRAMES, jnp.int32)}
        memory = jax.eval_shape(
            lambda p: self.model.apply({"params": p}, source, method="encode"), params
        )
        return _FRAMES // memory.mask.shape[1]


def _prediction(
    example: HeldOut,
    hypothesis: Hypothesis,
    characters: Characters,
    frames: int,
) -> Prediction:
    text = characters.decode(hypothesis.ids)
    positions = -(-len(example.spectrogram) // frames)
    weights = np.asarray(hypothesis.weights)[: len(text), :positions]
    keys = [f"frame {frames * position}" for position in range(positions)]
    places = _places(example.spectrogram, positions, frames)
    return Prediction(
        composed(text),
        hypothesis.score,
        (AttentionMap("cross", weights[None], list(text), keys, places=places),),
        details=Details(example.spectrogram, weights, frames, text),
    )


def _places(spectrogram: np.ndarray, positions: int, frames: int) -> Places:
    """Places of the positions on a spectrogram [T, F], low frequencies below."""
    low, high = spectrogram.min(), spectrogram.max()
    grey = 255 * (spectrogram - low) / max(high - low, 1e-6)
    image = np.repeat(grey.T[::-1, :, None], 3, -1).astype(np.uint8)
    left = frames * np.arange(positions) / len(spectrogram)
    right = np.minimum(left + frames / len(spectrogram), 1)
    top = np.zeros(positions)
    return Places(np.stack([top, left, top + 1, right], -1), image)
