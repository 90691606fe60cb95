"""Audio files of telephone tones for tests."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import soundfile

from tasks.speech import digits


def write(path, *numbers):
    """Writes the tones of digits to a WAV or FLAC file; returns its path."""
    samples = [x for n in numbers for x in digits.tone(n, 0.2, 1.0)]
    soundfile.write(path, samples, digits.RATE)
    return path


@functools.cache
def lines():
    """The paths of two files, a line each."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paths = write(folder / "a.wav", 3, 1), write(folder / "b.flac", 7)
    return "".join(f"{path}\n" for path in paths)
