"""Attention over feature maps: SAGAN's layer and the forms of the non-local block.

Each place of a map asks all places, however far away. With x_i a place of the query's
map and x_j one of the key's, Wang et al. (2018), eq. 1, read y_i = sum_j f(x_i, x_j)
value_j / C, and give four f (section 3.2):

| name | weight of j for i | C | parameters |
|---|---|---|---|
| gaussian | exp(query_i key_j) | sum of all | none; query and key are x itself |
| embedded_gaussian | the same | the same | none |
| dot | query_i key_j | number of keys | none |
| concatenation | relu(w [query_i; key_j]) | number of keys | w |

The first two are a softmax; embedded, which is to say with learned projections of x, it
is the self-attention of Zhang et al., Self-Attention GANs (2019), eqs. 1 and 2, and of
Vaswani et al. (2017) without their scale. The weights of the other two need not sum to
1, and those of `dot` may be negative. `NON_LOCAL` maps names to functions, all of the
form f(query [..., I, J, D], key [..., K, L, D], value [..., K, L, V], **parameters) ->
Attention(context [..., I, J, V], weights [..., I, J, K, L]).

Axes: ... any batch; I, J rows and columns of the query's map; K, L those of the key's,
which may be a smaller one (`max_pool`); D width of query and key; V value width.
"""

from collections.abc import Callable

import jax

from .core import Attention, attend, masked_softmax
from .scores import dot_scores


def embedded_gaussian(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    align: Callable[..., jax.Array] = masked_softmax,
) -> Attention:
    """Softmax of dot products: Zhang et al. (2019), eqs. 1 and 2, without W_v.

    Wang et al. (2018), eqs. 2 and 3: of the map itself it is their "Gaussian", of
    learned projections their "embedded Gaussian". There is no 1/sqrt(D).

    Args:
        query: [..., I, J, D].
        key: [..., K, L, D].
        value: [..., K, L, V].
        align: softmax over the keys; see `attend`.

    Returns:
        Attention(context [..., I, J, V], weights [..., I, J, K, L]); the weights of a
        place sum to 1 over K and L.

    Raises:
        ValueError: if the widths of query and key or the places of key and value
            differ.
    """
    _check(query, key, value)
    found = attend(dot_scores(_flat(query), _flat(key)), _flat(value), align=align)
    return _unfold(found, query, key)


def dot_product(query: jax.Array, key: jax.Array, value: jax.Array) -> Attention:
    """Dot products over the number of keys: Wang et al. (2018), eq. 4.

    No softmax: a weight may be negative, and the reading has no bound.

    Args:
        query: [..., I, J, D].
        key: [..., K, L, D].
        value: [..., K, L, V].

    Returns:
        Attention(context [..., I, J, V], weights [..., I, J, K, L]).

    Raises:
        ValueError: as for `embedded_gaussian`.
    """
    _check(query, key, value)
    found = attend(dot_scores(_flat(query), _flat(key)), _flat(value), align=_mean)
    return _unfold(found, query, key)


def concatenation(
    query: jax.Array, key: jax.Array, value: jax.Array, w: jax.Array
) -> Attention:
    """relu(w [query; key]) over the number of keys: Wang et al. (2018), eq. 5.

    Args:
        query: [..., I, J, D].
        key: [..., K, L, D].
        value: [..., K, L, V].
        w: [2 D], for the query and then for the key.

    Returns:
        Attention(context [..., I, J, V], weights [..., I, J, K, L]), no weight below 0.

    Raises:
        ValueError: as for `embedded_gaussian`, or if `w` is not [2 D].
    """
    _check(query, key, value)
    width = query.shape[-1]
    if w.shape != (2 * width,):
        raise ValueError(f"w {w.shape} must be [{2 * width}], for query and key")
    # The product with [query; key] is a sum of two: no [I, J, K, L, 2 D] is formed.
    scores = (_flat(query) @ w[:width])[..., None] + (_flat(key) @ w[width:])[
        ..., None, :
    ]
    found = attend(jax.nn.relu(scores), _flat(value), align=_mean)
    return _unfold(found, query, key)


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The highest of each block of size x size places, a channel at a time.

    For keys and values: a quarter of the places, and of the work, at size 2 (Wang et
    al. 2018, section 3.3, "subsampling"; the code of Zhang et al. does so, too).

    Args:
        x: [..., I, J, C], I and J multiples of `size`.
        size: at least 1.

    Returns:
        [..., I / size, J / size, C].

    Raises:
        ValueError: if `size` does not divide I and J.
    """
    *batch, rows, columns, channels = x.shape
    if size < 1 or rows % size or columns % size:
        raise ValueError(f"size {size} does not divide the map of x {x.shape}")
    blocks = (rows // size, size, columns // size, size, channels)
    return x.reshape(*batch, *blocks).max((-4, -2))


def _mean(scores: jax.Array, *, mask: None = None) -> jax.Array:
    """An alignment that divides by the number of keys."""
    return scores / scores.shape[-1]


def _flat(x: jax.Array) -> jax.Array:
    """[..., I, J, C] to [..., I J, C], row by row."""
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])


def _unfold(found: Attention, query: jax.Array, key: jax.Array) -> Attention:
    context, weights = found
    places, keys = query.shape[-3:-1], key.shape[-3:-1]
    return Attention(
        context.reshape(*context.shape[:-2], *places, context.shape[-1]),
        weights.reshape(*weights.shape[:-2], *places, *keys),
    )


def _check(query: jax.Array, key: jax.Array, value: jax.Array) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query {query.shape} and key {key.shape} differ in width")
    if key.shape[-3:-1] != value.shape[-3:-1]:
        raise ValueError(f"key {key.shape} and value {value.shape} differ in places")


NON_LOCAL: dict[str, Callable[..., Attention]] = {
    "gaussian": embedded_gaussian,
    "embedded_gaussian": embedded_gaussian,
    "dot": dot_product,
    "concatenation": concatenation,
}
