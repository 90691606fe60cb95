"""Random changes of spectrograms in training."""

import dataclasses

import numpy as np
import pytest

from tasks.speech import digits, features
from tasks.speech.utterances import Mixing

M, T = 7, 23
PLAIN = Mixing(
    bands=M, cepstra=11, pause=0.2, min_snr=10, max_snr=20, warp=0.0, speed=0.0
)
STRENGTHS = {
    "warp": {"warp": 0.3},
    "speed": {"speed": 0.3},
    "resampling": {"resampling": 0.3},
    "equalizer": {"equalizer": 5.0},
    "gain": {"gain": 20.0},
    "time masks": {"time_masks": 2, "time_mask": 0.2},
    "frequency masks": {"frequency_masks": 1, "frequency_mask": 3},
}
MASKS = dict(time_masks=0, max_frames=5, frequency_masks=0, max_bands=3)


def parts():
    rng = np.random.default_rng(3)
    return [rng.normal(0, 20, (length, 11)) for length in (13, 17)]


def spectrogram(mixing, seed=0, *, distort=True):
    rng = np.random.default_rng(seed)
    return mixing.spectrogram(parts(), rng, distort=distort)


@pytest.mark.parametrize("seed", range(3))
def test_without_strengths_training_has_the_spectrograms_of_evaluation(seed):
    expected = spectrogram(PLAIN, seed, distort=False)
    np.testing.assert_array_equal(spectrogram(PLAIN, seed), expected)


@pytest.mark.parametrize("fields", STRENGTHS.values(), ids=STRENGTHS)
def test_each_change_is_of_training_alone_and_depends_on_the_seed_alone(fields):
    mixing = dataclasses.replace(PLAIN, **fields)
    plain, changed = spectrogram(PLAIN), spectrogram(mixing)
    assert changed.shape != plain.shape or (changed != plain).any()
    np.testing.assert_array_equal(changed, spectrogram(mixing))
    evaluation = spectrogram(mixing, distort=False)
    np.testing.assert_array_equal(evaluation, spectrogram(PLAIN, distort=False))
    for seed in range(5):
        frames = mixing.frames(parts(), np.random.default_rng(seed), distort=True)
        assert len(spectrogram(mixing, seed)) == frames


def test_resampling_multiplies_frequencies_and_speed():
    rate = 8000
    few = features.cepstra(digits.tone(3, 0.3, 1.0), rate, 128, rate)
    octave = features.envelope(few, 128, frequency_scale=2.0, rate=rate)
    # The value at f Hz was at f / 2 Hz.
    top, centres = features.mel(rate / 2), (np.arange(128) + 0.5) / 128
    sources = features.mel(features.hertz(centres * top) / 2) / top
    basis = np.cos(np.pi * np.arange(128)[:, None] * sources)
    basis *= np.where(np.arange(128) > 0, np.sqrt(2), 1)[:, None] / np.sqrt(128)
    np.testing.assert_allclose(octave, few @ basis, atol=1e-3)
    # The two tones of a 3, 697 and 1477 Hz, are an octave higher.
    plain = features.envelope(few, 128)[5]
    peaks = [features.hertz(top * centres[x.argmax()]) for x in (plain, octave[5])]
    assert peaks[1] / peaks[0] == pytest.approx(2, rel=0.05)
    mixing = dataclasses.replace(PLAIN, pause=0.0, resampling=0.2)
    long = [np.zeros((190, 11))]
    rngs = map(np.random.default_rng, range(30))
    lengths = [mixing.frames(long, rng, distort=True) for rng in rngs]
    assert 190 / 1.2 - 1 <= min(lengths) < 180 < 200 < max(lengths) <= 190 / 0.8 + 1


def test_a_filter_is_smooth_has_mean_0_and_the_deviation():
    rng = np.random.default_rng(0)
    filters = np.array([features.random_filter(rng, 41, 3.0) for _ in range(2000)])
    np.testing.assert_allclose(filters.mean(1), 0, atol=1e-12)
    assert filters.std() == pytest.approx(3, rel=0.03)
    neighbours = np.corrcoef(filters[:, 20], filters[:, 21])[0, 1]
    assert neighbours > 0.95
    np.testing.assert_array_equal(features.random_filter(rng, 41, 0.0), 0)


@pytest.mark.parametrize(("axis", "kind"), [(0, "time"), (1, "frequency")])
def test_a_mask_covers_consecutive_lines_with_the_mean_of_their_band(axis, kind):
    decibels = np.random.default_rng(1).normal(0, 9, (T, M))
    options = MASKS | {f"{kind}_masks": 1}
    widest, widths = (5, 3)[axis], set()
    means = np.broadcast_to(decibels.mean(0), decibels.shape)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        masked = features.mask(decibels, rng, **options)
        changed = masked != decibels
        lines = np.flatnonzero(changed.any(1 - axis))
        assert changed.take(lines, axis).all()
        assert len(lines) == 0 or lines[-1] - lines[0] == len(lines) - 1
        np.testing.assert_array_equal(masked[changed], means[changed])
        widths.add(len(lines))
    assert widths == set(range(widest + 1))


def test_no_masks_change_nothing_and_large_ones_fit():
    decibels = np.random.default_rng(1).normal(0, 9, (T, M))
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(features.mask(decibels, rng, **MASKS), decibels)
    options = dict(time_masks=9, max_frames=99, frequency_masks=0, max_bands=0)
    masked = features.mask(decibels, rng, **options)
    assert masked.shape == (T, M) and np.isfinite(masked).all()
