"""Frozen EfficientNet-lite0, read from its package once."""

import functools

from data import torch_checkpoint
from models import efficientnet


@functools.cache
def parameters() -> efficientnet.Params:
    """Returns the network's parameters."""
    return efficientnet.convert(torch_checkpoint.efficientnet_lite0())
