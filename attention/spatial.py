"""Self-attention over feature maps: SAGAN and the non-local block.

Every position of a feature map attends to all positions. Wang et al. (2018), eq. 1,
compute y_i = sum_j f(x_i, x_j) value_j / C(x), for position i of the query's map and
all positions j of the key's map. They propose four functions f (section 3.2):

| name | f(x_i, x_j) | C(x) | parameters |
|---|---|---|---|
| gaussian | exp(query_i key_j), where query = key = x | sum of f over j | none |
| embedded_gaussian | exp(query_i key_j) | sum of f over j | none |
| dot | query_i key_j | number of keys | none |
| concatenation | relu(w [query_i; key_j]) | number of keys | w |

The first two are a softmax. With learned projections of x ("embedded"), it is the
self-attention of SAGAN, Zhang et al. (2019), eqs. 1 and 2, which is the attention of
Vaswani et al. (2017) without the scale. In the other two, weights need not sum to 1; in
`dot` they may be negative. `NON_LOCAL` maps names to functions with the signature
`form(query, key, value, **parameters)` -> Attention(context, weights).

Axes: ... any batch; I, J rows and columns of the query's map; K, L rows and columns of
the key's map, which may be smaller (`max_pool`); D query and key width; V value width;
C channels.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from .core import Attention, attend, masked_softmax
from .scores import dot_scores

__all__ = ["NON_LOCAL", "concatenation", "dot_product", "embedded_gaussian", "max_pool"]


def embedded_gaussian(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    align: Callable[..., jax.Array] = masked_softmax,
) -> Attention:
    """Softmax of dot products over positions: Zhang et al. (2019), eqs. 1 and 2.

    In Wang et al. (2018), this is the "Gaussian" form (eq. 2) if query and key are the
    feature map itself, and the "embedded Gaussian" (eq. 3) if they are learned
    projections of it. There is no 1/sqrt(D), and SAGAN's output projection W_v is left
    to the model.

    Args:
        query: [..., I, J, D].
        key: [..., K, L, D].
        value: [..., K, L, V].
        align: alignment function over the K L keys; see `attend`.

    Returns:
        Attention(context [..., I, J, V], weights [..., I, J, K, L]). The weights of a
        query sum to 1 over K and L.

    Raises:
        ValueError: if the widths of `query` and `key` or the rows and columns of `key`
            and `value` differ.

    Example:
        >>> x = jnp.array([[[1.0], [-2.0]]])  # one row, two columns
        >>> context, weights = embedded_gaussian(x, x, x)
        >>> print(weights.reshape(2, 2))
        [[0.95 0.05]
         [0.   1.  ]]
    """
    _check(query, key, value)
    scores = dot_scores(_flatten(query), _flatten(key))  # [..., I J, K L]
    return _unflatten(attend(scores, _flatten(value), align=align), query, key)


def dot_product(query: jax.Array, key: jax.Array, value: jax.Array) -> Attention:
    """Weights query key^T / number of keys: Wang et al. (2018), eq. 4.

    There is no softmax: weights may be negative and do not sum to 1.

    Args:
        query: [..., I, J, D].
        key: [..., K, L, D].
        value: [..., K, L, V].

    Returns:
        Attention(context [..., I, J, V], weights [..., I, J, K, L]).

    Raises:
        ValueError: if the widths of `query` and `key` or the rows and columns of `key`
            and `value` differ.

    Example:
        >>> x = jnp.array([[[1.0], [-2.0]]])  # one row, two columns
        >>> print(dot_product(x, x, x).weights.reshape(2, 2))
        [[ 0.5 -1. ]
         [-1.   2. ]]
    """
    _check(query, key, value)
    scores = dot_scores(_flatten(query), _flatten(key))  # [..., I J, K L]
    return _unflatten(attend(scores, _flatten(value), align=_mean), query, key)


def concatenation(
    query: jax.Array, key: jax.Array, value: jax.Array, w: jax.Array
) -> Attention:
    """Weights relu(w [query; key]) / number of keys: Wang et al. (2018), eq. 5.

    There is no softmax: weights are at least 0 and do not sum to 1.

    Args:
        query: [..., I, J, D].
        key: [..., K, L, D].
        value: [..., K, L, V].
        w: [2 D]; the first D elements multiply the query, the others the key.

    Returns:
        Attention(context [..., I, J, V], weights [..., I, J, K, L]).

    Raises:
        ValueError: if the widths of `query` and `key` or the rows and columns of `key`
            and `value` differ, or if `w` is not [2 D].

    Example:
        >>> x = jnp.array([[[1.0], [-2.0]]])  # one row, two columns
        >>> print(concatenation(x, x, x, w=jnp.array([1.0, 1.0])).weights.reshape(2, 2))
        [[1. 0.]
         [0. 0.]]
    """
    _check(query, key, value)
    width = query.shape[-1]
    if w.shape != (2 * width,):
        raise ValueError(f"w {w.shape} must be [{2 * width}], for query and key")
    # Split into two products, w [query; key] needs no array [I, J, K, L, 2 D].
    query_scores, key_scores = _flatten(query) @ w[:width], _flatten(key) @ w[width:]
    scores = jax.nn.relu(query_scores[..., :, None] + key_scores[..., None, :])
    return _unflatten(attend(scores, _flatten(value), align=_mean), query, key)


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """Max pooling over blocks of size x size: Wang et al. (2018), section 3.3.

    Wang et al. "subsample" keys and values with it, as does the code of Zhang et al.
    (2019). With a size of 2, attention has a quarter of the keys and of the cost. On a
    CPU core, `flax.linen.max_pool` and its gradient take 26 times as long for
    [64, 16, 16, 64], and 5 times for [416, 28, 28, 64].

    Args:
        x: [..., I, J, C]; I and J are multiples of `size`.
        size: rows and columns of a block, at least 1.

    Returns:
        [..., I / size, J / size, C] maximum of each block, per channel.

    Raises:
        ValueError: if `size` is below 1 or does not divide I and J.

    Example:
        >>> print(max_pool(jnp.arange(16.0).reshape(4, 4, 1))[..., 0])
        [[ 5.  7.]
         [13. 15.]]
    """
    rows, columns = x.shape[-3:-1]
    if size < 1 or rows % size or columns % size:
        raise ValueError(f"size {size} must divide the rows and columns of x {x.shape}")
    # `max` over blocks has a gradient of 0 / 0 where XLA computes x again, rounded
    # differently, for the comparison with its maximum.
    for axis in (-3, -2):
        parts = (x[..., i::size, *[slice(None)] * (-axis - 1)] for i in range(size))
        x = functools.reduce(jnp.maximum, parts)
    return x


def _mean(scores: jax.Array, *, mask: None = None) -> jax.Array:
    """Alignment function of the forms without softmax: scores / number of keys."""
    return scores / scores.shape[-1]


def _flatten(x: jax.Array) -> jax.Array:
    """Reshapes [..., I, J, C] to [..., I J, C]."""
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])


def _unflatten(attention: Attention, query: jax.Array, key: jax.Array) -> Attention:
    """Reshapes I J to I, J and K L to K, L."""
    context, weights = attention
    queries, keys = query.shape[-3:-1], key.shape[-3:-1]
    return Attention(
        context.reshape(*context.shape[:-2], *queries, context.shape[-1]),
        weights.reshape(*weights.shape[:-2], *queries, *keys),
    )


def _check(query: jax.Array, key: jax.Array, value: jax.Array) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query {query.shape} and key {key.shape} differ in width")
    if key.shape[-3:-1] != value.shape[-3:-1]:
        raise ValueError(
            f"key {key.shape} and value {value.shape} differ in rows or columns"
        )


NON_LOCAL: dict[str, Callable[..., Attention]] = {
    "gaussian": embedded_gaussian,
    "embedded_gaussian": embedded_gaussian,
    "dot": dot_product,
    "concatenation": concatenation,
}
"""Forms of the non-local block by name."""
