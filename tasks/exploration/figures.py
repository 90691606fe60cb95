"""Figures of an agent on a grid: visits of each cell, intrinsic reward of each step.

Axes: P maps; I, J rows and columns of the grid; T steps.
"""

from pathlib import Path

import numpy as np

from figures import canvas
from figures.drawings import drawing

_SIDE = 2.6  # of the map, in inches
_WALL = "#666666"


@drawing
def draw_visits(
    visits: np.ndarray, free: np.ndarray, rewards: np.ndarray, title: str, path: Path
) -> Path:
    """Draws the visits of each cell, and the intrinsic reward along an episode.

    Args:
        visits: int [P, I, J], of parts of a training in their order.
        free: bool [I, J], False at walls.
        rewards: [T]; none to draw the maps alone.
        title: title of the figure.
        path: PNG file to write; its folder is created.
    """
    head, gap, bar = 0.55, 0.75, 0.75
    walls = ~np.asarray(free, bool)
    visits = np.where(walls, 0, visits)
    shares = visits / max(visits.max(), 1)
    parts, rows, columns = visits.shape
    x, across = 0.3, _SIDE * columns / rows
    width = x + parts * (across + 0.12) - 0.12 + bar
    width += gap + 4.0 if len(rewards) else 0.3
    width = max(width, canvas.title_width(title))
    figure = canvas.figure(width, head + _SIDE + 0.6, title)
    for number, part in enumerate(shares):
        axes = canvas.axes(figure, x=x, y=head, width=across, height=_SIDE)
        axes.set_facecolor(_WALL)
        image = axes.imshow(
            np.ma.masked_array(part, walls),
            cmap=canvas.colour_map(),
            norm=canvas.weight_norm(),
            aspect="auto",
        )
        axes.set(xticks=[], yticks=[])
        if parts > 1:
            label = f"part {number + 1} of {parts}"
            axes.set_xlabel(label, fontsize=canvas.FONT, color=canvas.GREY)
        x += across + 0.12
    name = f"visits / {visits.max():,}"
    canvas.colour_bar(figure, image, x=x, y=head, height=_SIDE, name=name)
    if len(rewards):
        x += bar + gap - 0.12
        curve = canvas.axes(figure, x=x, y=head, width=3.7, height=_SIDE)
        curve.plot(range(1, len(rewards) + 1), rewards, color=canvas.LINE_COLOURS[0])
        curve.set_xlabel("step", fontsize=canvas.FONT, color=canvas.GREY)
        curve.set_ylabel("intrinsic reward", fontsize=canvas.FONT, color=canvas.GREY)
        curve.set_ylim(0, 1.05 * max(float(np.max(rewards)), 1e-6))
        curve.tick_params(length=0, labelsize=canvas.FONT, colors=canvas.INK)
        for side in ("top", "right"):
            curve.spines[side].set_visible(False)
    return canvas.save(figure, path)
