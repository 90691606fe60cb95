"""Audio files, and lists of them with transcripts.

A list is a text file with a path and a transcript on each line, separated by a tab;
relative paths start from the folder of the list. Transcripts are lower-cased.
"""

import dataclasses
import functools
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from base import storage
from base.errors import UserError
from tasks.common import user_files
from tasks.common.splits import SPLITS
from tasks.common.text import fold, normal
from tasks.common.user_files import REFUSE, UserFiles
from tasks.speech import features
from tasks.speech.utterances import Source, Utterance

_MIN_SECONDS, _MAX_SECONDS = 0.05, 60
_FORMATS = b"RIFF", b"fLaC", b"OggS"
_STREAMED = 0x7FFFF000  # a WAV file written to a pipe claims at least so many bytes


def read(path: Path) -> tuple[np.ndarray, int]:
    """Reads a WAV, FLAC or Ogg file; channels are averaged.

    Returns:
        float64 samples [N] in [-1, 1], and the sampling rate in Hz.

    Raises:
        UserError: if the file cannot be read, is cut, or is shorter than 0.05 seconds
            or longer than a minute.
    """
    import soundfile

    try:
        content = storage.read_regular(path)
        if not content.startswith(_FORMATS):  # soundfile reads more, also if cut
            raise UserError(f"audio {path} cannot be read: not a WAV, FLAC or Ogg file")
        samples, rate = soundfile.read(io.BytesIO(content), always_2d=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"audio {path} cannot be read: {reason}") from None
    except soundfile.SoundFileError:
        raise UserError(f"audio {path} cannot be read: damaged") from None
    if missing := _missing_bytes(content):
        raise UserError(f"audio {path} is cut: it lacks its last {missing:,} bytes")
    if not np.isfinite(samples).all():
        raise UserError(f"audio {path} has samples that are not finite numbers")
    seconds = len(samples) / rate
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise UserError(
            f"audio {path} has {seconds:.3g} seconds: must have {_MIN_SECONDS} to "
            f"{_MAX_SECONDS}"
        )
    return samples.mean(1), rate


def _missing_bytes(content: bytes) -> int:
    """Number of bytes that a WAV file lacks at its end: soundfile reads a cut one."""
    start = 12 if content[:4] == b"RIFF" and content[8:12] == b"WAVE" else len(content)
    while start + 8 <= len(content):
        size = int.from_bytes(content[start + 4 : start + 8], "little")
        if content[start : start + 4] == b"data":
            return 0 if size >= _STREAMED else max(0, start + 8 + size - len(content))
        start += 8 + size + size % 2
    return 0


@functools.lru_cache(maxsize=10_000)
def cepstra(path: Path, count: int, rate: int) -> np.ndarray:
    """Returns the cepstra [T, count] of a file; see `tasks.speech.features.cepstra`.

    Raises:
        UserError: see `read`; or if the samples are too large for their power.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        cepstra = features.cepstra(*read(path), count=count, new_rate=rate)
    if not np.isfinite(cepstra).all():
        raise UserError(f"audio {path} has samples that are too large for their power")
    return cepstra


def plain(text: str) -> str:
    """Returns a transcript in lower case and normal form."""
    return normal(fold(text))


def read_list(path: Path, files: UserFiles | None = None) -> list[tuple[Path, str]]:
    """Reads a list of audio files and transcripts; see `user_files.read_list`."""
    files = files or UserFiles(read, "audio")
    return user_files.read_list(path, f"transcripts {path}", plain, files)


@dataclasses.dataclass
class Files(Source):
    """Utterances in audio files.

    Raises:
        UserError: for a list that is missing or cannot be read.
    """

    lists: Mapping[str, str]  # path of the list of each split, read on first use
    _: dataclasses.KW_ONLY
    cepstra: int  # number of cepstra
    rate: int  # sampling rate that audio is resampled to, in Hz
    damaged: str = REFUSE  # see `UserFiles`
    left_out: Sequence[str] | None = None
    listed = True

    def __post_init__(self):
        for split, path in self.lists.items():
            if not path:
                raise UserError(
                    f"config.data.files.{split} is missing: must be the path of a list "
                    "of audio files and transcripts"
                )
        self._read = functools.cache(
            lambda split: read_list(Path(self.lists[split]), self.files)
        )
        kind = f"audio {self.cepstra} {self.rate}"
        self.files = UserFiles(self._decode, kind, self.damaged, self.left_out)

    @property
    def characters(self) -> str:
        """The characters of the training transcripts."""
        return "".join(sorted(set().union(*(text for _, text in self._read("train")))))

    def examples(self) -> list[tuple[Path, str, str]]:
        """Returns path, split and transcript of the files of all splits."""
        return [(path, x, text) for x in SPLITS for path, text in self._read(x)]

    def sample(self, rng: np.random.Generator, split: str, words: int) -> Utterance:
        """Draws a file; `words` has no effect."""
        entries = self._read(split)
        return self._utterance(split, *entries[rng.integers(len(entries))])

    def utterances(self, split: str) -> list[Utterance]:
        """Returns all files of a split."""
        return [self._utterance(split, *entry) for entry in self._read(split)]

    def _decode(self, path: Path) -> np.ndarray:
        # Not of an earlier content, which is cached.
        return cepstra.__wrapped__(path, self.cepstra, self.rate)

    def _utterance(self, split: str, path: Path, text: str) -> Utterance:
        try:
            return Utterance([cepstra(path, self.cepstra, self.rate)], text)
        except UserError as error:
            raise UserError(f"transcripts {self.lists[split]}: {error}") from None
