"""Utterances of a speech recogniser, and the characters of their transcripts."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

from ml_collections import ConfigDict

from base import asset_files, storage
from base.errors import WRITTEN_AGAIN, FieldError, UserError
from base.ranges import BATCH, COUNT, DEPTH, EXAMPLES, FLAG, SIZE, TEXT, Range
from tasks.common import user_files
from tasks.common.splits import check_split
from tasks.speech import audio, digits, features, utterances
from tasks.speech.espeak import Phrases
from tasks.speech.utterances import Characters, HeldOut, Mixing, Source
from training import checks

SOURCES = ("digits", "tones", "espeak", "files")
_WORDS, _SNR = Range(1, 100, whole=True), Range(-100, 100)
RANGES: checks.Ranges = {
    "evaluation.utterances": EXAMPLES,
    "evaluation.words": _WORDS.each(),
    "data.source": TEXT,
    "data.files.train": TEXT,
    "data.files.validation": TEXT,
    "data.files.test": TEXT,
    "data.damaged": TEXT,
    "data.min_words": _WORDS,
    "data.max_words": _WORDS,
    "data.test_voice": Range(0, digits.SEPARATE - 1, whole=True),
    "data.bands": SIZE,
    "data.cepstra": Range(2, 128, whole=True),
    "data.rate": Range(8000, 48_000, whole=True),
    "data.pause": Range(0, 60),
    "data.min_snr": _SNR,
    "data.max_snr": _SNR,
    "data.warp": Range(0, 0.5),
    "data.speed": Range(0, 0.5),
    "data.resampling": Range(0, 0.5),
    "data.equalizer": Range(0, 40),
    "data.gain": Range(0, 80),
    "data.time_masks": DEPTH,
    "data.time_mask": Range(0, 60),
    "data.frequency_masks": DEPTH,
    "data.frequency_mask": COUNT,
    "data.one_voice": FLAG,
    "data.normalisation": TEXT,
    "data.batch_size": BATCH,
}


def check(config: ConfigDict) -> None:
    """Checks `config.data`.

    Raises:
        UserError: for fields that contradict each other.
    """
    data = config.data
    checks.choice("data.source", data.source, SOURCES)
    checks.choice("data.damaged", data.damaged, user_files.DAMAGED)
    checks.choice("data.normalisation", data.normalisation, features.NORMALISATIONS)
    checks.ordered(config, "data.min_words", "data.max_words")
    checks.ordered(config, "data.min_snr", "data.max_snr")
    checks.ordered(config, "data.frequency_mask", "data.bands")
    if data.source != "files":
        checks.unread_files(config, "data.files", "data.source=files")
    given = f"with config.data.source={data.source}"
    if data.source in ("digits", "tones") and data.cepstra > digits.CEPSTRA:
        accepted = f"at most {digits.CEPSTRA} {given}"
        raise FieldError("config.data.cepstra", data.cepstra, accepted)
    if data.source != "digits" and data.test_voice:
        raise FieldError("config.data.test_voice", data.test_voice, f"0 {given}")
    if data.source in ("digits", "tones") and data.rate != digits.RATE:
        raise FieldError("config.data.rate", data.rate, f"{digits.RATE} {given}")


class Speech:
    """The utterances of a run, read on first use, and their characters.

    Args:
        config: a config that `check` accepts.
        characters: those of the run; None for those of the utterances.
        left_out: see `tasks.common.user_files.left_out`.

    Raises:
        UserError: on first use, for a package, program or file that is missing.
    """

    def __init__(
        self,
        config: ConfigDict,
        characters: Characters | None = None,
        left_out: Sequence[str] | None = None,
    ):
        self.config, data = config, config.data
        names = {field.name for field in dataclasses.fields(Mixing)} - {"noise"}
        self.mixing = Mixing(
            noise=(data.min_snr, data.max_snr),
            **{name: getattr(data, name) for name in names},
        )
        self._characters, self._left_out = characters, left_out
        self._drawn = functools.cache(self._draw)

    @functools.cached_property
    def source(self) -> Source:
        """The utterances."""
        data = self.config.data
        options = {"cepstra": data.cepstra, "rate": data.rate}
        if data.source == "files":
            options |= {"damaged": data.damaged, "left_out": self._left_out}
            return audio.Files(data.files.to_dict(), **options)
        if data.source == "espeak":
            return Phrases(**options)
        spoken = data.source == "digits"
        bank = digits.spoken(data.test_voice) if spoken else digits.tones()
        return utterances.DigitStrings(bank, one_voice=data.one_voice)

    @functools.cached_property
    def characters(self) -> Characters:
        """The characters of the transcripts."""
        return self._characters or Characters(self.source.characters)

    def batches(self) -> utterances.Batches:
        """Returns the training batches."""
        data = self.config.data
        return utterances.Batches(
            self.source,
            self.mixing,
            self.characters,
            normalisation=data.normalisation,
            words=(data.min_words, data.max_words),
            batch_size=data.batch_size,
            seed=self.config.seed,
        )

    def held_out(self, split: str, words: int | None = None) -> list[HeldOut]:
        """Returns the held-out utterances of a split, drawn once.

        `words` is their number of words; by default those of training.
        """
        check_split(split)
        data = self.config.data
        low, high = (words, words) if words else (data.min_words, data.max_words)
        return self._drawn(split, low, high)

    def _draw(self, split: str, low: int, high: int) -> list[HeldOut]:
        return utterances.held_out(
            self.source,
            self.mixing,
            split,
            words=(low, high),
            count=self.config.evaluation.utterances,
        )

    def recording(self, path: Path) -> HeldOut:
        """Returns the utterance of an audio file; for errors see `audio.read`."""
        data = self.config.data
        part = audio.cepstra(path, data.cepstra, data.rate)
        return HeldOut(utterances.clean_spectrogram(self.mixing, [part]), "")


def prepare(config: ConfigDict, folder: Path, *, training: bool) -> Speech:
    """Returns the utterances of a run, and writes their characters in training.

    Raises:
        UserError: for a package, a program or a file that is missing.
    """
    path = folder / "characters.txt"
    left_out = user_files.left_out(folder, training)
    if training:
        speech = Speech(config, left_out=left_out)
        asset_files.write(path, speech.characters.characters)
        if isinstance(speech.source, audio.Files):
            speech.source.files.write(folder, speech.source.examples())
        return speech
    try:
        text = storage.read_regular(path).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path} cannot be read: {WRITTEN_AGAIN}") from None
    return Speech(config, Characters(text), left_out)
