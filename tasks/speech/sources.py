"""Utterances of a speech recogniser: digit strings, synthetic phrases, audio files.

Training utterances are drawn; held-out utterances are those of the files or, without
files, drawn with their index as the seed.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from ml_collections import ConfigDict

from base.errors import FieldError
from base.fields import Files, ordered, unread
from base.ranges import BATCH, Choice, Range
from tasks.common import user_files
from tasks.common.batches import Batch, EndlessBatches
from tasks.common.splits import held_out_rng
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
    # Number of the test voice, one of the four that can be held out.
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
        """Returns the training batches; all rows have the same number of words."""
        data, size = self.config.data, self.config.data.batch_size

        def make(rng: np.random.Generator, index: int, rows: np.ndarray) -> Batch:
            # The longest utterance of the whole batch gives the widths, whatever `rows`
            # is.
            number = int(rng.integers(data.min_words, data.max_words + 1))
            drawn = [self.source.sample(rng, "train", number) for _ in range(size)]
            texts = [self.characters.encode(x.text) for x in drawn]
            seeds = rng.integers(2**63, size=size)

            def mix(function: Callable[..., Any], row: int) -> Any:
                generator = np.random.default_rng(seeds[row])
                return function(drawn[row].parts, generator, distort=True)

            return utterances.padded(
                [mix(self.mixing.spectrogram, row) for row in rows],
                [texts[row] for row in rows],
                normalisation=data.normalisation,
                frames=max(mix(self.mixing.frames, row) for row in range(size)),
                characters=max(map(len, texts)),
            )

        return EndlessBatches(make, size, self.config.seed)

    def _held_out(self, split: str, words: int | None = None) -> list[HeldOut]:
        """Returns the utterances of a split: all files, or `evaluation.utterances`.

        `words` is their number of words; by default those of training. Without files,
        utterance i depends on the split, the numbers of words and i only.
        """
        data, mixing = self.config.data, self.mixing
        if self.source.listed:
            return [
                HeldOut(utterances.clean_spectrogram(mixing, x.parts), x.text)
                for x in self.source.utterances(split)
            ]
        low, high = (words, words) if words else (data.min_words, data.max_words)
        numbers = itertools.cycle(range(low, high + 1))
        drawn = []
        for i in range(self.config.evaluation.utterances):
            rng = held_out_rng(split, i, low, high)
            parts, text = self.source.sample(rng, split, next(numbers))
            drawn.append(HeldOut(mixing.spectrogram(parts, rng, distort=False), text))
        return drawn

    def recording(self, path: Path) -> HeldOut:
        """Returns the utterance of an audio file; for errors see `audio.read`."""
        data = self.config.data
        part = audio.cepstra(path, data.cepstra, data.rate)
        return HeldOut(utterances.clean_spectrogram(self.mixing, [part]), "")
