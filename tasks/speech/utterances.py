"""Utterances with transcripts, and their spectrograms.

Axes: B utterances; T frames; T' characters; M mel bands; C cepstra.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from base.fields import Fields
from base.ranges import COUNT, DEPTH, SIZE, Range
from tasks.common.batches import Batch, pad
from tasks.common.vocabulary import EOS, PAD, UNK
from tasks.speech import features
from tasks.speech.digits import NAMES, Bank

_SNR = Range(-100, 100)
_SPECIAL = 4  # ids of padding, start, end and unknown character
_SILENCE = -80.0  # dB
_GAIN = 6.0  # dB, the range of the loudness of held-out parts
_FRAMES, _CHARACTERS = 128, 24  # batches are padded to multiples: few shapes


class Utterance(NamedTuple):
    """Spoken words: the parts [T, C] of a recording, and their transcript."""

    parts: Sequence[np.ndarray]
    text: str


class Source:
    """Utterances of three splits, drawn unless `utterances` has them.

    Attributes:
        characters: the characters of the transcripts.
        listed: whether `utterances` has the utterances of the held-out splits.
    """

    characters: str
    listed = False

    def sample(self, rng: np.random.Generator, split: str, words: int) -> Utterance:
        """Draws an utterance of `words` words; a list of files ignores `words`."""
        raise NotImplementedError

    def utterances(self, split: str) -> list[Utterance]:
        """Returns all utterances of a split, if they are listed."""
        return []


class DigitStrings(Source):
    """Strings of digits.

    Args:
        bank: the recordings.
        one_voice: whether one voice speaks a whole string; otherwise each digit may
            have a different voice of the split.
    """

    characters = "".join(sorted(set(" ".join(NAMES))))

    def __init__(self, bank: Bank, *, one_voice: bool):
        self._voices: dict[str, list] = {}  # cepstra of each digit, by voice
        for split, digits in bank.items():
            every = sorted({x.voice for each in digits for x in each})
            groups = [[voice] for voice in every] if one_voice else [every]
            self._voices[split] = [
                [[x.cepstra for x in each if x.voice in group] for each in digits]
                for group in groups
            ]

    def sample(self, rng: np.random.Generator, split: str, words: int) -> Utterance:
        """Draws digits, a voice, and a recording of each digit."""
        digits, voices = rng.integers(0, 10, words), self._voices[split]
        bank = voices[rng.integers(len(voices))] if len(voices) > 1 else voices[0]
        parts = [bank[digit][rng.integers(len(bank[digit]))] for digit in digits]
        return Utterance(parts, " ".join(NAMES[digit] for digit in digits))


class Mixing(Fields):
    """Mixes the parts of an utterance, with pauses, noise and distortion.

    The fields from `warp` on are for training only: strengths of random changes, 0 for
    none.
    """

    # M, number of mel bands of the spectrogram; 40 in the paper.
    bands: Annotated[int, SIZE] = 40
    # Number of cepstral coefficients: 13 for "digits", up to 128 for other sources.
    cepstra: Annotated[int, Range(2, 128, whole=True)] = 13
    # Sampling rate of the recordings, in Hz.
    rate: Annotated[int, Range(8000, 48_000, whole=True)] = 8000
    # Maximum pause before and after each word, in seconds.
    pause: Annotated[float, Range(0, 60)] = 0.3
    # Minimum ratio of the loudest frame to the noise, in dB.
    min_snr: Annotated[float, _SNR] = 10.0
    # Maximum ratio of the loudest frame to the noise, in dB.
    max_snr: Annotated[float, _SNR] = 40.0
    # Maximum relative change of the mel axis, as by another vocal tract length.
    warp: Annotated[float, Range(0, 0.5)] = 0.1
    speed: Annotated[float, Range(0, 0.5)] = 0.2  # maximum relative change of the speed
    # Maximum relative change of speed and frequencies together (Ko et al. 2015).
    resampling: Annotated[float, Range(0, 0.5)] = 0.0
    # Standard deviation of a smooth random filter, in dB.
    equalizer: Annotated[float, Range(0, 40)] = 0.0
    # Range of the random loudness of a word, in dB.
    gain: Annotated[float, Range(0, 80)] = _GAIN
    # Number of masked ranges of frames: SpecAugment (Park et al. 2019).
    time_masks: Annotated[int, DEPTH] = 0
    # Maximum length of a masked range of frames, in seconds.
    time_mask: Annotated[float, Range(0, 60)] = 0.1
    # Number of masked ranges of bands: SpecAugment.
    frequency_masks: Annotated[int, DEPTH] = 0
    # Maximum width of a masked range of bands, in bands.
    frequency_mask: Annotated[int, COUNT] = 6

    def spectrogram(
        self, parts: Sequence[np.ndarray], rng: np.random.Generator, *, distort: bool
    ) -> np.ndarray:
        """Returns the log-mel spectrogram [T, M] of an utterance with noise.

        Args:
            parts: cepstra [T, C] of its parts.
            rng: a random generator.
            distort: whether to change voice, speed and channel and to mask, as in
                training.
        """
        changes = rng.spawn(1)[0] if distort else None
        warp, scale, steps, pauses = self._timing(parts, rng, changes)
        change = np.zeros(self.bands)
        if changes is not None:
            change = features.random_filter(changes, self.bands, self.equalizer)
        gain = self.gain if distort else _GAIN
        silences = [np.full((frames, self.bands), _SILENCE) for frames in pauses]
        pieces = [silences[0]]
        for part, read, silence in zip(parts, steps, silences[1:], strict=True):
            cepstra = part[:, : self.cepstra]
            decibels = features.envelope(
                cepstra, self.bands, warp, frequency_scale=scale, rate=self.rate
            )
            decibels -= decibels.mean(1).max() + rng.uniform(0, gain)  # loudness
            pieces += [decibels[read] + change, silence]
        clean = np.concatenate(pieces)
        slope = rng.normal(0, 5) * np.linspace(-1, 1, self.bands)  # coloured noise
        noise = (
            slope
            - rng.uniform(self.min_snr, self.max_snr)
            + rng.normal(0, 2, clean.shape)
        )
        mixed = 10 * np.log10(10 ** (clean / 10) + 10 ** (noise / 10))
        if changes is None:
            return mixed
        return features.mask(
            mixed,
            changes,
            time_masks=self.time_masks,
            max_frames=round(self.time_mask / features.SECONDS),
            frequency_masks=self.frequency_masks,
            max_bands=self.frequency_mask,
        )

    def frames(
        self, parts: Sequence[np.ndarray], rng: np.random.Generator, *, distort: bool
    ) -> int:
        """Returns the number of frames T of `spectrogram` with an equal `rng`."""
        changes = rng.spawn(1)[0] if distort else None
        *_, steps, pauses = self._timing(parts, rng, changes)
        return sum(map(len, steps)) + int(pauses.sum())

    def _timing(self, parts, rng, changes):
        """Draws factors of mel axis and frequency, frames to read, lengths of pauses.

        `changes` is another generator, for random changes in training; None for none.
        """
        warp, speed = 1 + np.array([self.warp, self.speed]) * rng.uniform(-1, 1, 2)
        scale = 1.0
        if changes is None:
            warp = speed = 1.0
        else:
            scale += self.resampling * changes.uniform(-1, 1)
            speed *= scale
        steps = [np.arange(0, len(part) - 0.5, speed).astype(int) for part in parts]
        pauses = rng.uniform(0, self.pause, len(parts) + 1) / features.SECONDS
        return warp, scale, steps, pauses.round().astype(int)


class Characters:
    """Ids of characters, in order; 0 to 3 are padding, start, end and unknown."""

    def __init__(self, characters: str):
        self.characters = characters
        self.size = _SPECIAL + len(characters)
        self._ids = {x: i for i, x in enumerate(characters, _SPECIAL)}

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, with EOS."""
        return [*(self._ids.get(x, UNK) for x in text), EOS]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; special ids are skipped."""
        return "".join(self.characters[i - _SPECIAL] for i in ids if i >= _SPECIAL)


def padded(
    spectrograms: Sequence[np.ndarray],
    texts: Sequence[Sequence[int]] | None = None,
    *,
    normalisation: str,
    frames: int = 0,
    characters: int = 0,
) -> Batch:
    """Returns a batch of normalised spectrograms and transcripts.

    Args:
        spectrograms: [T, M] each, in dB.
        texts: ids of each transcript, with EOS; None for none.
        normalisation: see `features.normalised`.
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
        row[: len(x)] = features.normalised(x, normalisation)
    if texts is not None:
        batch["target"] = pad(texts, characters, fill=PAD, multiple=_CHARACTERS)
    return batch


def clean_spectrogram(mixing: Mixing, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the spectrogram [T, M] of a recording, with almost no noise added."""
    mixing = dataclasses.replace(mixing, pause=0.0, min_snr=80.0, max_snr=80.0)
    return mixing.spectrogram(parts, np.random.default_rng(0), distort=False)


class HeldOut(NamedTuple):
    """A held-out utterance: spectrogram [T, M] in dB and transcript.

    One of an input line has no transcript, but the seed of its samples.
    """

    spectrogram: np.ndarray
    text: str
    seed: int | None = None
