"""Matrix products with a cheaper gradient, and several of them as one.

Axes: ... any batch; B batch; T positions; H heads; C, F channels; D width of a head.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp


@jax.custom_vjp
def linear(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Matrix product x W with a gradient that transposes the narrower factor.

    A matrix product on a CPU reads row-major factors and first copies a transposed one.
    The automatic gradient of W, x^T g, copies x even if x is wider than the gradient g
    of the product.

    Args:
        x: [..., C].
        kernel: [C, F].

    Returns:
        [..., F] in the promoted dtype of the arguments.
    """
    return x @ kernel


def _linear_backward(residuals, gradient):
    x, kernel = residuals
    rows = x.reshape(-1, x.shape[-1])
    gradient_rows = gradient.reshape(-1, gradient.shape[-1])
    if rows.shape[1] <= gradient_rows.shape[1]:
        kernel_gradient = rows.T @ gradient_rows
    else:
        # The barrier keeps XLA from turning this back into rows.T @ gradient_rows.
        kernel_gradient = jax.lax.optimization_barrier(gradient_rows.T @ rows).T
    return gradient @ kernel.T, kernel_gradient


linear.defvjp(lambda x, kernel: (x @ kernel, (x, kernel)), _linear_backward)


def merge_heads(kernels: Sequence[jax.Array], heads: int) -> jax.Array:
    """Concatenates projection kernels so that one matrix product computes them all.

    The columns of a head are side by side, so that devices can share out the heads of
    the product without exchanging columns.

    Args:
        kernels: arrays [C, H D].
        heads: H.

    Returns:
        [C, H parts D]; `split_heads` separates its products.
    """
    columns = [kernel.reshape(len(kernel), heads, -1) for kernel in kernels]
    return jnp.stack(columns, axis=2).reshape(len(kernels[0]), -1)


def split_heads(x: jax.Array, parts: int, heads: int) -> tuple[jax.Array, ...]:
    """Splits the product with a kernel of `merge_heads` into heads.

    Args:
        x: [B, T, H parts D].
        parts: number of projections: 3 for query, key and value.
        heads: H.

    Returns:
        `parts` arrays [B, H, T, D].
    """
    x = x.reshape(*x.shape[:2], heads, parts, -1)
    return tuple(jnp.swapaxes(x[:, :, :, i], 1, 2) for i in range(parts))
