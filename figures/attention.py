"""Figures of a prediction's attention: every head, or the alignment.

Axes: H heads, Q queries, K keys.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from figures.heatmaps import attention_heatmaps

_POSITION = "line: the predicted position"  # the meaning of marks
# Side and name of each kind of attention.
_TITLES = {
    "encoder": ("encoder", "self-attention"),
    "decoder": ("decoder", "self-attention"),
    "cross": ("decoder", "cross-attention"),
}


class AttentionMap(NamedTuple):
    """Attention weights of a prediction, with the labels of their axes.

    Attributes:
        name: kind of the attention, such as "cross".
        weights: [H, Q, K].
        queries: Q labels.
        keys: K labels.
        position: [H, Q] predicted position of each query, by local-p; else None.
        layer: index among the attentions of this kind.
    """

    name: str
    weights: np.ndarray
    queries: Sequence[str]
    keys: Sequence[str]
    position: np.ndarray | None = None
    layer: int = 0


class Record(Protocol):
    """Attention of one layer; see `models.records.AttentionRecord`."""

    weights: Any
    position: Any
    kind: str
    layer: int
    queries: str
    keys: str


def attention_map(
    record: Record, queries: Sequence[str], keys: Sequence[str]
) -> AttentionMap:
    """Returns the attention map of a batch's first element, cut to its labels.

    Args:
        record: weights [B, H, Q or more, K or more].
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
    """Returns attention maps between texts, cut to their labels; see `attention_map`.

    Args:
        records: their queries and keys are "source", "target" or "previous", the
            tokens before those of the target.
        source: SentencePiece pieces.
        target: the same.
    """
    read, written = piece_labels(source), piece_labels(target)
    labels = {"source": read, "target": written, "previous": ["<s>", *written[:-1]]}
    return tuple(
        attention_map(record, labels[record.queries], labels[record.keys])
        for record in records
    )


def _alignment(
    layers: Sequence[np.ndarray],
    rows: Sequence[str],
    columns: Sequence[str],
    path: Path,
    *,
    position: np.ndarray | None = None,
) -> Path:
    """Draw the alignment of an output with its source.

    Args:
        layers: [H, Q, K] weights of each layer; means over heads are drawn, and with
            several layers also the mean over layers.
        rows: labels of the Q steps.
        columns: labels of the K keys.
        path: the PNG to write; its folder is made.
        position: [H, Q] predicted positions, drawn as a line over a single head.

    Returns:
        `path`.
    """
    panels = {f"layer {n}": layer.mean(0) for n, layer in enumerate(layers, 1)}
    several_heads = any(len(layer) > 1 for layer in layers)
    title, marks = "Alignment", None
    if len(panels) > 1:
        panels = {"all layers": np.mean(list(panels.values()), 0), **panels}
    elif position is not None and not several_heads:
        title, marks = f"{title} ({_POSITION})", position
    if several_heads:
        title = f"{title}: cross-attention, mean of its heads"
    return attention_heatmaps(
        np.stack(list(panels.values())),
        rows,
        columns,
        title,
        path,
        panels=list(panels) if len(panels) > 1 else ["weights"],
        row_title="writes",
        column_title="reads",
        marks=marks,
    )


def piece_labels(pieces: Sequence[str]) -> list[str]:
    """Readable labels of the SentencePiece pieces of a sentence.

    Pieces that continue a word are marked by "·", instead of "▁" at pieces that start
    one: ["▁re", "start", "."] becomes ["re", "·start", "."].
    """
    labels = []
    for piece in pieces:
        word = piece.removeprefix("▁")
        continues = word == piece and piece[:1].isalnum() and labels
        labels.append(f"·{word}" if continues else word or "▁")
    return labels


def draw_heads(sentences: Iterable[Sequence[AttentionMap]], folder: Path) -> list[Path]:
    """Draws every head of every attention of sentences, one file per attention.

    Args:
        sentences: attention maps of each sentence; file names start with its number,
            from 1.
        folder: folder of the files.
    """
    paths = []
    maps = ((n, each) for n, maps in enumerate(sentences, 1) for each in maps)
    for number, each in maps:
        side, kind = _TITLES.get(each.name, (each.name, "attention"))
        title = f"Sentence {number}: {side} layer {each.layer + 1}, {kind}"
        if each.position is not None:
            title += f" ({_POSITION})"
        file = f"{number}_{side}_{each.layer}_{kind.replace('-', '_')}.png"
        cross = each.name == "cross"
        paths.append(
            attention_heatmaps(
                each.weights,
                each.queries,
                each.keys,
                title,
                folder / file,
                panels=None if len(each.weights) > 1 else ["weights"],
                row_title="writes" if cross else "queries",
                column_title="reads" if cross else "keys",
                marks=each.position,
            )
        )
    return paths


def draw_alignment(maps: Sequence[AttentionMap], path: Path) -> Path:
    """Draws cross-attention, averaged over heads; returns `path`."""
    maps = [each for each in maps if each.name == "cross"]
    return _alignment(
        [each.weights for each in maps],
        maps[0].queries,
        maps[0].keys,
        path,
        position=maps[0].position,
    )
