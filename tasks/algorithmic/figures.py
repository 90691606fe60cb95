"""Sequences and attention to a memory, drawn over a shared time axis.

Axes: T steps; I inputs; O outputs; H heads; N memory slots.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from figures import canvas, fonts
from figures.drawings import drawing

_MAX_MAPS = 40  # maximum number of maps in a figure


@drawing
def sequence_maps(
    panels: Mapping[str, np.ndarray],
    title: str,
    path: Path,
    *,
    signed: Collection[str] = (),
) -> Path:
    """Draws maps over a shared time axis, as in Graves et al. (2014), figure 6.

    Cells of maps that are too large for a figure show the values of largest magnitude
    of blocks of steps and rows, which the title states.

    Args:
        panels: name -> [rows, T] values, from the top, such as bits or the weights of
            memory slots; in [0, 1] unless signed.
        title: title of the figure.
        path: PNG file to write; its folder is created.
        signed: names of the maps with negative values, drawn on a two-colour scale over
            [-1, 1], or wider if values are beyond.

    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    panels = {name: np.asarray(values, np.float32) for name, values in panels.items()}
    (steps,) = {values.shape[1] for values in panels.values()}
    names, count = list(panels)[:_MAX_MAPS], len(panels)
    if count > len(names):
        title += f" (the first {len(names)} of {count} maps)"
    left, between = round(0.6 + canvas.text_width(names, 10), 1), 0.14
    head, foot = 0.55, 0.6
    room = int(canvas.DPI * (canvas.MAX_SIZE - left - 1.3))
    room_y = canvas.MAX_SIZE - head - foot - 0.5 - between * len(names)
    # Whole pixels per cell, so that all cells of a map have the same size.
    column = min(int(np.clip(1200 // steps, 4, 40)), max(1, room // steps))
    width = min(steps * (column / canvas.DPI), room / canvas.DPI)
    heights = {
        name: max(0.3, len(values) * np.clip(384 // len(values), 2, 15) / canvas.DPI)
        for name, values in panels.items()
        if name in names
    }
    shrink = min(1.0, room_y / sum(heights.values()))
    heights = {name: height * shrink for name, height in heights.items()}
    blocks = {n: canvas.blocks(panels[n].shape, width, heights[n]) for n in names}
    title += canvas.blocks_note(*map(max, zip(*blocks.values(), strict=True)))
    height = head + sum(heights.values()) + between * (len(names) - 1) + foot
    total_width = max(left + width + 1.1, round(canvas.title_width(title), 1))
    figure = canvas.figure(total_width, height, title)
    limit = max([1.0, *(float(np.abs(panels[n]).max(initial=0)) for n in signed)])
    colours = LinearSegmentedColormap.from_list(
        "signed", ["#7a3400", canvas.MARK, "#ffffff", "#4292c6", "#08264f"], N=257
    )
    scales = {False: (canvas.colour_map(), 0.0, 1.0), True: (colours, -limit, limit)}
    # The tallest map of each scale gets the colour bar.
    by_scale = [[n for n in names if (n in signed) is scale] for scale in scales]
    with_bar = {max(group, key=heights.get): group for group in by_scale if group}
    y = head
    for name in names:
        values, (down, across) = panels[name], blocks[name]
        axes = canvas.axes(figure, x=left, y=y, width=width, height=heights[name])
        colours, low, high = scales[name in signed]
        image = axes.imshow(
            canvas.pool(values, down, across),
            cmap=colours,
            vmin=low,
            vmax=high,
            aspect="auto",
            interpolation="nearest",
            extent=canvas.extent(values.shape, down, across),
        )
        axes.set(xlim=(-0.5, steps - 0.5), ylim=(len(values) - 0.5, -0.5))
        (label,) = fonts.shorten([name])
        axes.set_ylabel(
            label, rotation=0, ha="right", va="center", fontsize=10, color=canvas.INK
        )
        axes.yaxis.set_label_coords(-0.38 / width, 0.5)
        axes.set_yticks(sorted({0, len(values) - 1}))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(
            length=2,
            labelsize=canvas.FONT,
            colors=canvas.GREY,
            labelbottom=name == names[-1],
        )
        for spine in axes.spines.values():
            spine.set_color(canvas.FRAME)
        if name in with_bar:
            x = left + width + 0.15
            group = [] if len(with_bar) == 1 else with_bar[name]
            bar_name = ", ".join(group) if name in signed else "other maps"
            canvas.colour_bar(
                figure,
                image,
                x=x,
                y=y,
                height=min(heights[name], 1.2),
                name=bar_name if group else "",
            )
        y += heights[name] + between
    axes.set_xlabel("step", fontsize=10, color=canvas.GREY, labelpad=4)
    return canvas.save(figure, path)


def bit_sequence(
    inputs: np.ndarray,
    targets: np.ndarray,
    outputs: np.ndarray,
    weights: Mapping[str, np.ndarray],
    title: str,
    path: Path,
) -> Path:
    """Draws the inputs, targets, outputs and errors of a sequence, and its attention.

    Args:
        inputs: [T, I]; an input that exceeds magnitude 1 is scaled to a maximum of 1.
        targets: [T, O] in [0, 1].
        outputs: [T, O] in [0, 1].
        weights: name -> [H, T, N], from the top; several heads are numbered.
        title: title of the figure.
        path: PNG file to write; its folder is created.

    """
    inputs = inputs / np.maximum(1, np.abs(inputs).max(0))
    panels = {"input": inputs, "target": targets, "output": outputs}
    panels["error"] = outputs - targets
    for name, heads in weights.items():
        for head, values in enumerate(heads, 1):
            panels[f"{name} {head}" if len(heads) > 1 else name] = values
    signed = ["error"] + ["input"] * bool(inputs.min() < 0)
    panels = {name: np.transpose(values) for name, values in panels.items()}
    return sequence_maps(panels, title, path, signed=signed)
