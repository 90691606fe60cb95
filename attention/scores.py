"""Attention score functions.

| name | score(query, key) | source |
|---|---|---|
| dot | query key^T | Luong et al. (2015), section 3.1 |
| scaled_dot | query key^T / sqrt(D) | Vaswani et al. (2017), eq. 1 |
| general | query W key^T | Luong et al. (2015), section 3.1 |
| multiplicative | (query W_q) (key W_k)^T | Britz et al. (2017), section 4.5 |
| scaled_multiplicative | the same / sqrt(A) | Vaswani et al. (2017), section 3.2.2 |
| additive | v tanh(W_a query + U_a key) | Bahdanau et al. (2015), A.1.2 |
| concat | the same as additive | Luong et al. (2015), section 3.1 |
| additive_relu | v ReLU(W query + U key) | Kazemi and Elqursh (2017), section 3 |
| location | W query | Luong et al. (2015), section 3.1 |
| cosine | strength cos(query, key) | Graves et al. (2014), eqs. 5 and 6 |
| location_aware | v tanh(W query + V key + U F * previous) | Chorowski et al. (2015) |

The last one also depends on the weights of the previous step, which only models that
decode step by step have, such as recurrent decoders.

A score function has the signature `score(query, key, **parameters)`. Query [..., Q, D]
and key [..., K, E] give scores [..., Q, K] in the promoted dtype of the inputs.
Parameters may have leading batch axes, for example one set of parameters per head. The
attribute `parameters` describes them, so that a model can create them
(`ScoreFunction`); a learned number is declared as a `Scalar`. `SCORES` maps names to
functions, and `STEPWISE_SCORES` those of a model that decodes step by step.

Projections can be cached, as those of the keys in a recurrent decoder: `score(query,
key, **p)` = `score.compare(score.project_query(query, **p), score.project(key, **p),
**p)`. `score.parts` of the same arguments describes a score that is a sum over units.

Axes: ... any batch; Q queries; K keys; D query width; E key width; A hidden width of a
score; L maximum number of keys with a location score; C filters over the previous
weights, each R keys wide.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .declaration import Scalar, ScoreFunction, ScoreParts, score_function

__all__ = [
    "SCORES",
    "STEPWISE_SCORES",
    "additive_relu_scores",
    "additive_scores",
    "cosine_scores",
    "dot_scores",
    "general_scores",
    "location_aware_scores",
    "location_scores",
    "multiplicative_scores",
    "scaled_dot_scores",
    "scaled_multiplicative_scores",
]


def _dot(query: jax.Array, key: jax.Array, **_: jax.Array) -> jax.Array:
    return jnp.einsum("...qd,...kd->...qk", query, key)


def _dot_parts(query: jax.Array, key: jax.Array, **_: jax.Array) -> ScoreParts:
    return ScoreParts(query, key)


@score_function(same_width=True, parts=_dot_parts)
def dot_scores(query: jax.Array, key: jax.Array) -> jax.Array:
    """Dot-product scores query key^T: "dot" in Luong et al. (2015), section 3.1.

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of `query` and `key` differ.

    Example:
        >>> query = jnp.array([[1.0, 2.0]])
        >>> key = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> print(dot_scores(query, key))
        [[1. 2. 3.]]
    """
    return _dot(query, key)


def _scaled_dot(query: jax.Array, key: jax.Array, **_: jax.Array) -> jax.Array:
    return _dot(query / math.sqrt(query.shape[-1]), key)


def _scaled_dot_parts(query: jax.Array, key: jax.Array, **_: jax.Array) -> ScoreParts:
    return ScoreParts(query, key, 1 / math.sqrt(query.shape[-1]))


@score_function(same_width=True, parts=_scaled_dot_parts)
def scaled_dot_scores(query: jax.Array, key: jax.Array) -> jax.Array:
    """Scaled dot-product scores query key^T / sqrt(D): Vaswani et al. (2017), eq. 1.

    D is the width of one head. If the elements of queries and keys are independent with
    mean 0 and variance 1, the scores have variance 1 as well (section 3.2.1).

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of `query` and `key` differ.

    Example:
        >>> print(scaled_dot_scores(jnp.ones((1, 4)), jnp.ones((3, 4))))
        [[2. 2. 2.]]
    """
    return _dot(query / math.sqrt(query.shape[-1]), key)


def _general_key(key: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("...ke,...de->...kd", key, w)


@score_function(project=_general_key, compare=_dot, parts=_dot_parts, w=("D", "E"))
def general_scores(query: jax.Array, key: jax.Array, w: jax.Array) -> jax.Array:
    """Bilinear scores query W key^T: "general" in Luong et al. (2015), section 3.1.

    There is no 1/sqrt(D) as in `scaled_dot_scores`: the paper has none, and `w` can
    learn the scale.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w: [..., D, E].

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if `w` does not fit the widths of `query` and `key`.

    Example:
        >>> query, key = jnp.array([[1.0, 2.0]]), jnp.eye(3)
        >>> print(general_scores(query, key, jnp.arange(6.0).reshape(2, 3)))
        [[ 6.  9. 12.]]
    """
    return _dot(jnp.einsum("...qd,...de->...qe", query, w), key)


def _projected_key(key: jax.Array, w_key: jax.Array, **_: jax.Array) -> jax.Array:
    return jnp.einsum("...ke,...ea->...ka", key, w_key)


def _projected_query(query: jax.Array, w_query: jax.Array, **_: jax.Array) -> jax.Array:
    return jnp.einsum("...qd,...da->...qa", query, w_query)


# Declarations of a score with a matrix for the query and one for the key.
_PROJECTED: Any = {
    "project": _projected_key,
    "project_query": _projected_query,
    "w_query": ("D", "A"),
    "w_key": ("E", "A"),
}


@score_function(compare=_dot, parts=_dot_parts, **_PROJECTED)
def multiplicative_scores(
    query: jax.Array, key: jax.Array, w_query: jax.Array, w_key: jax.Array
) -> jax.Array:
    """Dot products of projections, (query W_q) (key W_k)^T: Britz et al. (2017), 4.5.

    Equals `general_scores` with the rank-A matrix W_q W_k^T.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w_query: [..., D, A], W_q.
        w_key: [..., E, A], W_k.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of the parameters do not match each other, or do not
            match `query` and `key`.

    Example:
        >>> query, key = jnp.array([[1.0, 2.0]]), jnp.eye(3)
        >>> print(multiplicative_scores(query, key, jnp.ones((2, 1)), jnp.ones((3, 1))))
        [[3. 3. 3.]]
    """
    return _dot(_projected_query(query, w_query), _projected_key(key, w_key))


@score_function(compare=_scaled_dot, parts=_scaled_dot_parts, **_PROJECTED)
def scaled_multiplicative_scores(
    query: jax.Array, key: jax.Array, w_query: jax.Array, w_key: jax.Array
) -> jax.Array:
    """Scaled dot products of projections: one head of Vaswani et al. (2017), 3.2.2.

    (query W_q) (key W_k)^T / sqrt(A).

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w_query: [..., D, A], W_q.
        w_key: [..., E, A], W_k.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of the parameters do not match each other, or do not
            match `query` and `key`.

    Example:
        >>> query, key = jnp.ones((1, 2)), jnp.eye(3)
        >>> w_query, w_key = jnp.ones((2, 4)), jnp.ones((3, 4))
        >>> print(scaled_multiplicative_scores(query, key, w_query, w_key))
        [[4. 4. 4.]]
    """
    query, key = _projected_query(query, w_query), _projected_key(key, w_key)
    return _scaled_dot(query, key)


_SMALL = 2**23  # elements of a hidden layer; larger ones are not formed


def _additive(
    query: jax.Array,
    key: jax.Array,
    v: jax.Array,
    location: float | jax.Array = 0.0,
    f: Callable[[jax.Array], jax.Array] = jnp.tanh,
    **_: jax.Array,
) -> jax.Array:
    """sum_a v_a f(query_a + key_a + location_a) of projected queries and keys."""
    hidden = f(query[..., :, None, :] + key[..., None, :, :] + location)
    if v.ndim == 1 and hidden.size <= _SMALL:
        return hidden @ v
    # A product and a sum, which XLA fuses with f instead of forming `hidden`.
    return jnp.sum(hidden * v[..., None, None, :], axis=-1)


def _additive_parts(
    query: jax.Array,
    key: jax.Array,
    v: jax.Array,
    activation: str = "tanh",
    **_: jax.Array,
) -> ScoreParts:
    return ScoreParts(query, key, v=v, activation=activation)


# In a scan over 32 steps, with [64, 1, 256] queries and [64, 32, 256] keys, value and
# gradient take a third of the time and 8 MiB instead of 134, on two threads of a CPU.
@score_function(
    compare=_additive, parts=_additive_parts, recompute=True, **_PROJECTED, v=("A",)
)
def additive_scores(
    query: jax.Array,
    key: jax.Array,
    w_query: jax.Array,
    w_key: jax.Array,
    v: jax.Array,
) -> jax.Array:
    """Additive scores v tanh(W_a query + U_a key): Bahdanau et al. (2015), A.1.2.

    "Concat" in Luong et al. (2015), section 3.1, is the same function, with its matrix
    for [query; key] split into `w_query` and `w_key`. The hidden layer is an array
    [..., Q, K, A], which the backward pass computes again.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w_query: [..., D, A], the paper's W_a.
        w_key: [..., E, A], the paper's U_a.
        v: [..., A], the paper's v_a.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of the parameters do not match each other, or do not
            match `query` and `key`.

    Example:
        >>> query, key, w = jnp.eye(2)[:1], jnp.eye(2), jnp.eye(2)
        >>> print(additive_scores(query, key, w, w, v=jnp.ones(2)))
        [[0.96 1.52]]
    """
    return _additive(_projected_query(query, w_query), _projected_key(key, w_key), v)


def _location_parts(query: jax.Array, key: jax.Array, w: jax.Array) -> ScoreParts:
    columns = jnp.swapaxes(w[..., : key.shape[-2]], -1, -2)  # [..., K, D]
    beyond = [(0, 0)] * (columns.ndim - 2) + [(0, key.shape[-2] - columns.shape[-2])]
    bias = jnp.where(jnp.arange(key.shape[-2]) < w.shape[-1], 0, -jnp.inf)
    return ScoreParts(query, jnp.pad(columns, [*beyond, (0, 0)]), bias=bias)


@score_function(parts=_location_parts, w=("D", "L"))
def location_scores(query: jax.Array, key: jax.Array, w: jax.Array) -> jax.Array:
    """Location-based scores W query: Luong et al. (2015), section 3.1.

    Only the number of keys has an effect, not their content. With K <= L keys, the
    first K columns of w are used, as in the paper; keys beyond the first L are masked.
    The softmax is taken over the first L; the paper leaves this open.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; only K is used.
        w: [..., D, L], one column per position.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs, -inf
        (masked) from position L on.

    Raises:
        ValueError: if `w` does not fit the width of `query`.

    Example:
        >>> query, key = jnp.array([[1.0, 2.0]]), jnp.zeros((4, 5))
        >>> print(location_scores(query, key, jnp.eye(2, 3)))
        [[  1.   2.   0. -inf]]
    """
    keys = key.shape[-2]
    scores = jnp.einsum("...qd,...dl->...ql", query, w[..., :keys])
    beyond = [(0, 0)] * (scores.ndim - 1) + [(0, keys - scores.shape[-1])]
    return jnp.pad(scores, beyond, constant_values=-jnp.inf)


def _unit(x: jax.Array, **_: jax.Array) -> jax.Array:
    """Vectors [..., D] divided by their Euclidean norm; a vector of zeros stays 0."""
    square = jnp.sum(x * x, axis=-1, keepdims=True)
    # The inner `where` keeps the infinite slope at 0 out of the gradient.
    return x * jnp.where(square > 0, jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)


def _cosine(query: jax.Array, key: jax.Array, strength: jax.Array) -> jax.Array:
    return _dot(query * strength, key)


def _cosine_parts(query: jax.Array, key: jax.Array, strength: jax.Array) -> ScoreParts:
    return ScoreParts(query, key, strength)


@score_function(
    same_width=True,
    project=_unit,
    project_query=_unit,
    compare=_cosine,
    parts=_cosine_parts,
    strength=Scalar(start=math.sqrt),  # cosines spread like scaled dot products
)
def cosine_scores(query: jax.Array, key: jax.Array, strength: jax.Array) -> jax.Array:
    """Cosine-similarity scores times a strength: Graves et al. (2014), eqs. 5 and 6.

    The cosine with a vector of zeros is 0, with a gradient of 0.

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.
        strength: [...], the paper's beta, positive; one per batch element.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of `query` and `key` differ, or if `strength` does not
            broadcast to their batch axes.

    Example:
        >>> query = jnp.array([[3.0, 0.0]])
        >>> key = jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
        >>> print(cosine_scores(query, key, jnp.array(10.0)))
        [[10.    7.07  0.  ]]
    """
    return _cosine(_unit(query), _unit(key), strength)


def _location(
    key: jax.Array, filters: jax.Array, w_location: jax.Array, previous: jax.Array
) -> jax.Array:
    """U f with f = F * previous, [..., Q, K, A]."""
    keys, width = key.shape[-2], filters.shape[-2]
    if previous.shape[-1] != keys:
        raise ValueError(f"previous {previous.shape} must have {keys} keys")
    ends = [(0, 0)] * (previous.ndim - 1) + [(width // 2, width - 1 - width // 2)]
    padded = jnp.pad(previous, ends)
    near = jnp.stack([padded[..., r : r + keys] for r in range(width)], axis=-1)
    features = jnp.einsum("...qkr,...rc->...qkc", near, filters)  # f = F * previous
    return jnp.einsum("...qkc,...ca->...qka", features, w_location)


def _location_aware(
    query: jax.Array,
    key: jax.Array,
    v: jax.Array,
    filters: jax.Array,
    w_location: jax.Array,
    *,
    previous: jax.Array,
    **_: jax.Array,
) -> jax.Array:
    location = _location(key, filters, w_location, previous)
    return _additive(query, key, v, location)


def _location_aware_parts(
    query: jax.Array,
    key: jax.Array,
    filters: jax.Array,
    w_location: jax.Array,
    *,
    previous: jax.Array,
    **parameters: Any,
) -> ScoreParts:
    location = _location(key, filters, w_location, previous)
    return _additive_parts(query, key, **parameters)._replace(location=location)


@score_function(
    compare=_location_aware,
    parts=_location_aware_parts,
    **_PROJECTED,
    v=("A",),
    filters=("R", "C"),
    w_location=("C", "A"),
)
def location_aware_scores(
    query: jax.Array,
    key: jax.Array,
    w_query: jax.Array,
    w_key: jax.Array,
    v: jax.Array,
    filters: jax.Array,
    w_location: jax.Array,
    *,
    previous: jax.Array,
) -> jax.Array:
    """Location-aware scores: Chorowski et al. (2015), section 2.2, eqs. 8 and 9.

    v tanh(W query + V key + U f) with f = F * previous, a convolution over the weights
    of the previous step. With previous weights of 0, as before the first step,
    these are additive scores. Unlike in the paper, and like in `additive_scores`, there
    is no bias inside the tanh. As in most libraries, the convolution is a
    cross-correlation: the filters are not flipped.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w_query: [..., D, A], W in the paper.
        w_key: [..., E, A], V in the paper.
        v: [..., A], w in the paper.
        filters: [..., R, C], F in the paper: C filters, R keys wide and centred on the
            key; 10 filters of width 201 in the paper.
        w_location: [..., C, A], U in the paper.
        previous: [..., Q, K] weights of the step before each query.

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of the parameters do not match each other, or do not
            match `query` and `key`, or `previous` has a different number of keys.

    Example:
        >>> query, key, w = jnp.zeros((1, 1)), jnp.zeros((4, 1)), jnp.ones((1, 1))
        >>> back = jnp.array([[1.0], [0.0], [0.0]])  # reads the key before
        >>> p = jnp.eye(4)[:1]
        >>> print(location_aware_scores(query, key, w, w, w[0], back, w, previous=p))
        [[0.   0.76 0.   0.  ]]
    """
    query, key = _projected_query(query, w_query), _projected_key(key, w_key)
    return _location_aware(query, key, v, filters, w_location, previous=previous)


@score_function(
    compare=partial(_additive, f=jax.nn.relu),
    parts=partial(_additive_parts, activation="relu"),
    **_PROJECTED,
    v=("A",),
)
def additive_relu_scores(
    query: jax.Array,
    key: jax.Array,
    w_query: jax.Array,
    w_key: jax.Array,
    v: jax.Array,
) -> jax.Array:
    """Additive scores v ReLU(W query + U key): Kazemi and Elqursh (2017), section 3.

    As `additive_scores`, with a ReLU in place of the tanh: two layers of convolutions
    with kernels of one position, over the concatenation of a feature map with the query
    at each position.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w_query: [..., D, A], W.
        w_key: [..., E, A], U.
        v: [..., A].

    Returns:
        [..., Q, K] unnormalised scores in the promoted dtype of the inputs.

    Raises:
        ValueError: if the widths of the parameters do not match each other, or do not
            match `query` and `key`.

    Example:
        >>> query, key, w = jnp.eye(2)[:1], jnp.eye(2), jnp.eye(2)
        >>> print(additive_relu_scores(query, key, w, w, v=jnp.array([1.0, 2.0])))
        [[2. 3.]]
    """
    query, key = _projected_query(query, w_query), _projected_key(key, w_key)
    return _additive(query, key, v, f=jax.nn.relu)


SCORES: dict[str, ScoreFunction] = {
    "dot": dot_scores,
    "scaled_dot": scaled_dot_scores,
    "general": general_scores,
    "multiplicative": multiplicative_scores,
    "scaled_multiplicative": scaled_multiplicative_scores,
    "additive": additive_scores,
    "concat": additive_scores,
    "additive_relu": additive_relu_scores,
    "location": location_scores,
    "cosine": cosine_scores,
}
"""Score functions by name, of any model."""

STEPWISE_SCORES: dict[str, ScoreFunction] = SCORES | {
    "location_aware": location_aware_scores
}
"""Score functions by name, of a model that decodes step by step."""
