"""Figures with the arrays that they show: kept in a small file, and drawn again.

A function with the decorator `drawing` draws one figure from arrays and labels. While
`recorded` is active, its calls are collected, and each PNG carries the texts of its
figure: titles, axes, labels.
"""

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from base.errors import parse_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ARRAY = "array"  # key of the number of an array
_DIGITS = 4  # of the numbers in a file


class Call(NamedTuple):
    """A call of a function that draws.

    Attributes:
        function: its name, such as "attention_heatmaps".
        arguments: by name, without the path.
        path: the figure.
    """

    function: str
    arguments: dict[str, Any]
    path: Path


_calls: list[Call] | None = None
_functions: dict[str, Callable[..., Path]] = {}


def drawing(function: Callable[..., Path]) -> Callable[..., Path]:
    """Decorator for functions that draw one figure from arrays and labels."""
    signature = inspect.signature(function)
    name = function.__name__

    @functools.wraps(function)
    def draw(*args, **kwargs) -> Path:
        if _calls is None:
            return function(*args, **kwargs)
        arguments = dict(signature.bind(*args, **kwargs).arguments)
        path = function(*args, **kwargs)
        del arguments["path"]
        _calls.append(Call(name, arguments, Path(path)))
        return path

    _functions[name] = draw
    return draw


@contextlib.contextmanager
def recorded() -> Iterator[list[Call]]:
    """Collects the calls of functions that draw; writes the texts into the PNGs."""
    global _calls
    before, _calls = _calls, []
    try:
        yield _calls
    finally:
        _calls = before


def metadata(figure: "Figure") -> dict[str, str]:
    """Returns the texts of a drawn figure for its PNG; empty unless calls are recorded.

    The texts are under the key "Texts", as a list in JSON.
    """
    from matplotlib.text import Text

    if _calls is None:
        return {}
    texts = [x.get_text() for x in figure.findobj(Text) if x.get_visible()]
    return {"Texts": json.dumps([text for text in texts if text])}


def store(call: Call, path: Path) -> None:
    """Writes a call into a file, its numbers with four decimals."""
    arrays: list[np.ndarray] = []

    def encode(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: encode(each) for name, each in value.items()}
        if isinstance(value, (set, frozenset)):
            return sorted(value)
        if isinstance(value, (list, tuple, range)):
            return [encode(each) for each in value]
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32).round(_DIGITS) + 0.0
        if not array.ndim:
            return array.item()
        arrays.append(array)
        return {_ARRAY: len(arrays) - 1}

    text = json.dumps({"function": call.function, "arguments": encode(call.arguments)})
    named = {f"{_ARRAY}_{number}": array for number, array in enumerate(arrays)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, call=np.array(text), **named)


def redraw(stored: Path, path: Path) -> Path:
    """Draws the figure of a stored call as a PNG; returns `path`.

    The module with its function must have been imported.
    """
    with np.load(stored) as arrays:

        def decode(value: Any) -> Any:
            if isinstance(value, dict):
                if value.keys() == {_ARRAY}:
                    return arrays[f"{_ARRAY}_{value[_ARRAY]}"]
                return {name: decode(each) for name, each in value.items()}
            return list(map(decode, value)) if isinstance(value, list) else value

        call = parse_json(str(arrays["call"]))
        arguments = decode(call["arguments"])
    function = call["function"].rpartition(".")[2]  # without a module
    return _functions[function](**arguments, path=path)
