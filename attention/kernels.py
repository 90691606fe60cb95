"""Kernel regression: the attention of 1964, with a score that nobody learns.

Nadaraya (1964) and Watson (1964) estimate f(x) = sum_i K(u_i) y_i / sum_j K(u_j),
u_i = (x - x_i) / width: the query x, the keys x_i and the values y_i of an attention
whose score is log K. So the softmax does the division, and a kernel that is 0 masks.

| name | K(u), with r = abs(u) |
|---|---|
| gaussian | exp(-r^2 / 2) |
| boxcar | 1 where r <= 1, else 0 |
| triangular | max(0, 1 - r); at times printed under the name of the next one |
| epanechnikov | max(0, 3/4 (1 - r^2)), Epanechnikov (1969) |
| constant | 1: average pooling |

A constant factor of K cancels, so none is kept but the 3/4. `KERNELS` maps names to
functions.

Axes: ... any batch; Q queries; K keys; D query and key width; V value width.

Differs from the papers: a query without a neighbour, where they have 0 / 0, gets
weights, context and gradients of 0. Keys may have any width D; |u| is Euclidean.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .core import Attention, attend

Kernel = Callable[[jax.Array], jax.Array]  # |u|^2 -> log K(u)


def gaussian(square: jax.Array) -> jax.Array:
    """Log K of |u|^2: -|u|^2 / 2, of any shape, as the kernels below."""
    return -square / 2


def boxcar(square: jax.Array) -> jax.Array:
    """0 where |u| <= 1, else -inf; its gradient is 0 everywhere."""
    return jnp.where(square <= 1, jnp.zeros_like(square), -jnp.inf)


def triangular(square: jax.Array) -> jax.Array:
    """Log max(0, 1 - |u|); its gradient at the peak u = 0 is taken as 0."""
    # The inner `where` keeps the infinite slope of the root at 0 out of the gradient.
    norm = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    return _log(1 - norm)


def epanechnikov(square: jax.Array) -> jax.Array:
    """Log max(0, 3/4 (1 - |u|^2)): the parabola, which is not `triangular`."""
    return _log(0.75 * (1 - square))


def constant(square: jax.Array) -> jax.Array:
    """0: every key weighs the same, whatever the query."""
    return jnp.zeros_like(square)


def kernel_scores(
    query: jax.Array, key: jax.Array, *, kernel: Kernel, width: jax.Array | float
) -> jax.Array:
    """Scores log K((x - x_i) / width), whose softmax are Nadaraya's weights.

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.
        kernel: one of `KERNELS`, or any function from |u|^2 to log K.
        width: positive; broadcasts against [..., Q, K, D], so that [D] is a width for
            each coordinate.

    Returns:
        [..., Q, K] scores, -inf (as masked) where the kernel is 0.

    Raises:
        ValueError: if query and key differ in width.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"kernel_scores: query {query.shape} and key {key.shape} differ in width"
        )
    # Not by |x|^2 + |x_i|^2 - 2 x x_i, which loses the small distances that count most.
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
    """The estimate f(x) = sum_i K(u_i) y_i / sum_j K(u_j): Nadaraya (1964), Watson.

    With the Gaussian kernel it is softmax(-|x - x_i|^2 / (2 width^2)) y, and where all
    |x| = |x_i| = 1, dot-product attention, softmax(x x_i / width^2) y.

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.
        value: [..., K, V]; batch axes broadcast, too.
        kernel: one of `KERNELS`, or any function from |u|^2 to log K.
        width: positive; broadcasts against [..., Q, K, D].
        mask: bool, True = may attend; broadcasts against [..., Q, K].

    Returns:
        Attention(context [..., Q, V], weights [..., Q, K]); the weights of a query are
        of sum 1, or all 0 where the kernel is 0 at every key that it may attend to.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if query and key differ in width, `value` has another number of
            keys, or `mask` does not broadcast.
    """
    scores = kernel_scores(query, key, kernel=kernel, width=width)
    return attend(scores, value, mask=mask)


def _log(x: jax.Array) -> jax.Array:
    """The logarithm, -inf with a gradient of 0 where `x` is not positive."""
    return jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), -jnp.inf)


KERNELS: dict[str, Kernel] = {
    "gaussian": gaussian,
    "boxcar": boxcar,
    "triangular": triangular,
    "epanechnikov": epanechnikov,
    "constant": constant,
}
