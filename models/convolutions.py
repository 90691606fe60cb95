"""Convolutions that halve or double rows and columns, written without a stride.

So neither they nor their gradients have places that are filled with zeros.

Axes: B pictures; I, J rows and columns; C channels.
"""

import jax
import jax.numpy as jnp


def blocks(x: jax.Array, side: int) -> jax.Array:
    """Places of a block side by side: a layer on it is a convolution of that stride.

    Args:
        x: [B, I, J, C].
        side: of a block.

    Returns:
        [B, I / side, J / side, side^2 C], with zeros where a last block is not full.
    """
    batch, rows, columns, width = x.shape
    x = jnp.pad(x, ((0, 0), (0, -rows % side), (0, -columns % side), (0, 0)))
    x = x.reshape(batch, -(-rows // side), side, -(-columns // side), side, width)
    return x.swapaxes(2, 3).reshape(batch, x.shape[1], x.shape[3], side**2 * width)


def halve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A convolution of 4 x 4 with a stride of 2: half the rows and columns.

    As one of 2 x 2, without a stride, on blocks of 2 x 2 places: so its gradient, too,
    has no places that are left out and filled with zeros.

    Args:
        x: [B, I, J, C], I and J even.
        kernel: [4, 4, C, C'].

    Returns:
        [B, I / 2, J / 2, C'], with a place beyond each edge that is 0.
    """
    x = blocks(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), 2)
    return convolve(x, _by_phase(kernel).reshape(2, 2, x.shape[-1], -1), "VALID")


def double(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A transposed convolution of 4 x 4 with a stride of 2: twice the rows and columns.

    As one of 2 x 2 that makes the four places of a block side by side.

    Args:
        x: [B, I, J, C].
        kernel: [4, 4, C, C'].

    Returns:
        [B, 2 I, 2 J, C'], as `jax.lax.conv_transpose` has it.
    """
    batch, rows, columns, _ = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    kernel = jnp.moveaxis(_by_phase(kernel), 4, 2)  # [2, 2, C, 2, 2, C']
    width = kernel.shape[-1]
    x = convolve(x, kernel.reshape(*kernel.shape[:3], 4 * width), "VALID")
    x = x.reshape(batch, rows + 1, columns + 1, 2, 2, width)
    # A block's second row is one of the places between it and the next block.
    x = jnp.stack([x[:, r : rows + r, :, r] for r in (0, 1)], axis=2)
    x = jnp.stack([x[:, :, :, s : columns + s, s] for s in (0, 1)], axis=4)
    return x.reshape(batch, 2 * rows, 2 * columns, width)


def widen(kernel: jax.Array) -> jax.Array:
    """A kernel [3, 3, ...] that acts on the sum of 2 x 2 places: [4, 4, ...].

    `double` with it is a convolution of the map that has each place four times; `halve`
    with a quarter of it is the mean of 2 x 2 places of a convolution.
    """
    for axis in (0, 1):
        before = [(0, 0)] * kernel.ndim
        after = list(before)
        before[axis], after[axis] = (1, 0), (0, 1)
        kernel = jnp.pad(kernel, before) + jnp.pad(kernel, after)
    return kernel


def _by_phase(kernel: jax.Array) -> jax.Array:
    """[4, 4, C, C'] to [2, 2, 2, 2, C, C']: taps 2 p + r, 2 q + s at p, q, r, s."""
    return kernel.reshape(2, 2, 2, 2, *kernel.shape[2:]).swapaxes(1, 2)


def convolve(x: jax.Array, kernel: jax.Array, padding: str = "SAME") -> jax.Array:
    """A convolution without a stride: [B, I, J, C] and [any, any, C, C']."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), padding, dimension_numbers=layout
    )
