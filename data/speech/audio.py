"""Audio files, and lists of them with transcripts.

A list is a text file with a path and a transcript on each line, separated by a tab;
relative paths start from the folder of the list. Transcripts are lower-cased.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import storage
from data.speech import features
from data.speech.utterances import Utterance
from data.text import fold, normal
from errors import UserError

_MIN_SECONDS, _MAX_SECONDS = 0.05, 60


def read(path: Path) -> tuple[np.ndarray, int]:
    """Reads a WAV, FLAC or Ogg file; channels are averaged.

    Args:
        path: the file.

    Returns:
        float64 samples [N] in [-1, 1], and the sampling rate in Hz.

    Raises:
        UserError: if the file cannot be read, or is shorter than 0.05 seconds or longer
            than a minute.
    """
    import io

    import soundfile

    with _readable(path):
        content = io.BytesIO(storage.read_regular(path))
        samples, rate = soundfile.read(content, always_2d=True)
    if not np.isfinite(samples).all():
        raise UserError(f"audio {path} has samples that are not finite numbers")
    _check_length(path, len(samples) / rate)
    return samples.mean(1), rate


def check(path: Path) -> None:
    """Checks the header of an audio file, without reading its samples.

    Raises:
        UserError: see `read`.
    """
    import soundfile

    with _readable(path):
        seconds = soundfile.info(str(path)).duration
    _check_length(path, seconds)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises a `UserError` if the block cannot read a file."""
    import soundfile

    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"audio {path} cannot be read: {reason}") from None
    except soundfile.SoundFileError:
        raise UserError(
            f"audio {path} cannot be read: not a WAV, FLAC or Ogg file"
        ) from None


def _check_length(path: Path, seconds: float) -> None:
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise UserError(
            f"audio {path} has {seconds:.3g} seconds: must have {_MIN_SECONDS} to "
            f"{_MAX_SECONDS}"
        )


@functools.lru_cache(maxsize=10_000)
def cepstra(path: Path, count: int, rate: int) -> np.ndarray:
    """Returns the cepstra [T, count] of a file; see `data.speech.features.cepstra`.

    Raises:
        UserError: see `read`.
    """
    return features.cepstra(*read(path), count=count, new_rate=rate)


def plain(text: str) -> str:
    """Returns a transcript in lower case and normal form."""
    return normal(fold(text))


def read_list(path: Path) -> list[tuple[Path, str]]:
    """Reads a list of audio files and transcripts; see the module docstring.

    Raises:
        UserError: for a file that is missing, or a line without path and transcript.
    """
    try:
        text = storage.read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"transcripts {path}: {error.strerror.lower()}") from None
    except UnicodeDecodeError:
        raise UserError(f"transcripts {path}: not text in UTF-8") from None
    entries = []
    for number, line in enumerate(storage.lines(text, f"transcripts {path}"), 1):
        if not line.strip():
            continue
        name, _, text = line.partition("\t")
        if not (name.strip() and plain(text)) or "\t" in text:
            raise UserError(
                f"transcripts {path}, line {number}: must be a path, a tab and a text"
            )
        audio = path.parent / name.strip()
        if not storage.is_file(audio, str(audio)):
            raise UserError(f"transcripts {path}, line {number}: no file {audio}")
        check(audio)
        entries.append((audio, plain(text)))
    if not entries:
        raise UserError(f"transcripts {path}: no lines")
    return entries


class Files:
    """Utterances in audio files.

    Args:
        lists: path of the list of each split.
        cepstra: number of cepstra.
        rate: sampling rate that audio is resampled to, in Hz.

    Raises:
        UserError: for a list that cannot be read.
    """

    listed = True

    def __init__(self, lists: Mapping[str, str], *, cepstra: int, rate: int):
        for split, path in lists.items():
            if not path:
                raise UserError(
                    f"config.data.files.{split} is missing: must be the path of a list "
                    "of audio files and transcripts"
                )
        self._paths = lists
        self._lists = {split: read_list(Path(path)) for split, path in lists.items()}
        self._options = cepstra, rate
        texts = (text for _, text in self._lists["train"])
        self.characters = "".join(sorted(set().union(*texts)))

    def sample(self, rng: np.random.Generator, split: str, words: int) -> Utterance:
        """Draws a file; `words` has no effect."""
        entries = self._lists[split]
        return self._utterance(split, *entries[rng.integers(len(entries))])

    def utterances(self, split: str) -> Sequence[Utterance]:
        """Returns all files of a split."""
        return [self._utterance(split, *entry) for entry in self._lists[split]]

    def _utterance(self, split: str, path: Path, text: str) -> Utterance:
        try:
            return Utterance([cepstra(path, *self._options)], text)
        except UserError as error:
            raise UserError(f"transcripts {self._paths[split]}: {error}") from None
