"""How well does a key answer a query? The scores of the literature, by name.

| name | score(query, key) | from |
|---|---|---|
| dot | query key^T | Luong et al. (2015), section 3.1 |
| scaled_dot | query key^T / sqrt(D) | Vaswani et al. (2017), eq. 1 |
| general | query W key^T | Luong et al. (2015), section 3.1 |
| additive | v tanh(W [query; key]) | Bahdanau et al. (2015), A.1.2 |
| concat | the same | Luong et al. (2015), section 3.1 |
| location | W query | Luong et al. (2015), section 3.1 |
| cosine | strength cos(query, key) | Graves et al. (2014), eqs. 5 and 6 |

All have the signature f(query [..., Q, D], key [..., K, E], **parameters) -> scores
[..., Q, K], in the promoted dtype of the inputs. `f.parameters` maps the name of each
parameter to its axis letters, from which a model can create them; D and E are the
inputs' widths, A and L are free. Leading axes of a parameter are batch axes: one set a
head, say. `f.same_width` tells whether D must be E. `SCORES` maps names to functions.

What is asked again and again, as by a recurrent decoder, is prepared once:
f(query, key, **parameters) = f.compare(query, f.project(key, **parameters),
**parameters), where `project` does all the work that needs no query.

Axes: ... any batch; Q queries; K keys; D query width; E key width; A hidden width of a
score; L positions a location score knows.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

Score = Callable[..., jax.Array]


def _score(
    *,
    same_width: bool = False,
    project: Score | None = None,
    compare: Score | None = None,
    **parameters: tuple[str, ...],
):
    """Declares the parameters of a score and checks the widths of each call.

    Without `project` a score is `compare` itself, and keys are compared as they are.
    """

    def declare(function: Score) -> Score:
        @functools.wraps(function)
        def score(query: jax.Array, key: jax.Array, *args, **kwargs) -> jax.Array:
            if same_width and query.shape[-1] != key.shape[-1]:
                raise ValueError(
                    f"{function.__name__}: query {query.shape} and key {key.shape} "
                    "differ in width"
                )
            sizes = {"D": query.shape[-1], "E": key.shape[-1]}
            given = dict(zip(parameters, args, strict=False)) | kwargs
            for name, axes in parameters.items():
                if name in given:
                    _check_axes(name, jnp.shape(given[name]), axes, sizes)
            return function(query, key, *args, **kwargs)

        score.parameters = parameters
        score.same_width = same_width
        score.project = project or (lambda key, **_: key)
        score.compare = compare or function
        return score

    return declare


def _check_axes(
    name: str, shape: tuple[int, ...], axes: tuple[str, ...], sizes: dict[str, int]
) -> None:
    own = shape[len(shape) - len(axes) :] if len(shape) >= len(axes) else ()
    if tuple(map(sizes.setdefault, axes, own)) != own or len(own) < len(axes):
        wanted = ", ".join(f"{axis}={sizes.get(axis, 'any')}" for axis in axes)
        raise ValueError(f"{name} {shape} must end in the axes [{wanted}]")


def _dot(query: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.einsum("...qd,...kd->...qk", query, key)


@_score(same_width=True)
def dot_scores(query: jax.Array, key: jax.Array) -> jax.Array:
    """Dot products: "dot" in Luong et al. (2015), section 3.1.

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.

    Returns:
        [..., Q, K] unnormalised scores.

    Raises:
        ValueError: if query and key differ in width.
    """
    return _dot(query, key)


@_score(same_width=True)
def scaled_dot_scores(query: jax.Array, key: jax.Array) -> jax.Array:
    """Dot products over sqrt(D): Vaswani et al. (2017), eq. 1.

    D is the width of a key, of a head where there are heads; it keeps the variance of
    the scores at 1 when queries and keys have it (section 3.2.1).

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.

    Returns:
        [..., Q, K] unnormalised scores.

    Raises:
        ValueError: if query and key differ in width.
    """
    return dot_scores(query / math.sqrt(query.shape[-1]), key)


def _general_key(key: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("...ke,...de->...kd", key, w)


@_score(project=_general_key, compare=lambda q, k, **_: _dot(q, k), w=("D", "E"))
def general_scores(query: jax.Array, key: jax.Array, w: jax.Array) -> jax.Array:
    """Bilinear scores query W key^T: "general" in Luong et al. (2015), section 3.1.

    There is no 1/sqrt(D) as in `scaled_dot_scores`: the paper has none, and `w` can
    learn the scale.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w: [..., D, E].

    Returns:
        [..., Q, K] unnormalised scores.

    Raises:
        ValueError: if `w` does not fit the widths.
    """
    return _dot(jnp.einsum("...qd,...de->...qe", query, w), key)


def _additive_key(key: jax.Array, w_key: jax.Array, **_: jax.Array) -> jax.Array:
    return jnp.einsum("...ke,...ea->...ka", key, w_key)


def _additive_compare(
    query: jax.Array, key: jax.Array, w_query: jax.Array, v: jax.Array, **_: jax.Array
) -> jax.Array:
    return _additive(jnp.einsum("...qd,...da->...qa", query, w_query), key, v)


@jax.checkpoint
def _additive(query: jax.Array, key: jax.Array, v: jax.Array) -> jax.Array:
    hidden = jnp.tanh(query[..., :, None, :] + key[..., None, :, :])  # [..., Q, K, A]
    if v.ndim == 1:  # faster where `hidden` is small, as in a recurrent step
        return hidden @ v
    # A product and a sum, which XLA fuses with the tanh instead of forming `hidden`.
    return jnp.sum(hidden * v[..., None, None, :], axis=-1)


@_score(
    project=_additive_key,
    compare=_additive_compare,
    w_query=("D", "A"),
    w_key=("E", "A"),
    v=("A",),
)
def additive_scores(
    query: jax.Array,
    key: jax.Array,
    w_query: jax.Array,
    w_key: jax.Array,
    v: jax.Array,
) -> jax.Array:
    """Additive scores v tanh(W_a query + U_a key): Bahdanau et al. (2015), A.1.2.

    Luong's "concat" row is the same: his W_a, which multiplies [query; key], is cut in
    two here. The hidden layer, [..., Q, K, A], is computed again in the backward pass
    instead of being kept.

    Args:
        query: [..., Q, D].
        key: [..., K, E]; batch axes broadcast against `query`.
        w_query: [..., D, A].
        w_key: [..., E, A].
        v: [..., A].

    Returns:
        [..., Q, K] unnormalised scores.

    Raises:
        ValueError: if a parameter does not fit the widths or the others.
    """
    return _additive_compare(query, _additive_key(key, w_key), w_query, v)


@_score(w=("D", "L"))
def location_scores(query: jax.Array, key: jax.Array, w: jax.Array) -> jax.Array:
    """Scores of positions, W query: Luong et al. (2015), section 3.1.

    Of the keys only their number counts. As the paper says, a shorter source uses the
    first of the L scores and a longer one is attended to in its first L positions
    only; what is left is normalised to sum to 1, which it leaves open.

    Args:
        query: [..., Q, D].
        key: [..., K, E].
        w: [..., D, L].

    Returns:
        [..., Q, K] unnormalised scores, -inf (as masked) from position L on.

    Raises:
        ValueError: if `w` does not fit the query's width.
    """
    keys = key.shape[-2]
    scores = jnp.einsum("...qd,...dl->...ql", query, w[..., :keys])
    beyond = [(0, 0)] * (scores.ndim - 1) + [(0, keys - scores.shape[-1])]
    return jnp.pad(scores, beyond, constant_values=-jnp.inf)


def _unit(x: jax.Array, **_: jax.Array) -> jax.Array:
    square = jnp.sum(x * x, axis=-1, keepdims=True)
    # The inner `where` keeps the infinite slope at 0 out of the gradient.
    return x * jnp.where(square > 0, jax.lax.rsqrt(jnp.where(square > 0, square, 1)), 0)


def _cosine_compare(query: jax.Array, key: jax.Array, strength: jax.Array) -> jax.Array:
    return _dot(_unit(query) * jnp.asarray(strength)[..., None, None], key)


@_score(same_width=True, project=_unit, compare=_cosine_compare, strength=())
def cosine_scores(query: jax.Array, key: jax.Array, strength: jax.Array) -> jax.Array:
    """Cosine times a strength: Graves et al. (2014), eqs. 5 and 6.

    The cosine with a vector of zeros is 0, and so is its gradient.

    Args:
        query: [..., Q, D].
        key: [..., K, D]; batch axes broadcast against `query`.
        strength: [...], the paper's beta; positive.

    Returns:
        [..., Q, K] unnormalised scores.

    Raises:
        ValueError: if query and key differ in width.
    """
    return _cosine_compare(query, _unit(key), strength)


SCORES: dict[str, Score] = {
    "dot": dot_scores,
    "scaled_dot": scaled_dot_scores,
    "general": general_scores,
    "additive": additive_scores,
    "concat": additive_scores,
    "location": location_scores,
    "cosine": cosine_scores,
}
