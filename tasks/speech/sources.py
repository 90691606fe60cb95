"""Utterances of a speech recogniser, and the characters of their transcripts."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from ml_collections import ConfigDict

from base.errors import FieldError
from base.fields import Files, ordered, unread
from base.ranges import BATCH, Choice, Range
from tasks.common import user_files
from tasks.common.batches import EndlessBatches
from tasks.speech import audio, digits, features, utterances
from tasks.speech.espeak import Phrases
from tasks.speech.utterances import Characters, HeldOut, Mixing, Source

_WORDS = Range(1, 100, whole=True)


class SpeechData(Mixing):
    """`config.data`: recordings, and their augmentation in training (0 for none)."""

    # Source of the recordings.
    source: Literal["digits", "tones", "espeak", "files"] = "digits"
    damaged: user_files.Damaged = user_files.REFUSE  # treatment of damaged recordings
    files: Files = Files()
    # Number of the voice of the test, of the four that can be held out.
    test_voice: Annotated[int, Range(0, digits.SEPARATE - 1, whole=True)] = 0
    # Minimum number of words of a generated string.
    min_words: Annotated[int, _WORDS] = 2
    # Maximum number of words of a generated string.
    max_words: Annotated[int, _WORDS] = 7
    # Normalisation of each band of an utterance: to mean 0, or to variance 1 too.
    normalisation: Annotated[str, Choice(features.NORMALISATIONS)] = "mean"
    # Whether a training string has one voice, instead of one per word.
    one_voice: bool = False
    batch_size: Annotated[int, BATCH] = 32  # recordings per batch

    def __post_init__(self):
        ordered(self, "min_words", "max_words", "data")
        ordered(self, "min_snr", "max_snr", "data")
        ordered(self, "frequency_mask", "bands", "data")
        given = f"with config.data.source={self.source}"
        if self.source != "files":
            unread("files", self.files, "config.data.source=files")
        if self.source != "digits" and self.test_voice:
            raise FieldError("test_voice", self.test_voice, f"0 {given}")
        if self.source not in ("digits", "tones"):
            return
        if self.cepstra > (maximum := digits.CEPSTRA):
            raise FieldError("cepstra", self.cepstra, f"at most {maximum} {given}")
        if self.rate != digits.RATE:
            raise FieldError("rate", self.rate, f"{digits.RATE} {given}")


class Speech:
    """The utterances of a run, read on first use, and their characters.

    Args:
        config: the config.
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
        names = [field.name for field in dataclasses.fields(Mixing)]
        self.mixing = Mixing(**{name: data[name] for name in names})
        self._characters, self._left_out = characters, left_out
        self.held_out = functools.cache(self._held_out)

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

    def batches(self) -> EndlessBatches:
        """Returns the training batches."""
        data = self.config.data
        return utterances.batches(
            self.source,
            self.mixing,
            self.characters,
            normalisation=data.normalisation,
            words=(data.min_words, data.max_words),
            batch_size=data.batch_size,
            seed=self.config.seed,
        )

    def _held_out(self, split: str, words: int | None = None) -> list[HeldOut]:
        """Returns the held-out utterances of a split.

        `words` is their number of words; by default those of training.
        """
        data = self.config.data
        return utterances.held_out(
            self.source,
            self.mixing,
            split,
            words=(words, words) if words else (data.min_words, data.max_words),
            count=self.config.evaluation.utterances,
        )

    def recording(self, path: Path) -> HeldOut:
        """Returns the utterance of an audio file; for errors see `audio.read`."""
        data = self.config.data
        part = audio.cepstra(path, data.cepstra, data.rate)
        return HeldOut(utterances.clean_spectrogram(self.mixing, [part]), "")
