"""One HTML file with the attention of examples: opens from disk, requests nothing.

The page is `page.html` with the style, the scripts and the data in it. Weights have 8
bits in the page, for colours; the entropy and the largest weights of each row, and the
details of an attention record, are exact. The data are untrusted: they are base64 in
the page, and its scripts put texts on the page only as text.

Axes: H heads; Q queries; K keys; N largest weights of a row.
"""

import base64
import dataclasses
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from base import storage
from base.errors import UserError
from base.records import SearchTree
from explorer.examples import Examples
from figures.attention import AttentionMap
from training.task import Prediction

WARNING, LIMIT = 20, 100  # MB
_TOP = 5  # N
_FOLDER = Path(__file__).parent
_SCRIPTS = "data paint views scores memory search app".split()


def write(path: Path, content: Examples, title: str) -> float:
    """Writes the page; returns its size in MB.

    Raises:
        UserError: if the page would be larger than `LIMIT`, or cannot be written.
    """
    page = html(content, title)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write(path, page)
    except OSError as error:
        raise UserError(f"--out={path}: {error.strerror}") from error
    return len(page) / 1e6


def html(content: Examples, title: str) -> str:
    """Returns the page.

    Raises:
        UserError: if it would be larger than `LIMIT`.
    """
    return html_of(zlib.compress(pack(content, title), 6))


def html_of(data: bytes) -> str:
    """Returns the page of packed and compressed data; see `html` and `pack`."""
    parts = {"style.css": (_FOLDER / "style.css").read_text()}
    parts["script"] = "\n".join(
        (_FOLDER / f"{name}.js").read_text() for name in _SCRIPTS
    )
    parts["data"] = base64.b64encode(data).decode()
    page = (_FOLDER / "page.html").read_text()
    for name, text in parts.items():
        page = page.replace(f"@@{name}@@", text)
    if (size := len(page) / 1e6) > LIMIT:
        raise UserError(
            f"the page would have {size:.0f} MB, and browsers open {LIMIT}: "
            "give fewer examples or checkpoints, or shorter inputs"
        )
    return page


def pack(content: Examples, title: str) -> bytes:
    """Returns the data of the page, as `data.js` unpacks them."""
    arrays = _Arrays()
    header = {
        "title": title,
        "runs": [{"name": name} for name in content.runs],
        "steps": content.steps,
        "examples": [
            {
                "title": example.title,
                "command": example.command,
                "results": [
                    [_result(arrays, answer) for answer in moments]
                    for moments in example.answers
                ],
            }
            for example in content.examples
        ],
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "little") + text + arrays.content


class _Arrays:
    """Arrays one after the other; equal ones once."""

    def __init__(self) -> None:
        self.content, self._places = bytearray(), {}

    def add(self, values: Any, dtype: str) -> list[int]:
        """Returns the offset in bytes and the number of values."""
        array = np.ascontiguousarray(values, dtype)
        content = array.tobytes()
        key = dtype, content
        if key not in self._places:
            self.content += bytes(-len(self.content) % 4)
            self._places[key] = len(self.content)
            self.content += content
        return [self._places[key], array.size]


def _result(arrays: _Arrays, prediction: Prediction) -> Mapping[str, Any]:
    return {
        "text": prediction.heading,
        "caption": prediction.caption,
        "score": float(prediction.score),
        "maps": [_map(arrays, each) for each in prediction.attention],
        "tree": None if prediction.tree is None else _tree(prediction.tree),
    }


def _tree(tree: SearchTree) -> Mapping[str, Any]:
    """A tree as lists, with null for a hypothesis that does not exist."""
    numbers = (
        [[round(float(x), 3) if np.isfinite(x) else None for x in row] for row in rows]
        for rows in (tree.log_probs, tree.ended)
    )
    lists = (np.asarray(x).tolist() for x in (tree.tokens, tree.parents))
    return dict(zip(tree._fields, [*lists, *numbers], strict=True))


def _map(arrays: _Arrays, attention: AttentionMap) -> Mapping[str, Any]:
    weights = np.asarray(attention.weights, np.float64)
    top = min(_TOP, weights.shape[-1])
    keys = np.argsort(-weights, axis=-1, kind="stable")[..., :top]
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy = -np.sum(weights * logs, -1)
    if attention.rounded:  # rounded rows may have a sum above 1
        entropy = np.minimum(entropy, np.log(max(weights.shape[-1], 1)))
    packed = {
        "name": attention.name,
        "layer": attention.layer,
        "shape": weights.shape,
        "queries": list(attention.queries),
        "keys": list(attention.keys),
        "titles": attention.titles,
        "note": attention.note,
        "rounded": attention.rounded,
        "window": attention.window,
        "hard": attention.hard,
        "weights": arrays.add(np.rint(255 * weights.clip(0, 1)), "<u1"),
        "entropy": arrays.add(entropy, "<f4"),
        "top_keys": arrays.add(keys, "<u2"),
        "top_weights": arrays.add(np.take_along_axis(weights, keys, -1), "<f4"),
    }
    if attention.position is not None:
        packed["position"] = arrays.add(attention.position, "<f4")
    if (places := attention.places) is not None:
        packed["places"] = arrays.add(places.boxes, "<f4")
        packed["polygon"] = places.polygon
        if places.queries is not None:
            packed["query_places"] = arrays.add(places.queries, "<f4")
        if places.truth is not None:
            packed["truth"] = arrays.add(places.truth, "<f4")
        if places.chosen is not None:
            packed["chosen"] = arrays.add(places.chosen, "<i4")
        if places.image is not None:
            values = arrays.add(places.image, "<u1")
            packed["image"] = {"shape": places.image.shape[:2], "values": values}
    if attention.details is not None:
        packed["details"] = _details(arrays, attention.details)
    return packed


def _details(arrays: _Arrays, details: Any) -> Mapping[str, Any]:
    packed = {"type": type(details).__name__}
    for field in dataclasses.fields(details):
        value = getattr(details, field.name)
        if isinstance(value, np.ndarray):
            value = {"shape": value.shape, "values": arrays.add(value, "<f4")}
        packed[field.name] = value
    return packed
