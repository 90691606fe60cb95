"""Convolutions of many images; strided, transposed and depthwise convolutions.

Neither the values nor the gradients of the latter need zero-dilated arrays or grouped
convolutions, which are slow on a CPU. Unless stated otherwise, times are for value and
gradient in float32, on two threads of a CPU.

Axes: B images; I, J rows and columns; C channels in, C' out.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def convolve(
    x: jax.Array, kernel: jax.Array, padding: str = "SAME", stride: int = 1
) -> jax.Array:
    """Convolution, as the library computes it.

    Args:
        x: [B, I, J, C].
        kernel: [any, any, C, C'].
        padding: "SAME" or "VALID".
        stride: at least 1.

    Returns:
        [B, I / stride, J / stride, C'], sizes rounded up, with padding "SAME"; fewer
        rows and columns with "VALID".
    """
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=layout
    )


def conv_general_dilated(x: jax.Array, *args: Any, **options: Any) -> jax.Array:
    """`jax.lax.conv_general_dilated`; on a single CPU, in parts of 64 images.

    There, the gradient of the kernel takes several times as long per image if there are
    hundreds of them.

    Args:
        x: [B, ...] images.
        *args: the other arguments.
        **options: the other options.

    Returns:
        [B, ...].
    """
    convolution: Callable[..., jax.Array] = jax.lax.conv_general_dilated
    if [device.platform for device in jax.devices()] != ["cpu"]:
        return convolution(x, *args, **options)
    parts = jnp.split(x, list(range(64, len(x), 64)))
    return jnp.concatenate([convolution(part, *args, **options) for part in parts])


def blocks(x: jax.Array, side: int) -> jax.Array:
    """Space-to-depth: concatenates the channels of each block of positions.

    A dense layer on the result is a convolution with a kernel and stride of `side`.

    Args:
        x: [B, I, J, C].
        side: rows and columns of a block, at least 1.

    Returns:
        [B, I / side, J / side, side^2 C], sizes rounded up; the last blocks are padded
        with 0.
    """
    batch, rows, columns, width = x.shape
    x = jnp.pad(x, ((0, 0), (0, -rows % side), (0, -columns % side), (0, 0)))
    x = x.reshape(batch, -(-rows // side), side, -(-columns // side), side, width)
    return x.swapaxes(2, 3).reshape(batch, x.shape[1], x.shape[3], side**2 * width)


def patches(x: jax.Array) -> jax.Array:
    """Patches of 3 x 3 positions with a stride of 2 and a margin of 1.

    A dense layer on the result is a convolution: inside of a scan and with 32 filters,
    nine times as fast as `nn.Conv` with its gradient.

    Args:
        x: [B, I, J, C].

    Returns:
        [B, I / 2, J / 2, 9 C], sizes rounded up.
    """
    _, rows, columns, _ = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    corners = itertools.product(range(3), range(3))
    parts = [x[:, i : i + rows : 2, j : j + columns : 2] for i, j in corners]
    return jnp.concatenate(parts, -1)


def halve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """4 x 4 convolution with a stride of 2: half the rows and columns.

    It is computed as a 2 x 2 convolution of `blocks` of 2 x 2 positions. From
    [64, 32, 32, 16] to 32 channels, this is 1.3 times as fast as a strided convolution;
    with `widen` it is 2 times as fast as a 3 x 3 convolution and mean pooling.

    Args:
        x: [B, I, J, C], I and J even.
        kernel: [4, 4, C, C'].

    Returns:
        [B, I / 2, J / 2, C'], padded with one position of 0 beyond each edge ("SAME").
    """
    x = blocks(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), 2)
    return convolve(x, _by_phase(kernel).reshape(2, 2, x.shape[-1], -1), "VALID")


def double(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """4 x 4 transposed convolution with a stride of 2: twice the rows and columns.

    It is computed as a 2 x 2 convolution that outputs the 4 positions of a block as
    channels. From [64, 16, 16, 32] to 16 channels, this is 8 times as fast as
    `jax.lax.conv_transpose`; with `widen` it is 2 times as fast as upsampling and a
    3 x 3 convolution.

    Args:
        x: [B, I, J, C].
        kernel: [4, 4, C, C'].

    Returns:
        [B, 2 I, 2 J, C'], equal to `jax.lax.conv_transpose` with padding "SAME".
    """
    batch, rows, columns, _ = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    kernel = jnp.moveaxis(_by_phase(kernel), 4, 2)  # [2, 2, C, 2, 2, C']
    width = kernel.shape[-1]
    x = convolve(x, kernel.reshape(*kernel.shape[:3], 4 * width), "VALID")
    x = x.reshape(batch, rows + 1, columns + 1, 2, 2, width)
    # A block's second row lies between it and the next block.
    x = jnp.stack([x[:, r : rows + r, :, r] for r in (0, 1)], axis=2)
    x = jnp.stack([x[:, :, :, s : columns + s, s] for s in (0, 1)], axis=4)
    return x.reshape(batch, 2 * rows, 2 * columns, width)


def widen(kernel: jax.Array) -> jax.Array:
    """Widens a 3 x 3 kernel to 4 x 4, merging it with 2 x 2 upsampling or pooling.

    `double` with the result equals nearest-neighbour upsampling followed by the 3 x 3
    convolution; `halve` with a quarter of the result equals the 3 x 3 convolution
    followed by 2 x 2 mean pooling.

    Args:
        kernel: [3, 3, C, C'].

    Returns:
        [4, 4, C, C'], the sum of the kernel's four shifts by 0 or 1 row and column.
    """
    for axis in (0, 1):
        before = [(0, 0)] * kernel.ndim
        after = list(before)
        before[axis], after[axis] = (1, 0), (0, 1)
        kernel = jnp.pad(kernel, before) + jnp.pad(kernel, after)
    return kernel


def depthwise(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """Depthwise convolution, computed as a sum of shifted products.

    Without gradients, a 5 x 5 kernel on [16, 28, 28, 240] is 40 times as fast as with a
    grouped convolution.

    Args:
        x: [B, I, J, C].
        kernel: [any, any, C], one kernel per channel.
        stride: at least 1.

    Returns:
        [B, I / stride, J / stride, C], sizes rounded up; padding "SAME".
    """
    size = kernel.shape[:2]
    pads = jax.lax.padtype_to_pads(x.shape[1:3], size, (stride, stride), "SAME")
    rows, columns = (-(-n // stride) for n in x.shape[1:3])
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    products = [
        x[:, row::stride, column::stride][:, :rows, :columns] * kernel[row, column]
        for row, column in itertools.product(*map(range, size))
    ]
    return functools.reduce(jnp.add, products)


def _by_phase(kernel: jax.Array) -> jax.Array:
    """[4, 4, C, C'] to [2, 2, 2, 2, C, C']: tap 2p + r, 2q + s is at p, q, r, s."""
    return kernel.reshape(2, 2, 2, 2, *kernel.shape[2:]).swapaxes(1, 2)
