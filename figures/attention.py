"""Attention maps of predictions, drawn for every head or as an alignment.

Axes: B batch; H heads; Q queries; K keys.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from figures.heatmaps import attention_heatmaps, legible

_POSITION = "line: predicted position"
# Part of the model and name of each kind of attention.
_TITLES = {
    "encoder": ("encoder", "self-attention"),
    "decoder": ("decoder", "self-attention"),
    "cross": ("decoder", "cross-attention"),
}


class AttentionMap(NamedTuple):
    """Attention weights of a prediction, with the labels of their axes.

    Attributes:
        name: kind of attention, such as "cross".
        weights: [H, Q, K].
        queries: Q labels.
        keys: K labels.
        position: [H, Q] predicted positions of local-p attention; else None.
        layer: index among the layers with this kind of attention, from 0.
    """

    name: str
    weights: np.ndarray
    queries: Sequence[str]
    keys: Sequence[str]
    position: np.ndarray | None = None
    layer: int = 0


class Record(Protocol):
    """Attention of one layer; see `base.records.AttentionRecord`."""

    weights: Any
    position: Any
    kind: str
    layer: int
    queries: str
    keys: str


def attention_map(
    record: Record, queries: Sequence[str], keys: Sequence[str]
) -> AttentionMap:
    """Returns the attention map of a batch's first example, without padding.

    Args:
        record: its weights are [B, H, Q or more, K or more].
        queries: Q labels.
        keys: K labels.
    """
    position = record.position
    if position is not None:
        position = np.asarray(position[0])[:, : len(queries)]
    return AttentionMap(
        name=record.kind,
        weights=np.asarray(record.weights[0])[:, : len(queries), : len(keys)],
        queries=queries,
        keys=keys,
        position=position,
        layer=record.layer,
    )


def text_maps(
    records: Sequence[Record], source: Sequence[str], target: Sequence[str]
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
        attention_map(record, labels[record.queries], labels[record.keys])
        for record in records
    )


def _alignment(
    layers: Sequence[np.ndarray],
    target: Sequence[str],
    source: Sequence[str],
    title: str,
    path: Path,
    *,
    position: np.ndarray | None = None,
) -> Path:
    """Draws the alignment of a target with its source.

    Args:
        layers: [H, Q, K] weights of each layer; means over heads are drawn, and with
            several layers also the mean over layers, or that mean alone if all maps are
            too large for one figure.
        target: Q labels.
        source: K labels.
        title: start of the title, such as "Line 1".
        path: PNG file to write; its folder is created.
        position: [H, Q] predicted positions, drawn as a line if H is 1.

    Returns:
        `path`.
    """
    panels = {f"layer {n}": layer.mean(0) for n, layer in enumerate(layers, 1)}
    several_heads = any(len(layer) > 1 for layer in layers)
    title, marks = f"{title}: alignment", None
    if len(panels) > 1:
        every = {"all layers": np.mean(list(panels.values()), 0)}
        fits = legible(len(panels) + 1, target, source)
        panels = every | panels if fits else every
    elif position is not None and not several_heads:
        title, marks = f"{title} ({_POSITION})", position
    means = ["layers"] * (len(panels) < len(layers)) + ["heads"] * several_heads
    if means:
        title = f"{title}, mean over {' and '.join(means)}"
    return attention_heatmaps(
        np.stack(list(panels.values())),
        rows=target,
        columns=source,
        title=title,
        path=path,
        panels=list(panels) if len(panels) > 1 else [""],
        row_title="target",
        column_title="source",
        marks=marks,
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
        file = f"{number}_{part}_{each.layer + 1}_{kind.replace('-', '_')}"
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
                )
            )
    return paths


def draw_alignment(maps: Sequence[AttentionMap], title: str, path: Path) -> Path:
    """Draws cross-attention, averaged over heads; returns `path`."""
    maps = [each for each in maps if each.name == "cross"]
    return _alignment(
        [each.weights for each in maps],
        target=maps[0].queries,
        source=maps[0].keys,
        title=title,
        path=path,
        position=maps[0].position,
    )
