"""Augmentation of spectrograms in training: random filters and masks.

`tasks.speech.utterances.Mixing` applies them, in addition to changes of voice and speed
(`tasks.speech.features.envelope`). Their strengths are fields of `config.data`.

Axes: T frames; M mel bands.
"""

import numpy as np

_WAVES = 4  # cosines in a filter; the finest has as many half waves


def random_filter(rng: np.random.Generator, bands: int, deviation: float) -> np.ndarray:
    """Draws a smooth filter, like that of another microphone or room.

    Its mean over the bands is 0: it does not change the loudness.

    Args:
        rng: a random generator.
        bands: M.
        deviation: standard deviation over bands and filters, in dB; 0 for no change.

    Returns:
        [M] in dB.
    """
    points = np.pi * (np.arange(bands) + 0.5) / bands
    waves = np.cos(np.arange(1, _WAVES + 1)[:, None] * points)
    return deviation * np.sqrt(2 / _WAVES) * (rng.normal(size=_WAVES) @ waves)


def mask(
    decibels: np.ndarray,
    rng: np.random.Generator,
    *,
    time_masks: int,
    max_frames: int,
    frequency_masks: int,
    max_bands: int,
) -> np.ndarray:
    """Masks time and frequency: SpecAugment (Park et al. 2019), section 2.

    Masked values are set to the mean of their band, which is 0 after normalisation.
    There is no time warping.

    Args:
        decibels: [T, M].
        rng: a random generator.
        time_masks: number of masks of consecutive frames.
        max_frames: maximum number of frames of a mask; at most T are used.
        frequency_masks: number of masks of consecutive bands.
        max_bands: maximum number of bands of a mask, at most M.

    Returns:
        [T, M]; `decibels` itself is not changed.
    """
    masked = np.zeros(decibels.shape, bool)
    for axis, count, widest in (
        (0, time_masks, max_frames),
        (1, frequency_masks, max_bands),
    ):
        length = decibels.shape[axis]
        for _ in range(count):
            width = rng.integers(min(widest, length) + 1)
            start = rng.integers(length - width + 1)
            np.moveaxis(masked, axis, 0)[start : start + width] = True
    return np.where(masked, decibels.mean(0), decibels)
