"""EfficientNet-lite0 with fixed parameters: feature maps, features and classes.

Tan and Le (2019), table 1, in the authors' "lite" variant: ReLU6 instead of swish, no
squeeze-and-excitation, and always 32 channels in the stem and 1280 in the head. Batch
norm uses the running statistics from training.

Axes: B images; I, J rows and columns; C channels.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attention.fast.convolution import convolve, depthwise
from base import spread

SIZE = 224  # rows and columns of the training images
# Per stage: blocks, kernel size, stride of the first block, expansion, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_MAP_STAGE = 4  # the last stage with a position for each 16 x 16 pixels
_EPSILON = 1e-3  # added to the variance in batch norm

Params = dict[str, dict[str, jax.Array]]


def convert(tensors: Mapping[str, np.ndarray]) -> Params:
    """Converts PyTorch parameters, folding batch norm into the convolutions.

    Args:
        tensors: PyTorch name -> float32 tensor, with kernels [C', C, I, J]; see
            `tasks.captioning.frozen.read_tensors`.

    Returns:
        Layer name -> float32 kernel [I, J, C, C'] and bias [C'].
    """
    params = {}

    def fold(name: str, conv: str, norm: str) -> None:
        scale = tensors[f"{norm}.weight"]
        scale = scale / np.sqrt(tensors[f"{norm}.running_var"] + _EPSILON)
        kernel = tensors[f"{conv}.weight"].transpose(2, 3, 1, 0) * scale
        bias = tensors[f"{norm}.bias"] - tensors[f"{norm}.running_mean"] * scale
        params[name] = {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}

    fold("stem", "_conv_stem", "_bn0")
    block = 0
    for repeats, _, _, expansion, _ in _STAGES:
        for _ in range(repeats):
            prefix = f"_blocks.{block}"
            if expansion > 1:
                fold(f"{block}/expand", f"{prefix}._expand_conv", f"{prefix}._bn0")
            fold(f"{block}/depth", f"{prefix}._depthwise_conv", f"{prefix}._bn1")
            fold(f"{block}/project", f"{prefix}._project_conv", f"{prefix}._bn2")
            block += 1
    fold("head", "_conv_head", "_bn1")
    params["classes"] = {
        "kernel": jnp.asarray(tensors["_fc.weight"].T),
        "bias": jnp.asarray(tensors["_fc.bias"]),
    }
    return params


def maps(params: Params, images: jax.Array) -> jax.Array:
    """Feature maps of stage 6 of table 1, 14 x 14 x 112 for images of `SIZE`.

    Args:
        params: from `convert`.
        images: [B, I, J, 3] uint8.

    Returns:
        [B, I / 16, J / 16, 112] float32.
    """
    return _stages(params, images, _MAP_STAGE + 1)


def vectors(params: Params, images: jax.Array) -> jax.Array:
    """Computes the features before the classifier: the mean of the head's output.

    Args:
        params: from `convert`.
        images: [B, I, J, 3] uint8.

    Returns:
        [B, 1280] float32 in [0, 6].
    """
    x = _stages(params, images, len(_STAGES))
    return jax.nn.relu6(_convolve(params["head"], x)).mean((1, 2))


def classify(params: Params, features: jax.Array) -> jax.Array:
    """Computes the logits of ImageNet's classes.

    Args:
        params: from `convert`.
        features: [B, 1280] from `vectors`.

    Returns:
        [B, 1000] float32.
    """
    layer = params["classes"]
    return features @ layer["kernel"] + layer["bias"]


@functools.partial(jax.jit, static_argnames="size")
def features_and_classes(
    params: Params, images: jax.Array, *, size: int
) -> tuple[jax.Array, jax.Array]:
    """Computes features and class probabilities of resized images.

    Args:
        params: from `convert`.
        images: [B, I, J, 3] uint8.
        size: rows and columns that images are resized to, in pixels.

    Returns:
        Features [B, 1280] and probabilities [B, 1000] of ImageNet's classes, float32.
    """
    shape = (len(images), size, size, 3)
    images = jax.image.resize(images.astype(jnp.float32), shape, "bilinear")
    x = vectors(params, images)
    return x, jax.nn.softmax(classify(params, x))


@jax.jit
def half_maps(params: Params, images: jax.Array) -> jax.Array:
    """Computes `maps` in half the memory: [B, I / 16, J / 16, 112] float16."""
    return maps(params, images).astype(jnp.float16)


def in_batches(
    function: Callable[[Params, np.ndarray], Any],
    params: Params,
    images: Sequence[np.ndarray],
    batch_size: int,
) -> Any:
    """Applies a compiled function to any number of images, in batches of equal size.

    Args:
        function: (params, [B, I, J, 3] uint8) -> a pytree of [B, ...].
        params: from `convert`.
        images: [I, J, 3] uint8 each.
        batch_size: maximum of B.

    Returns:
        A pytree of numpy arrays [len(images), ...].
    """
    batch_size = min(batch_size, len(images))

    def apply(start: int) -> Any:
        batch = np.stack(images[start : start + batch_size])
        # Repeats images to fill the last batch.
        batch = np.resize(batch, (batch_size, *batch.shape[1:]))
        return jax.device_get(function(params, batch))

    parts = spread.each(apply, range(0, len(images), batch_size))
    return jax.tree.map(lambda *x: np.concatenate(x)[: len(images)], *parts)


def _stages(params: Params, images: jax.Array, count: int) -> jax.Array:
    """Output of the stem and the first `count` stages."""
    x = images.astype(jnp.float32) / 127.5 - 1
    x = jax.nn.relu6(_convolve(params["stem"], x, 2))
    block = 0
    for repeats, _, stride, expansion, _ in _STAGES[:count]:
        for _ in range(repeats):
            x = _block(params, block, x, stride=stride, expansion=expansion)
            block, stride = block + 1, 1
    return x


def _block(params, block, x, *, stride, expansion) -> jax.Array:
    """Inverted bottleneck: expansion, depthwise convolution, projection."""
    y = x
    if expansion > 1:
        y = jax.nn.relu6(_convolve(params[f"{block}/expand"], y))
    depth = params[f"{block}/depth"]
    kernel = depth["kernel"][:, :, 0]  # [I, J, C]
    y = jax.nn.relu6(depth["bias"] + depthwise(y, kernel, stride))
    y = _convolve(params[f"{block}/project"], y)
    return x + y if stride == 1 and x.shape == y.shape else y


def _convolve(layer, x, stride=1) -> jax.Array:
    return convolve(x, layer["kernel"], stride=stride) + layer["bias"]
