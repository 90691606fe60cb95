"""EfficientNet-lite0 as a fixed function: images to maps, vectors, or classes.

Tan and Le (2019), table 1, in the "lite" form of its authors: ReLU6 for swish, nothing
squeezed and excited, stem and head of 32 and 1280 channels. It is used as it was
trained, with the running statistics of its batch norm.

Axes: B images; I, J rows and columns; C channels.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ops.convolution import depthwise

SIZE = 224  # pixels of a side that it was trained with
# Repeats, kernel, stride of the first, expansion, channels.
_STAGES = (
    *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80)),
    *((3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)),
)
_MAP_STAGE = 4  # the last one with a place for 16 x 16 pixels
_EPSILON = 1e-3  # of batch norm

Params = dict[str, dict[str, jax.Array]]


def convert(tensors: Mapping[str, np.ndarray]) -> Params:
    """Makes parameters of PyTorch's: kernels [I, J, C, C'], batch norm folded in.

    Args:
        tensors: by name, kernels [C', C, I, J]; see
            `data.torch_checkpoint.efficientnet_lite0`.

    Returns:
        Kernel and bias of each layer, float32, by name.
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
            at = f"_blocks.{block}"
            if expansion > 1:
                fold(f"{block}/expand", f"{at}._expand_conv", f"{at}._bn0")
            fold(f"{block}/depth", f"{at}._depthwise_conv", f"{at}._bn1")
            fold(f"{block}/project", f"{at}._project_conv", f"{at}._bn2")
            block += 1
    fold("head", "_conv_head", "_bn1")
    params["classes"] = {
        "kernel": jnp.asarray(tensors["_fc.weight"].T),
        "bias": jnp.asarray(tensors["_fc.bias"]),
    }
    return params


def maps(params: Params, images: jax.Array) -> jax.Array:
    """Feature maps of the fifth stage: 14 x 14 x 112 for images of 224 pixels.

    Args:
        params: from `convert`.
        images: uint8 [B, I, J, 3].

    Returns:
        float32 [B, I / 16, J / 16, 112].
    """
    return _stages(params, images, _MAP_STAGE + 1)


def vectors(params: Params, images: jax.Array) -> jax.Array:
    """Features for `classify`: the mean of the head over positions.

    Args:
        params: from `convert`.
        images: uint8 [B, I, J, 3].

    Returns:
        float32 [B, 1280], at least 0.
    """
    x = _stages(params, images, len(_STAGES))
    return jax.nn.relu6(_convolve(params["head"], x)).mean((1, 2))


def classify(params: Params, features: jax.Array) -> jax.Array:
    """Logits of ImageNet's thousand classes.

    Args:
        params: from `convert`.
        features: [B, 1280], of `vectors`.

    Returns:
        float32 [B, 1000].
    """
    layer = params["classes"]
    return features @ layer["kernel"] + layer["bias"]


@functools.partial(jax.jit, static_argnames="size")
def features(
    params: Params, images: jax.Array, *, size: int
) -> tuple[jax.Array, jax.Array]:
    """Features of images and class probabilities.

    Args:
        params: from `convert`.
        images: uint8 [B, I, J, 3].
        size: size in pixels that images are scaled to.

    Returns:
        float32 features [B, 1280] and probabilities [B, 1000] of ImageNet's classes.
    """
    shape = (len(images), size, size, 3)
    images = jax.image.resize(images.astype(jnp.float32), shape, "bilinear")
    x = vectors(params, images)
    return x, jax.nn.softmax(classify(params, x))


@jax.jit
def half_maps(params: Params, images: jax.Array) -> jax.Array:
    """`maps` in half the memory: float16 [B, I / 16, J / 16, 112]."""
    return maps(params, images).astype(jnp.float16)


def in_batches(
    function: Callable[[Params, np.ndarray], Any],
    params: Params,
    images: Sequence[np.ndarray],
    batch_size: int,
) -> Any:
    """Apply a compiled function to any number of images, in batches of one shape.

    Args:
        function: (params, uint8 [B, I, J, 3]) -> a pytree of [B, ...].
        params: from `convert`.
        images: N images uint8 [I, J, 3].
        batch_size: maximum of B.

    Returns:
        A pytree of numpy arrays [N, ...].
    """
    parts, batch_size = [], min(batch_size, len(images))
    for start in range(0, len(images), batch_size):
        batch = np.stack(images[start : start + batch_size])
        # The last batch is filled up with copies of its images.
        filled = np.resize(batch, (batch_size, *batch.shape[1:]))
        parts.append(jax.device_get(function(params, filled)))
    return jax.tree.map(lambda *x: np.concatenate(x)[: len(images)], *parts)


def _stages(params: Params, images: jax.Array, count: int) -> jax.Array:
    x = images.astype(jnp.float32) / 127.5 - 1
    x = jax.nn.relu6(_convolve(params["stem"], x, 2))
    block = 0
    for repeats, _, stride, expansion, _ in _STAGES[:count]:
        for repeat in range(repeats):
            x = _block(params, block, x, stride if repeat == 0 else 1, expansion)
            block += 1
    return x


def _block(params, block, x, stride, expansion) -> jax.Array:
    """An inverted bottleneck: wider, place by place along each channel, narrow."""
    y = x
    if expansion > 1:
        y = jax.nn.relu6(_convolve(params[f"{block}/expand"], y))
    depth = params[f"{block}/depth"]
    kernel = depth["kernel"][:, :, 0]  # [any, any, C]
    y = jax.nn.relu6(depth["bias"] + depthwise(y, kernel, stride))
    y = _convolve(params[f"{block}/project"], y)
    return x + y if stride == 1 and x.shape == y.shape else y


def _convolve(layer, x, stride=1) -> jax.Array:
    y = jax.lax.conv_general_dilated(
        *(x, layer["kernel"], (stride, stride), "SAME"),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return y + layer["bias"]
