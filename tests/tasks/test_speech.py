"""Speech features, sources of utterances and their batches."""

import dataclasses
import itertools
import os
import shutil
import stat

import numpy as np
import pytest
import recordings
import soundfile
from states import changed

from base.errors import UserError
from configs import las_digits
from tasks.speech import audio, digits, espeak, features
from tasks.speech import sources as speech_data
from tasks.speech.utterances import Characters, DigitStrings, Mixing

MIXING = Mixing(
    bands=7, cepstra=11, pause=0.2, min_snr=10, max_snr=20, warp=0.1, speed=0.2
)


@pytest.fixture(scope="module")
def strings():
    return DigitStrings(digits.tones(), one_voice=True)


def speech(source, **fields):
    """The utterances of a source, in a run with changed fields."""
    run = speech_data.Speech(changed(las_digits.get_config("smoke"), fields))
    run.source = source
    return run


def spectrogram(samples, rate):
    """The log-mel spectrogram in dB [T, 128], by explicit sums and loops."""
    length, size = rate // 20, len(samples)  # 50 ms
    position = np.arange(0, size + 1, rate // 40)[:, None] - length // 2
    position = np.abs(position + np.arange(length))  # [T, N], reflected at the ends
    position = size - 1 - np.abs(size - 1 - position)
    window = np.sin(np.pi * np.arange(length) / length) ** 2
    bins = np.arange(length // 2 + 1)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(length), bins) / length)
    power = np.abs((samples[position] * window) @ waves) ** 2
    top, filters = 2595 * np.log10(1 + rate / 2 / 700), np.zeros((128, len(bins)))
    for band, k in np.ndindex(filters.shape):
        mels = (top * (band + i) / 129 for i in range(3))
        left, centre, right = (700 * (10 ** (mel / 2595) - 1) for mel in mels)
        f = k * rate / length
        if left < f <= centre:
            filters[band, k] = (f - left) / (centre - left)
        elif centre < f < right:
            filters[band, k] = (right - f) / (right - centre)
    energy = np.einsum("tk,mk->tm", power, filters)
    decibels = 10 * np.log10(np.where(energy > 1e-10, energy, 1e-10))
    return np.where(decibels < decibels.max() - 80, decibels.max() - 80, decibels)


@pytest.mark.parametrize("rate", [8000, 16000])
def test_log_mel_equals_the_formulas_of_its_parts(rate):
    samples = np.random.default_rng(0).standard_normal(1511)
    samples[700:] *= 1e-5  # the floor is reached
    actual = features.log_mel(samples, rate)
    expected = spectrogram(samples, rate)
    assert actual.shape == expected.shape == (1 + 1511 // (rate // 40), 128)
    floor = expected == expected.min()
    assert 0.05 < floor.mean() < 0.9
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("bands", [7, 40])
def test_the_envelope_is_the_cosine_series_of_the_spectrogram(rate, bands):
    samples = np.random.default_rng(0).standard_normal(1511)
    decibels, count = spectrogram(samples, rate), 13
    series = np.zeros((len(decibels), bands))
    for t, m in np.ndindex(series.shape):
        for k in range(count):
            angles = np.pi * k * (np.arange(128) + 0.5) / 128
            coefficient = np.mean(decibels[t] * np.cos(angles)) * (1 + (k > 0))
            series[t, m] += coefficient * np.cos(np.pi * k * (m + 0.5) / bands)
    cepstra = features.cepstra(samples, rate, count, rate)
    actual = features.envelope(cepstra, bands)
    # Cepstra are rounded to float32.
    np.testing.assert_allclose(actual, series, rtol=0, atol=1e-3)


def test_warping_moves_the_spectrum_along_the_mel_axis():
    few = features.cepstra(digits.tone(3, 0.3, 1.0), 8000, 13, 8000)
    plain, warped = (features.envelope(few, 128, warp)[5] for warp in (1.0, 3.0))
    np.testing.assert_allclose(warped[:42], plain[1:127:3], atol=1e-9)


@pytest.mark.parametrize("kind", features.NORMALISATIONS)
def test_normalisation_removes_a_filter_and_keeps_a_constant_finite(kind):
    decibels = np.random.default_rng(0).normal(3, 7, (50, 5)) * np.arange(1, 6)
    x, filtered = (
        features.normalised(decibels + change, kind) for change in (0, np.arange(5))
    )
    np.testing.assert_allclose(x, filtered, atol=1e-5)
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-6)
    ratios = x.std(0) if kind == "mean_variance" else x.std(0) / decibels.std(0)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)
    assert x.std() == pytest.approx(1, rel=1e-5)
    constant = features.normalised(np.full((4, 2), 7.0), kind)
    np.testing.assert_array_equal(constant, 0)


def test_a_batch_has_padded_spectrograms_and_transcripts(strings):
    batch = speech(strings, data__max_words=4).batches()[0]
    assert batch["frames"].shape[1] % 128 == 0 == batch["target"].shape[1] % 24
    characters = Characters(strings.characters)
    for frames, length, ids in zip(*batch.values(), strict=True):
        np.testing.assert_array_equal(frames[length:], 0)
        assert np.any(frames[:length])
        text = characters.decode(ids)
        assert set(text.split()) <= set(digits.NAMES)
        assert 2 <= len(text.split()) <= 4
        assert characters.encode(text) == ids[ids > 0].tolist()
    assert characters.encode("one?")[-2:] == [3, 2]  # unknown, end


def test_voices_of_the_splits_differ(strings):
    bank = digits.tones()
    whole = {
        split: {x.cepstra.tobytes() for digit in bank[split] for x in digit}
        for split in bank
    }
    assert (
        not whole["train"] & whole["test"] and not whole["train"] & whole["validation"]
    )
    assert not whole["test"] & whole["validation"]


def test_a_string_has_one_voice_or_all_of_them():
    bank, used = digits.tones(), {}
    voices = {x.cepstra.tobytes(): x.voice for digit in bank["train"] for x in digit}
    for one_voice in (True, False):
        source = DigitStrings(bank, one_voice=one_voice)
        drawn = [source.sample(np.random.default_rng(i), "train", 9) for i in range(20)]
        used[one_voice] = [{voices[x.tobytes()] for x in each.parts} for each in drawn]
    assert all(len(each) == 1 for each in used[True])
    assert set.union(*used[True]) == {0, 1, 2}
    assert sum(len(each) == 3 for each in used[False]) > 10


def test_held_out_utterance_i_does_not_depend_on_their_number(strings):
    few, many = (
        speech(strings, evaluation__utterances=count).held_out("test")
        for count in (3, 8)
    )
    for a, b in zip(few, many, strict=False):
        assert a.text == b.text
        np.testing.assert_array_equal(a.spectrogram, b.spectrogram)
    assert [len(x.text.split()) for x in many[:4]] == [2, 3, 2, 3]


def test_pauses_have_the_noise_and_digits_the_signal():
    parts = [np.eye(11)[:1].repeat(9, 0) * 30.0]
    mixing = dataclasses.replace(MIXING, pause=1.0, min_snr=30, max_snr=30)
    clean = mixing.spectrogram(parts, np.random.default_rng(1), distort=False)
    loud = clean.mean(1) > -15
    assert loud.sum() == 9 and np.diff(np.flatnonzero(loud)).max() == 1
    assert abs(clean[~loud].mean() + 30) < 1.5  # dB below the loudest frame
    assert clean[loud].mean() > -7


def test_distortion_changes_the_speed_within_its_limits():
    parts = [np.random.default_rng(0).normal(0, 9, (100, 11))]
    mixing = dataclasses.replace(MIXING, pause=0.0)
    lengths = [
        len(mixing.spectrogram(parts, np.random.default_rng(i), distort=True))
        for i in range(30)
    ]
    assert 100 / 1.2 - 1 <= min(lengths) < 95 < 110 < max(lengths) <= 100 / 0.8 + 1


def test_wav_and_flac_files_have_the_same_samples(tmp_path):
    paths = [recordings.write(tmp_path / f"a.{x}", 3, 5) for x in ("wav", "flac")]
    (wav, rate), (flac, _) = map(audio.read, paths)
    np.testing.assert_allclose(wav, flac, atol=1e-4)  # rounded to 16 bits
    assert audio.cepstra(paths[0], 13, 8000).shape == (1 + len(wav) * 40 // rate, 13)
    stereo = np.stack([[0.5] * 800, [-0.1] * 800], 1)
    soundfile.write(tmp_path / "stereo.wav", stereo, 8000)
    samples, rate = audio.read(tmp_path / "stereo.wav")
    assert rate == 8000
    np.testing.assert_allclose(samples, 0.2, atol=1e-4)


def test_audio_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "text.wav").write_text("no audio")
    soundfile.write(tmp_path / "short.wav", np.zeros(80), 8000)
    broken = np.where(np.arange(800) == 7, np.nan, 0.1)
    soundfile.write(tmp_path / "broken.wav", broken, 8000, subtype="FLOAT")
    for name, reason in {
        "none.wav": "cannot be read: no such file or directory",
        "text.wav": "cannot be read: not a WAV, FLAC or Ogg file",
        "short.wav": "has 0.01 seconds: must have 0.05 to 60",
        "broken.wav": "has samples that are not finite numbers",
    }.items():
        with pytest.raises(UserError) as error:
            audio.read(tmp_path / name)
        assert str(error.value) == f"audio {tmp_path / name} {reason}"


def test_a_list_of_files_gives_their_utterances(tmp_path):
    recordings.write(tmp_path / "a.wav", 1)
    recordings.write(tmp_path / "b.flac", 2, 4)
    path = tmp_path / "list.tsv"
    path.write_text("\ufeffa.wav\tOne\n\nb.flac\t two  four\n", "utf-8")
    lists = dict.fromkeys(("train", "validation", "test"), str(path))
    source = audio.Files(lists, cepstra=11, rate=8000)
    assert source.characters == " efnortuw"
    assert [x.text for x in source.utterances("test")] == ["one", "two four"]
    drawn = {source.sample(np.random.default_rng(i), "train", 9).text for i in range(9)}
    assert drawn == {"one", "two four"}
    held = speech(source, evaluation__utterances=1).held_out("test")
    assert [x.text for x in held] == ["one", "two four"]
    (tmp_path / "b.flac").write_text("no audio")
    audio.cepstra.cache_clear()
    with pytest.raises(UserError) as error:
        source.utterances("test")
    assert str(error.value).startswith(f"transcripts {path}: audio {tmp_path}/b.flac")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "list.tsv is empty$"),
        ("a.wav one\n", "line 1: must be a path, a tab and a text"),
        ("a.wav\tone\ttwo\n", "line 1: must be a path, a tab and a text"),
        ("\nb.wav\tone\n", "line 2: no file "),
    ],
)
def test_a_faulty_line_of_a_list_is_named(tmp_path, content, reason):
    path = tmp_path / "list.tsv"
    path.write_text(content)
    with pytest.raises(UserError, match=reason):
        audio.read_list(path)
    with pytest.raises(UserError, match="transcripts .*none: No such file"):
        audio.read_list(tmp_path / "none")


def test_lines_of_a_list_that_are_empty_on_one_side_are_left_out(tmp_path, capsys):
    soundfile.write(tmp_path / "a.wav", np.full(800, 0.1), 8000)
    path = tmp_path / "list.tsv"
    path.write_text("none.wav\t\n\n\ttwo\na.wav\tone\nnone.wav\t \u200a\n")
    assert audio.read_list(path) == [(tmp_path / "a.wav", "one")]
    assert "list.tsv: 3 lines empty on one side" in capsys.readouterr().err


def test_espeak_speaks_with_the_voices_of_the_split(monkeypatch, tmp_path):
    wav, log = recordings.write(tmp_path / "a.wav", 1, 2), tmp_path / "log"
    program = tmp_path / "espeak-ng"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n/bin/cat {wav}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    source = espeak.Phrases(cepstra=11, rate=8000)
    voices = {}
    for split in ("train", "validation", "test"):
        utterance = source.sample(np.random.default_rng(0), split, 3)
        assert utterance.parts[0].shape[1] == 11
        assert len(utterance.text.split()) == 3
        assert set(utterance.text) <= set(source.characters)
        line = log.read_text().splitlines()[-1]
        assert line.endswith(f"--stdout {utterance.text}")
        voices[split] = line.split()[1].split("+")[1]
    assert len(set(voices.values())) == 3
    every = [voice for split in espeak._VOICES.values() for voice in split]
    assert len(set(every)) == len(every)


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="needs espeak-ng")
def test_each_voice_of_espeak_speaks_with_each_accent():
    every = [voice for split in espeak._VOICES.values() for voice in split]
    spoken = set()
    for accent, voice in itertools.product(espeak._ACCENTS, every):
        samples, rate = espeak.speak("good morning", f"{accent}+{voice}", 150, 50)
        assert 0.3 * rate < len(samples) < 3 * rate, (accent, voice)
        assert np.abs(samples).max() > 0.01, (accent, voice)
        spoken.add(samples.tobytes())
    assert len(spoken) == len(espeak._ACCENTS) * len(every)


def test_voices_are_found_by_their_statistics():
    rng = np.random.default_rng(0)
    offsets, voice = rng.normal(0, 60, (6, 13)), np.tile(np.arange(6), 70)
    digit = rng.integers(0, 10, len(voice))
    cepstra = [
        rng.normal(offsets[v] + 20 * d, 9, (rng.integers(9, 20), 13))
        for v, d in zip(voice, digit, strict=True)
    ]
    groups = digits.voices(cepstra, digit)
    pairs = set(zip(voice.tolist(), groups.tolist(), strict=True))
    assert len(pairs) == 6


def test_the_splits_of_the_spoken_digits_share_no_voice(monkeypatch):
    rng = np.random.default_rng(0)
    voice = np.tile(np.arange(6), 70)
    digit = rng.integers(0, 10, len(voice))
    cepstra = [np.full((9, 13), float(v)) for v in voice]
    cepstra[3] = np.zeros((46, 13))  # longer than a second: left out
    monkeypatch.setattr(digits, "read", lambda: (cepstra, digit))
    monkeypatch.setattr(digits, "voices", lambda *recordings: voice)

    def voices(bank):
        return {
            split: {(r.voice, r.cepstra[0, 0]) for each in bank[split] for r in each}
            for split in bank
        }

    for test, validation in enumerate((1, 2, 3, 0)):
        of = voices(digits.spoken.__wrapped__(test))
        assert of["test"] == {(test, test)}
        assert of["validation"] == {(validation, validation)}
        assert of["train"] == {(v, v) for v in set(range(6)) - {test, validation}}
    bank = digits.spoken.__wrapped__()
    assert voices(bank) == voices(digits.spoken.__wrapped__(0))
    counts = {split: sum(map(len, bank[split])) for split in bank}
    assert counts == {"train": 279, "validation": 70, "test": 70}
    for number in range(10):
        assert len(bank["test"][number]) == ((voice == 0) & (digit == number)).sum()


@pytest.mark.parametrize("voice", [0, 3])
def test_the_test_voice_is_that_of_the_config(voice, monkeypatch):
    monkeypatch.setattr(digits, "spoken", lambda number: (number, digits.tones()))
    monkeypatch.setattr(speech_data.utterances, "DigitStrings", lambda bank, **_: bank)
    config = las_digits.get_config()
    config.data.test_voice = voice
    assert speech_data.Speech(config).source[0] == voice


@pytest.mark.network
def test_four_voices_have_about_fifty_recordings_of_each_digit():
    cepstra, digit = digits.read()
    groups = digits.voices(cepstra, digit)
    for voice in range(4):
        counts = np.bincount(digit[groups == voice], minlength=10)
        assert counts.min() >= 45 and counts.max() <= 55
    bank = digits.spoken()
    assert sum(map(len, bank["train"])) > 1900
    for split in ("validation", "test"):
        assert all(40 <= len(recordings) <= 55 for recordings in bank[split])
