"""Alignment of a transcript with a spectrogram.

Axes: T frames; M mel bands; Q characters; S positions of the attention.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from figures import canvas, fonts
from figures.drawings import drawing

_LEFT, _SPECTROGRAM, _BETWEEN, _FOOT = 0.8, 1.4, 0.15, 0.5  # inches


@drawing
def aligned_spectrogram(
    spectrogram: np.ndarray,
    weights: np.ndarray,
    frames: int,
    characters: Sequence[str],
    seconds: float,
    title: str,
    path: Path,
) -> Path:
    """Draws a spectrogram and, below it, the attention of each character, over time.

    Args:
        spectrogram: [T, M].
        weights: [Q, S] in [0, 1].
        frames: number of frames per position of the attention.
        characters: Q labels.
        seconds: duration of a frame.
        title: title of the figure.
        path: PNG file to write; its folder is created.

    """
    width = float(np.clip(0.06 * len(spectrogram), 4.0, 12.0))
    height = float(np.clip(0.2 * len(characters), 1.0, 10.0))
    total_width = max(_LEFT + width + 1.3, canvas.title_width(title))
    head = 0.55
    below = head + _SPECTROGRAM + _BETWEEN
    figure = canvas.figure(total_width, below + height + _FOOT, title)
    end = len(spectrogram) * seconds
    upper = canvas.axes(figure, _LEFT, head, width=width, height=_SPECTROGRAM)
    upper.imshow(
        spectrogram.T,
        aspect="auto",
        origin="lower",
        cmap="magma",
        interpolation="nearest",
        extent=(0, end, 0, spectrogram.shape[1]),
    )
    upper.set_ylabel("mel band", fontsize=10, color=canvas.GREY)
    upper.tick_params(
        length=2, labelsize=canvas.FONT, colors=canvas.GREY, labelbottom=False
    )
    lower = canvas.axes(figure, _LEFT, below, width=width, height=height)
    if not characters:
        weights = np.zeros((1, weights.shape[1]))
        lower.text(end / 2, 0, "no characters", ha="center", color=canvas.GREY)
    stretched = np.repeat(weights, frames, axis=1)[:, : len(spectrogram)]
    image = lower.imshow(
        stretched,
        aspect="auto",
        cmap=canvas.colour_map(),
        norm=canvas.weight_norm(),
        interpolation="nearest",
        extent=(0, end, len(weights) - 0.5, -0.5),
    )
    lower.set_yticks(range(len(characters)), list(map(fonts.readable, characters)))
    lower.set_xlabel("seconds", fontsize=10, color=canvas.GREY)
    lower.set_ylabel("character", fontsize=10, color=canvas.GREY)
    lower.tick_params(length=2, labelsize=canvas.FONT, colors=canvas.GREY)
    bar = {"x": _LEFT + width + 0.15, "y": below, "height": min(height, 2.0)}
    canvas.colour_bar(figure, image, **bar, uniform=1 / weights.shape[1])
    return canvas.save(figure, path)
