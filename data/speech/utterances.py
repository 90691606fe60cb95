"""Utterances with transcripts: digit strings, synthetic phrases, audio files.

A source has `sample(rng, split, words)`, which draws an utterance, and
`utterances(split)`, the fixed ones of a list of files. Training batches draw; the
held-out utterances of a source without files are drawn by their index.

Axes: B utterances; T frames; T' characters; M mel bands; C cepstra.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

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
        warp, steps, pauses = self._timing(parts, rng, distort)
        silences = [np.full((frames, self.bands), _SILENCE) for frames in pauses]
        pieces = [silences[0]]
        for part, read, silence in zip(parts, steps, silences[1:], strict=True):
            decibels = features.envelope(part[:, : self.cepstra], self.bands, warp)
            decibels -= decibels.mean(1).max() + rng.uniform(0, 6)  # loudness
            pieces += [decibels[read], silence]
        clean = np.concatenate(pieces)
        slope = rng.normal(0, 5) * np.linspace(-1, 1, self.bands)  # coloured noise
        noise = slope - rng.uniform(*self.noise) + rng.normal(0, 2, clean.shape)
        return 10 * np.log10(10 ** (clean / 10) + 10 ** (noise / 10))

    def frames(
        self, parts: Sequence[np.ndarray], rng: np.random.Generator, *, distort: bool
    ) -> int:
        """Returns the number of frames T of the spectrogram with an equal `rng`."""
        _, steps, pauses = self._timing(parts, rng, distort)
        return sum(map(len, steps)) + int(pauses.sum())

    def _timing(self, parts, rng, distort):
        """Change of the mel axis, frames read of each part, frames of each pause."""
        warp, speed = 1 + np.array([self.warp, self.speed]) * rng.uniform(-1, 1, 2)
        if not distort:
            warp = speed = 1.0
        steps = [np.arange(0, len(part) - 0.5, speed).astype(int) for part in parts]
        pauses = rng.uniform(0, self.pause, len(parts) + 1) / features.SECONDS
        return warp, steps, pauses.round().astype(int)


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
    spectrograms: Sequence[np.ndarray],
    texts: Sequence[Sequence[int]] | None = None,
    *,
    frames: int = 0,
    characters: int = 0,
) -> Batch:
    """Returns a batch of normalised spectrograms and transcripts.

    Args:
        spectrograms: [T, M] each, in dB.
        texts: ids of each transcript, with EOS; None for none.
        frames: minimum T.
        characters: minimum T'.

    Returns:
        `frames` float32 [B, T, M], `lengths` int32 [B] and, with texts, `target` int32
        [B, T'].
    """
    lengths = np.array([len(x) for x in spectrograms], np.int32)
    width = -(-max(lengths.max(), frames) // _FRAMES) * _FRAMES
    shape = (len(lengths), width, spectrograms[0].shape[1])
    batch = {"frames": np.zeros(shape, np.float32), "lengths": lengths}
    for row, x in zip(batch["frames"], spectrograms, strict=True):
        row[: len(x)] = features.normalised(x)
    if texts is not None:
        longest = max(characters, *map(len, texts))
        width = -(-longest // _CHARACTERS) * _CHARACTERS
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
        super().__init__(seed, batch_size)
        self._source, self._mixing, self._characters = source, mixing, characters
        self._words = words

    def _rows(self, rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
        # The longest of all utterances gives the widths.
        words = int(rng.integers(self._words[0], self._words[1] + 1))
        drawn = [
            self._source.sample(rng, "train", words) for _ in range(self._batch_size)
        ]
        texts = [self._characters.encode(x.text) for x in drawn]
        seeds = rng.integers(2**63, size=self._batch_size)

        def make(function: Callable[..., Any], row: int) -> Any:
            generator = np.random.default_rng(seeds[row])
            return function(drawn[row].parts, generator, distort=True)

        return padded(
            [make(self._mixing.spectrogram, row) for row in rows],
            [texts[row] for row in rows],
            frames=max(make(self._mixing.frames, row) for row in range(len(drawn))),
            characters=max(map(len, texts)),
        )


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
