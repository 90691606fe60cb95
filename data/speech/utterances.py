"""Utterances with transcripts: digit strings, synthetic phrases, audio files.

A source has `sample(rng, split, words)`, which draws an utterance, and
`utterances(split)`, the fixed ones of a list of files. Training batches draw; the
held-out utterances of a source without files are drawn by their index.

Axes: B utterances; T frames; T' characters; M mel bands; C cepstra.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from data.endless import Batch, EndlessBatches
from data.speech import features
from data.speech.digits import NAMES, Bank
from data.splits import held_out_rng
from data.vocabulary import EOS, PAD, UNK

_SPECIAL = 4  # ids of padding, start, end and unknown character
_SILENCE = -80.0  # dB
_FRAMES, _CHARACTERS = 128, 24  # a batch has multiples: few shapes to compile


class Utterance(NamedTuple):
    """Spoken words: the parts [T, C] of a recording, and their transcript."""

    parts: Sequence[np.ndarray]
    text: str


class Source(Protocol):
    """Utterances of three splits.

    Attributes:
        characters: the characters of the transcripts.
        listed: whether `utterances` has the utterances of the held-out splits.
    """

    characters: str
    listed: bool

    def sample(self, rng: np.random.Generator, split: str, words: int) -> Utterance:
        """Draws an utterance of so many words, which a list of files does not heed."""

    def utterances(self, split: str) -> list[Utterance]:
        """Returns all utterances of a split, if they are listed."""


class DigitStrings:
    """Strings of digits, each string by one voice.

    Args:
        bank: the recordings.
    """

    characters = "".join(sorted(set(" ".join(NAMES))))
    listed = False

    def __init__(self, bank: Bank):
        self._bank = bank

    def sample(self, rng: np.random.Generator, split: str, words: int) -> Utterance:
        """Draws digits, and a recording of each."""
        digits, bank = rng.integers(0, 10, words), self._bank[split]
        parts = [bank[digit][rng.integers(len(bank[digit]))] for digit in digits]
        return Utterance(parts, " ".join(NAMES[digit] for digit in digits))

    def utterances(self, split: str) -> list[Utterance]:
        """Returns none: digit strings are drawn."""
        return []


@dataclasses.dataclass(frozen=True)
class Mixing:
    """Turns the parts of an utterance into a spectrogram: pauses, noise, distortion.

    Attributes:
        bands: M.
        cepstra: number of cepstra that are used, C at most.
        pause: maximum pause before and after each part, in seconds.
        noise: minimum and maximum ratio of the loudest frame to the noise, in dB.
        warp: maximum relative change of the mel axis, in training.
        speed: maximum relative change of the speed, in training.
    """

    bands: int
    cepstra: int
    pause: float
    noise: Sequence[float]
    warp: float
    speed: float

    def spectrogram(
        self, parts: Sequence[np.ndarray], rng: np.random.Generator, *, distort: bool
    ) -> np.ndarray:
        """Returns the log-mel spectrogram [T, M] of an utterance with noise.

        Args:
            parts: cepstra [T, C] of its parts.
            rng: a random generator.
            distort: whether to change voice and speed, as in training.
        """
        warp, speed = 1 + np.array([self.warp, self.speed]) * rng.uniform(-1, 1, 2)
        if not distort:
            warp = speed = 1.0
        pieces = [self._pause(rng)]
        for part in parts:
            decibels = features.envelope(part[:, : self.cepstra], self.bands, warp)
            decibels -= decibels.mean(1).max() + rng.uniform(0, 6)  # loudness
            steps = np.arange(0, len(part) - 0.5, speed).astype(int)
            pieces += [decibels[steps], self._pause(rng)]
        clean = np.concatenate(pieces)
        slope = rng.normal(0, 5) * np.linspace(-1, 1, self.bands)  # coloured noise
        noise = slope - rng.uniform(*self.noise) + rng.normal(0, 2, clean.shape)
        return 10 * np.log10(10 ** (clean / 10) + 10 ** (noise / 10))

    def _pause(self, rng: np.random.Generator) -> np.ndarray:
        frames = round(rng.uniform(0, self.pause) / features.SECONDS)
        return np.full((frames, self.bands), _SILENCE)


class Characters:
    """Ids of characters; 0 to 3 are padding, start, end and unknown.

    Args:
        characters: all characters, in the order of their ids.
    """

    def __init__(self, characters: str):
        self.characters = characters
        self.size = _SPECIAL + len(characters)
        self._ids = {x: i for i, x in enumerate(characters, _SPECIAL)}

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, with EOS."""
        return [*(self._ids.get(x, UNK) for x in text), EOS]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; special ids have none."""
        return "".join(self.characters[i - _SPECIAL] for i in ids if i >= _SPECIAL)


def padded(
    spectrograms: Sequence[np.ndarray], texts: Sequence[Sequence[int]] | None = None
) -> Batch:
    """Returns a batch of normalised spectrograms and transcripts.

    Args:
        spectrograms: [T, M] each, in dB.
        texts: ids of each transcript, with EOS; None for none.

    Returns:
        `frames` float32 [B, T, M], `lengths` int32 [B] and, with texts, `target` int32
        [B, T'].
    """
    lengths = np.array([len(x) for x in spectrograms], np.int32)
    width = -(-lengths.max() // _FRAMES) * _FRAMES
    shape = (len(lengths), width, spectrograms[0].shape[1])
    batch = {"frames": np.zeros(shape, np.float32), "lengths": lengths}
    for row, x in zip(batch["frames"], spectrograms, strict=True):
        row[: len(x)] = features.normalised(x)
    if texts is not None:
        width = -(-max(map(len, texts)) // _CHARACTERS) * _CHARACTERS
        batch["target"] = np.full((len(texts), width), PAD, np.int32)
        for row, ids in zip(batch["target"], texts, strict=True):
            row[: len(ids)] = ids
    return batch


class Batches(EndlessBatches):
    """Training batches; batch i depends on (seed, i) only.

    All utterances of a batch have the same number of words, drawn from `words`.

    Args:
        source: the source.
        mixing: makes spectrograms.
        characters: ids of characters.
        words: minimum and maximum number of words.
        batch_size: B.
        seed: seed of the random generators.
    """

    def __init__(
        self,
        source: Source,
        mixing: Mixing,
        characters: Characters,
        *,
        words: Sequence[int],
        batch_size: int,
        seed: int,
    ):
        super().__init__(seed)
        self._source, self._mixing, self._characters = source, mixing, characters
        self._words, self._batch_size = words, batch_size

    def _batch(self, rng: np.random.Generator, index: int) -> Batch:
        words = int(rng.integers(self._words[0], self._words[1] + 1))
        drawn = [
            self._source.sample(rng, "train", words) for _ in range(self._batch_size)
        ]
        spectrograms = [
            self._mixing.spectrogram(x.parts, rng, distort=True) for x in drawn
        ]
        return padded(spectrograms, [self._characters.encode(x.text) for x in drawn])


def clean_spectrogram(mixing: Mixing, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the spectrogram [T, M] of a recording, with hardly any noise added."""
    mixing = dataclasses.replace(mixing, pause=0.0, noise=(80.0, 80.0))
    return mixing.spectrogram(parts, np.random.default_rng(0), distort=False)


class HeldOut(NamedTuple):
    """A held-out utterance: spectrogram [T, M] in dB and transcript."""

    spectrogram: np.ndarray
    text: str


def held_out(
    source: Source, mixing: Mixing, split: str, *, words: Sequence[int], count: int
) -> list[HeldOut]:
    """Returns the held-out utterances of a split.

    Utterance i depends on the split, `words` and i only.

    Args:
        source: the source.
        mixing: makes spectrograms.
        split: "validation" or "test".
        words: minimum and maximum number of words.
        count: number of utterances that are drawn; files are all used.
    """
    if source.listed:
        return [
            HeldOut(clean_spectrogram(mixing, x.parts), x.text)
            for x in source.utterances(split)
        ]
    numbers = itertools.cycle(range(words[0], words[1] + 1))
    drawn = []
    for i, n in zip(range(count), numbers, strict=False):
        rng = held_out_rng(split, i, *words)
        parts, text = source.sample(rng, split, n)
        drawn.append(HeldOut(mixing.spectrogram(parts, rng, distort=False), text))
    return drawn
