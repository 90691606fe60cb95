"""Attention maps of predictions, drawn for every head or as an alignment.

Axes: B batch; H heads; Q queries; K keys.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from base.records import AttentionRecord
from figures.heatmaps import attention_heatmaps, legible

_POSITION = "line: predicted position"
_LONG = 20  # characters of a label that is legible in a row only
# Part of the model and name of each kind of attention.
_TITLES = {
    "encoder": ("encoder", "self-attention"),
    "decoder": ("decoder", "self-attention"),
    "cross": ("decoder", "cross-attention"),
}


class Places(NamedTuple):
    """Places of the keys of an attention map, on an image or in the plane.

    Attributes:
        boxes: [K, 4], top, left, bottom and right in shares of the image, from 0 to
            1; a point has no extent, and a key without a place is NaN.
        image: [I, J, 3] uint8; None for points in the plane.
        chosen: [Q] key chosen at each step; on an image, it has all the weight. None
            if the keys are no path.
        queries: [Q, 4] boxes of the queries, too; None for queries without places.
        polygon: number of chosen keys that make a polygon, which the last one closes;
            keys without a place count. 0 for a single open path.
        truth: [N, 4] ground-truth boxes, as `boxes`; None if unknown.
    """

    boxes: np.ndarray
    image: np.ndarray | None = None
    chosen: np.ndarray | None = None
    queries: np.ndarray | None = None
    polygon: int = 0
    truth: np.ndarray | None = None

    @property
    def is_path(self) -> bool:
        """True if each step has all its weight on a box of the image."""
        return self.chosen is not None and self.image is not None


def grid(rows: int, columns: int) -> np.ndarray:
    """Returns the boxes [rows * columns, 4] of a grid, row by row; see `Places`."""
    i, j = np.indices((rows, columns)).reshape(2, -1)
    edges = [i / rows, j / columns, (i + 1) / rows, (j + 1) / columns]
    return np.stack(edges, -1)


def grid_labels(rows: int, columns: int) -> list[str]:
    """Returns the labels of the cells of a `grid`, row by row."""
    return [f"row {i + 1}, column {j + 1}" for i, j in np.ndindex(rows, columns)]


class AttentionMap(NamedTuple):
    """Attention weights of a prediction, with the labels of their axes.

    Attributes:
        name: kind of attention, such as "cross".
        weights: [H, Q, K].
        queries: Q labels.
        keys: K labels.
        position: [H, Q] predicted positions of local-p attention; else None.
        layer: index among the layers with this kind of attention, from 0.
        titles: titles of the queries' and of the keys' axis.
        uniform: weight to mark on the colour scale, 1 / K by default; 0 for none.
        note: explanation of the labels and frames.
        places: where the keys lie; None for keys without places.
        details: those of the record, without the batch's axis; see
            `base.records.AttentionRecord`.
        rounded: whether the weights are rounded to 8 bits.
        window: half-width of the window around `position`; None for no window.
        hard: whether each query attends to a single key.
    """

    name: str
    weights: np.ndarray
    queries: Sequence[str]
    keys: Sequence[str]
    position: np.ndarray | None = None
    layer: int = 0
    titles: tuple[str, str] = ("query", "key")
    uniform: float | None = None
    note: str = ""
    places: Places | None = None
    details: Any = None
    rounded: bool = False
    window: int | None = None
    hard: bool = False


def path_map(
    name: str,
    boxes: np.ndarray,
    steps: list[str],
    image: np.ndarray,
    *,
    key: str,
    note: str = "",
) -> AttentionMap:
    """Returns the map of a path over an image: each step has all its weight on its box.

    Args:
        name: kind of attention, such as "glimpse".
        boxes: [T, 4], top, left, bottom and right in pixels or cells of the image.
        steps: T labels.
        image: [I, J, 3] uint8.
        key: title of the keys' axis.
        note: explanation of the frames.
    """
    shares = np.asarray(boxes) / np.tile(image.shape[:2], 2)
    places = Places(shares, image, chosen=np.arange(len(steps)))
    weights, titles = np.eye(len(steps))[None], ("step", key)
    return AttentionMap(
        name, weights, steps, steps, titles=titles, note=note, places=places
    )


def attention_map(
    record: AttentionRecord,
    queries: Sequence[str],
    keys: Sequence[str],
    titles: tuple[str, str] = ("query", "key"),
) -> AttentionMap:
    """Returns the attention map of an example, or of a batch's first, without padding.

    Args:
        record: its weights are [H, Q or more, K or more], or [B, ...] of a batch.
        queries: Q labels.
        keys: K labels.
        titles: titles of the axes.
    """
    if record.weights.ndim == 3:
        record = record.batch_of_one()
    position, causal = record.position, record.kind in ("decoder", "intra")
    if position is not None:
        position = np.asarray(position[0])[:, : len(queries)]
    return AttentionMap(
        name=record.kind,
        weights=np.asarray(record.weights[0])[:, : len(queries), : len(keys)],
        queries=queries,
        keys=keys,
        position=position,
        layer=record.layer,
        titles=titles,
        uniform=0 if causal else None,  # the number of keys differs by query
        details=record.details and record.details.cut(len(queries), len(keys)),
        window=record.window,
        hard=record.hard,
    )


def text_maps(
    records: Sequence[AttentionRecord], source: Sequence[str], target: Sequence[str]
) -> tuple[AttentionMap, ...]:
    """Returns the attention maps of a text and its translation; see `attention_map`.

    Args:
        records: with queries and keys "source", "target" or "previous", which is the
            target shifted by one token.
        source: SentencePiece pieces.
        target: SentencePiece pieces.
    """
    labels = {"source": piece_labels(source), "target": piece_labels(target)}
    labels["previous"] = ["<s>", *labels["target"][:-1]]
    return tuple(
        attention_map(
            record,
            labels[record.queries],
            labels[record.keys],
            ("target", "source") if record.kind == "cross" else ("query", "key"),
        )
        for record in records
    )


def draw_attention(maps: Sequence[AttentionMap], title: str, path: Path) -> Path:
    """Draws the attention of a prediction: its cross-attention, or its last kind.

    There is a heat map for each layer or hop, averaged over heads, and with several
    layers also their mean, or that mean alone if all maps are too large for one figure.
    Long labels are rows.

    All maps of a kind have the same queries and keys.
    """
    cross = any(each.name == "cross" for each in maps)
    kind = "cross" if cross else maps[-1].name
    maps = [each for each in maps if each.name == kind]
    first, several_heads = maps[0], any(len(each.weights) > 1 for each in maps)
    part = "hop" if first.name == "memory" else "layer"
    panels = {f"{part} {each.layer + 1}": each.weights.mean(0) for each in maps}
    marks = None
    if len(maps) > 1:
        every = {f"all {part}s": np.mean(list(panels.values()), 0)}
        fits = legible(len(maps) + 1, first.queries, first.keys)
        panels = every | panels if fits else every
    elif first.position is not None and not several_heads:
        title, marks = f"{title} ({_POSITION})", first.position
    means = [f"{part}s"] * (len(panels) < len(maps)) + ["heads"] * several_heads
    if means:
        title = f"{title}, mean over {' and '.join(means)}"
    axes = [(first.queries, first.titles[0]), (first.keys, first.titles[1])]
    weights = np.stack(list(panels.values()))
    if marks is None and max(map(len, first.keys)) > _LONG:
        weights, axes = weights.transpose(0, 2, 1), axes[::-1]
    (rows, row_title), (columns, column_title) = axes
    return attention_heatmaps(
        weights,
        rows=rows,
        columns=columns,
        title=title,
        path=path,
        panels=list(panels) if len(panels) > 1 else [""],
        row_title=row_title,
        column_title=column_title,
        marks=marks,
        uniform=first.uniform,
        note=first.note,
    )


def piece_labels(pieces: Sequence[str]) -> list[str]:
    """Returns readable labels of the SentencePiece pieces of a sentence.

    A "·" marks the pieces that continue a word, instead of a "▁" at its first piece:
    ["▁re", "start", "."] becomes ["re", "·start", "."].
    """
    labels = []
    for piece in pieces:
        word = piece.removeprefix("▁")
        continues = word == piece and piece[:1].isalnum() and labels
        labels.append(f"·{word}" if continues else word or "▁")
    return labels


def draw_heads(
    sentences: Mapping[str, Sequence[AttentionMap]], folder: Path
) -> list[Path]:
    """Draws all heads of all attention maps, one file per map.

    If the maps of all heads are too large for one figure, there is a file per head.

    Args:
        sentences: attention maps of each sentence, by its title; file names start with
            the number of the sentence in this mapping, from 1.
        folder: folder of the files.
    """
    paths = []
    maps = (
        (number, name, each)
        for number, (name, maps) in enumerate(sentences.items(), 1)
        for each in maps
    )
    for number, name, each in maps:
        part, kind = _TITLES.get(each.name, (each.name, "attention"))
        title = f"{name}: {part} layer {each.layer + 1}, {kind}"
        if each.position is not None:
            title += f" ({_POSITION})"
        file = f"{number}_{part}_{each.layer + 1}_{kind}"
        file = file.replace("-", "_").replace(" ", "_")
        cross, heads = each.name == "cross", len(each.weights)
        pages = {"": slice(None)}
        if heads > 1 and not legible(heads, each.queries, each.keys):
            pages = {f"head {n + 1}": slice(n, n + 1) for n in range(heads)}
        for page, chosen in pages.items():
            paths.append(
                attention_heatmaps(
                    each.weights[chosen],
                    rows=each.queries,
                    columns=each.keys,
                    title=f"{title}, {page}" if page else title,
                    path=folder / f"{'_'.join([file, *page.split()])}.png",
                    panels=[""] if page or heads == 1 else None,
                    row_title="target" if cross else "query",
                    column_title="source" if cross else "key",
                    marks=None if each.position is None else each.position[chosen],
                    uniform=each.uniform,
                )
            )
    return paths
