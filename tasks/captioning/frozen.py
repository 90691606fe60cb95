"""Frozen EfficientNet-lite0, read from its package once."""

import functools

from models import efficientnet
from tasks.captioning import torch_checkpoint


@functools.cache
def parameters() -> efficientnet.Params:
    """Returns the network's parameters."""
    return efficientnet.convert(torch_checkpoint.efficientnet_lite0())
