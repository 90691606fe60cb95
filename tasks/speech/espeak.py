"""Synthetic phrases spoken by the program espeak-ng, if it is installed.

Each split has its own voices.
"""

import io
import shutil
import subprocess

import numpy as np

from base.errors import UserError
from tasks.speech import features
from tasks.speech.utterances import Source, Utterance

# espeak-ng ignores a voice after "en-gb", the language of its file "en".
_ACCENTS = ("en-us", "en", "en-gb-scotland", "en-gb-x-rp")
_VOICES = {
    "train": ("m1", "m2", "m3", "m5", "m7", "f1", "f2", "f5"),
    "validation": ("m4", "f3"),
    "test": ("m6", "f4"),
}
WORDS = (
    "a all and at back big black blue book boy call can car cat cold come day do dog "
    "door down eat find fish five for four from get girl give go good green have hear "
    "help her here him home house how in is it know left like long look make man more "
    "morning my name new night no not now of old on one open out over play put read "
    "red right room run say see she side small speak stop sun table take tell the them "
    "they this three time to tree turn two under up walk wall want warm water way we "
    "well what where white who will window with word work year yes you"
).split()


def speak(text: str, voice: str, speed: int, pitch: int) -> tuple[np.ndarray, int]:
    """Returns the samples [N] of a spoken text and their sampling rate in Hz.

    Args:
        text: the text.
        voice: a voice of espeak-ng, such as "en-us+f2".
        speed: words per minute.
        pitch: 0 to 99.

    Raises:
        UserError: if espeak-ng is not installed, or fails.
    """
    import soundfile

    command = [_program(), "-v", voice, "-s", str(speed), "-p", str(pitch)]
    process = subprocess.run([*command, "--stdout", text], capture_output=True)

    try:
        # The header is that of a stream, without the true length.
        samples, rate = soundfile.read(io.BytesIO(process.stdout))
    except soundfile.SoundFileError:
        lines = process.stderr.decode(errors="replace").split("\n")
        raise UserError(f"espeak-ng -v {voice} fails: {lines[0]}") from None
    return samples, rate


def _program() -> str:
    path = shutil.which("espeak-ng")
    if path is None:
        raise UserError(
            "config.data.source is 'espeak': needs the program espeak-ng, which is not "
            "installed; config.data.source=digits needs no program"
        )
    return path


class Phrases(Source):
    """Random words, spoken by random voices of a split, as cepstra."""

    characters = "".join(sorted(set(" ".join(WORDS))))

    def __init__(self, *, cepstra: int, rate: int):
        _program()
        self._options = {"count": cepstra, "new_rate": rate}

    def sample(self, rng: np.random.Generator, split: str, words: int) -> Utterance:
        """Draws a phrase, and a voice of the split with accent, speed and pitch."""
        text = " ".join(rng.choice(WORDS, words))
        voice = f"{rng.choice(_ACCENTS)}+{rng.choice(_VOICES[split])}"
        speed, pitch = rng.integers(120, 200), rng.integers(30, 70)
        samples, rate = speak(text, voice, int(speed), int(pitch))
        parts = [features.cepstra(samples, rate, **self._options)]
        return Utterance(parts, text)
