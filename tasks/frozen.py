"""What a network that never changes, EfficientNet-lite0, shows tasks of pictures."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from data import tensors
from models import efficientnet


@functools.cache
def parameters() -> efficientnet.Params:
    """Returns the network's parameters, read from its package once."""
    return efficientnet.convert(tensors.efficientnet_lite0())


def look(
    see: Callable[[efficientnet.Params, np.ndarray], Any],
    pictures: Sequence[np.ndarray],
    at_a_time: int,
) -> Any:
    """Looks at pictures, so many at a time that each part has the same shape.

    Args:
        see: (parameters, uint8 [B, I, J, 3]) -> a pytree of [B, ...], compiled.
        pictures: uint8 [I, J, 3] each.
        at_a_time: B.

    Returns:
        What `see` returns, of all pictures, as numpy arrays.
    """
    parts, at_a_time = [], min(at_a_time, len(pictures))
    for start in range(0, len(pictures), at_a_time):
        part = np.stack(pictures[start : start + at_a_time])
        # The first ones fill up the last part.
        whole = np.resize(part, (at_a_time, *part.shape[1:]))
        parts.append(jax.device_get(see(parameters(), whole)))
    return jax.tree.map(lambda *x: np.concatenate(x)[: len(pictures)], *parts)
