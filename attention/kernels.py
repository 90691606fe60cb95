"""Kernel regression: attention with a fixed score, the logarithm of a kernel.

Nadaraya (1964) and Watson (1964) estimate f(x) = sum_i K(u_i) y_i / sum_j K(u_j) with
u_i = (x - x_i) / width. This is attention with query x, keys x_i, values y_i and scores
log K(u_i): the softmax performs the division, and a kernel of 0 masks a key.

| name | K(u), with r = norm of u |
|---|---|
| gaussian | exp(-r^2 / 2) |
| boxcar | 1 where r <= 1, else 0 |
| triangular | max(0, 1 - r) |
| epanechnikov | max(0, 3/4 (1 - r^2)) |
| constant | 1: average pooling |

Constant factors of K cancel in the quotient and are left out, except for the 3/4.
`KERNELS` maps names to functions.

Axes: ... any batch; Q queries; K keys; D query and key width; V value width.

Differs from the papers: a query without neighbours, where the estimate is 0 / 0, gets
weights, context and gradients of 0. Keys may have any width D; distances are Euclidean.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .core import Attention, attend

__all__ = [
    "KERNELS",
    "Kernel",
    "boxcar",
    "constant",
    "epanechnikov",
    "gaussian",
    "kernel_regression",
    "kernel_scores",
    "triangular",
]

Kernel = Callable[[jax.Array], jax.Array]
"""A kernel: a function from the squared norms of u to log K(u), elementwise."""


def gaussian(square: jax.Array) -> jax.Array:
    """Gaussian kernel: log K(u) = -|u|^2 / 2.

    Args:
        square: [...] squared norms |u|^2, at least 0.

    Returns:
        [...] log K(u).

    Example:
        >>> print(jnp.exp(gaussian(jnp.array([0.0, 0.25, 1.0, 2.0]))))
        [1.   0.88 0.61 0.37]
    """
    return -square / 2


def boxcar(square: jax.Array) -> jax.Array:
    """Boxcar kernel: log K(u) = 0 where |u| <= 1, else -inf.

    The gradient is 0 everywhere.

    Args:
        square: [...] squared norms |u|^2, at least 0.

    Returns:
        [...] log K(u).

    Example:
        >>> print(jnp.exp(boxcar(jnp.array([0.0, 0.25, 1.0, 2.0]))))
        [1. 1. 1. 0.]
    """
    return jnp.where(square <= 1, jnp.zeros_like(square), -jnp.inf)


def triangular(square: jax.Array) -> jax.Array:
    """Triangular kernel: log K(u) = log max(0, 1 - |u|).

    The gradient at the peak, u = 0, is taken as 0. Some texts call this kernel
    Epanechnikov's.

    Args:
        square: [...] squared norms |u|^2, at least 0.

    Returns:
        [...] log K(u), -inf where |u| >= 1.

    Example:
        >>> print(jnp.exp(triangular(jnp.array([0.0, 0.25, 1.0, 2.0]))))
        [1.  0.5 0.  0. ]
    """
    # The inner `where` keeps the infinite slope of the root at 0 out of the gradient.
    norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    return _log(1 - norm)


def epanechnikov(square: jax.Array) -> jax.Array:
    """Kernel of Epanechnikov (1969): log K(u) = log max(0, 3/4 (1 - |u|^2)).

    Args:
        square: [...] squared norms |u|^2, at least 0.

    Returns:
        [...] log K(u), -inf where |u| >= 1.

    Example:
        >>> print(jnp.exp(epanechnikov(jnp.array([0.0, 0.25, 1.0, 2.0]))))
        [0.75 0.56 0.   0.  ]
    """
    return _log(0.75 * (1 - square))


def constant(square: jax.Array) -> jax.Array:
    """Constant kernel: log K(u) = 0, so that all keys have the same weight.

    Args:
        square: [...] squared norms |u|^2, at least 0.

    Returns:
        [...] zeros.

    Example:
        >>> print(jnp.exp(constant(jnp.array([0.0, 0.25, 1.0, 2.0]))))
        [1. 1. 1. 1.]
    """
    return jnp.zeros_like(square)


def kernel_scores(
    query: jax.Array, key: jax.Array, *, kernel: Kernel, width: jax.Array | float
) -> jax.Array:
    """Kernel scores log K((x - x_i) / width): Nadaraya (1964), Watson (1964).

    Args:
        query: [..., Q, D], the points x.
        key: [..., K, D], the points x_i; batch axes broadcast against `query`.
        kernel: one of `KERNELS`, or any function from |u|^2 to log K(u).
        width: kernel width, positive; broadcasts against [..., Q, K, D], so that an
            array [D] has one width per coordinate.

    Returns:
        [..., Q, K] scores, -inf (masked) where the kernel is 0.

    Raises:
        ValueError: if the widths of `query` and `key` differ.

    Example:
        >>> query, key = jnp.array([[0.0]]), jnp.array([[0.0], [1.0], [5.0]])
        >>> print(kernel_scores(query, key, kernel=boxcar, width=2.0))
        [[  0.   0. -inf]]
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"kernel_scores: query {query.shape} and key {key.shape} differ in width"
        )
    # Not |x|^2 + |x_i|^2 - 2 x x_i, which is inaccurate for small distances.
    u = (query[..., :, None, :] - key[..., None, :, :]) / width  # [..., Q, K, D]
    return kernel(jnp.sum(u * u, axis=-1))


def kernel_regression(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    kernel: Kernel,
    width: jax.Array | float,
    mask: jax.Array | None = None,
) -> Attention:
    """Kernel regression sum_i K(u_i) y_i / sum_j K(u_j): Nadaraya, Watson (1964).

    With the Gaussian kernel this is softmax(-|x - x_i|^2 / (2 width^2)) y. If all norms
    |x| and |x_i| are 1, it equals dot-product attention softmax(x x_i / width^2) y.

    Args:
        query: [..., Q, D], the points x.
        key: [..., K, D], the points x_i; batch axes broadcast against `query`.
        value: [..., K, V], the values y_i; batch axes broadcast against `query`.
        kernel: one of `KERNELS`, or any function from |u|^2 to log K(u).
        width: kernel width, positive; broadcasts against [..., Q, K, D].
        mask: bool, True = may attend; broadcasts against [..., Q, K].

    Returns:
        Attention(context [..., Q, V], weights [..., Q, K]). The weights of a query sum
        to 1, or are all 0 where the kernel is 0 at every unmasked key.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if the widths of `query` and `key` or the numbers of keys of `key`
            and `value` differ, or if `mask` does not broadcast.

    Example:
        >>> x = jnp.array([[0.0], [1.0], [2.0]])
        >>> query = jnp.array([[0.9]])
        >>> y, weights = kernel_regression(query, x, x**2, kernel=gaussian, width=0.5)
        >>> print(y, weights)
        [[1.05]] [[0.16 0.77 0.07]]
    """
    scores = kernel_scores(query, key, kernel=kernel, width=width)
    return attend(scores, value, mask=mask)


def _log(x: jax.Array) -> jax.Array:
    """Logarithm; -inf with a gradient of 0 where `x` is not positive."""
    return jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), -jnp.inf)


KERNELS: dict[str, Kernel] = {
    "gaussian": gaussian,
    "boxcar": boxcar,
    "triangular": triangular,
    "epanechnikov": epanechnikov,
    "constant": constant,
}
"""Kernels by name."""
