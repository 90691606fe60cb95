"""Declaration of score functions: their parameters, and checks of their shapes.

Axes: ... any batch; Q queries; K keys; D query width; E key width; A hidden width of a
score; L maximum number of keys with a location score.
"""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp

__all__ = ["Scalar", "ScoreFunction", "ScoreParts", "Scoring", "score_function"]

Scoring = Callable[..., jax.Array]
"""A function `score(query, key)` -> [..., Q, K] unnormalised scores."""


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A learned number of a score function; with H heads, H numbers.

    The score function gets it as [..., 1, 1], which broadcasts against queries, keys
    and scores.

    Attributes:
        start: initial value, or a function of D that returns it.
        transform: function from the learned number, of any sign, to the value, and the
            inverse of that function; by default softplus, for positive values.
    """

    start: float | Callable[[int], float] = 1.0
    transform: tuple[Callable[..., jax.Array], Callable[[float], float]] = (
        jax.nn.softplus,
        lambda value: math.log(math.expm1(value)),
    )


class ScoreParts(NamedTuple):
    """Parts of a score, which is scale sum_a t_a + bias; `terms` returns the t_a.

    Attributes:
        query: [..., Q, A], projected.
        key: [..., K, A], projected.
        scale: of a product; broadcasts against the scores.
        v: [..., A] of an additive score; None for a product.
        location: [..., Q, K, A], added to query and key; None for 0.
        activation: f of an additive score, "tanh" or "relu".
        bias: of a product; broadcasts against the scores; -inf at a key that cannot be
            attended to.
    """

    query: jax.Array
    key: jax.Array
    scale: float | jax.Array = 1.0
    v: jax.Array | None = None
    location: jax.Array | None = None
    activation: str = ""
    bias: float | jax.Array = 0.0

    def terms(self) -> jax.Array:
        """Returns the terms [..., Q, K, A] of the units.

        They are query_a key_a or, of an additive score, v_a f(query_a + key_a +
        location_a).
        """
        query, key = self.query[..., :, None, :], self.key[..., None, :, :]
        if self.v is None:
            return query * key
        f = {"tanh": jnp.tanh, "relu": jax.nn.relu}[self.activation]
        location = 0 if self.location is None else self.location
        return f(query + key + location) * self.v[..., None, None, :]


class ScoreFunction(Protocol):
    """A score function with a description of its parameters.

    Attributes:
        parameters: a `Scalar`, or the axis letters of an array as in `("D", "E")`, for
            each parameter by name. D and E are the widths of query and key; the model
            chooses A and L.
        same_width: True if D must equal E.
        project: `project(key, **parameters)` -> projected key; the identity for a score
            that compares the keys as they are.
        project_query: the same of the query.
        compare: `compare(projected_query, projected_key, **parameters)` -> scores.
        parts: `parts(projected_query, projected_key, **parameters)` -> `ScoreParts`;
            None for a score that is not a sum over units.
        stepwise: True if the score needs the weights of the step before, `previous`.
    """

    parameters: dict[str, tuple[str, ...] | Scalar]
    same_width: bool
    project: Scoring
    project_query: Scoring
    compare: Scoring
    parts: Callable[..., ScoreParts] | None
    stepwise: bool

    def __call__(
        self, query: jax.Array, key: jax.Array, /, *args: Any, **kwargs: Any
    ) -> jax.Array:
        """Returns the scores [..., Q, K] of query [..., Q, D] and key [..., K, E]."""


# Projections are stored, and only the sum over the units is computed again.
_SAVED = jax.checkpoint_policies.dots_saveable


def score_function(
    *,
    same_width: bool = False,
    project: Scoring | None = None,
    project_query: Scoring | None = None,
    compare: Scoring | None = None,
    parts: Callable[..., ScoreParts] | None = None,
    recompute: bool = False,
    **parameters: tuple[str, ...] | Scalar,
) -> Callable[[Scoring], ScoreFunction]:
    """Decorator for score functions: declares the parameters and checks their shapes.

    Args:
        same_width: see `ScoreFunction`; so are the next four.
        project: by default the identity.
        project_query: by default the identity.
        compare: by default the score itself.
        parts: by default None.
        recompute: True if the backward pass computes the terms of the sum over the
            units again, instead of storing them.
        **parameters: axis letters of each parameter, as in `w=("D", "E")`, or a
            `Scalar`, which all functions get as [..., 1, 1].

    Returns:
        A decorator that returns a `ScoreFunction`. Calling the score raises a
        ValueError if the widths of its arguments do not match, or if the leading axes
        of a parameter do not broadcast with those of query and key.

    Example:
        >>> @score_function(w=("D", "E"), strength=Scalar(start=1.0))
        ... def my_scores(query, key, w, strength):
        ...     return strength * (query @ w @ key.T)
        >>> query, key, w = jnp.ones((1, 2)), jnp.eye(3), jnp.ones((2, 3))
        >>> print(my_scores(query, key, w, jnp.array(5.0)))
        [[10. 10. 10.]]
        >>> print(my_scores.parameters["w"])
        ('D', 'E')
    """

    def declare(function: Scoring) -> ScoreFunction:
        if (project or project_query) and not compare:
            raise ValueError(f"{function.__name__}: a projection needs compare")
        signature = inspect.signature(function)
        for name, axes in parameters.items():
            if name not in signature.parameters or axes == ():
                raise ValueError(
                    f"{function.__name__}: {name} must be an argument with axes, "
                    "or a Scalar"
                )
        fit = functools.partial(_fit, function.__name__, parameters)

        @functools.wraps(function)
        def checked(query: jax.Array, key: jax.Array, *args, **kwargs) -> jax.Array:
            if same_width and query.shape[-1] != key.shape[-1]:
                raise ValueError(
                    f"{function.__name__}: query {query.shape} and key {key.shape} "
                    "differ in width"
                )
            bound = signature.bind(query, key, *args, **kwargs)
            bound.arguments |= fit(bound.arguments, D=query, E=key)
            run = jax.checkpoint(function, policy=_SAVED) if recompute else function
            return run(*bound.args, **bound.kwargs)

        def checked_project(key: jax.Array, **kwargs) -> jax.Array:
            return project(key, **fit(kwargs, E=key)) if project else key

        def checked_project_query(query: jax.Array, **kwargs) -> jax.Array:
            fitted = fit(kwargs, D=query)
            return project_query(query, **fitted) if project_query else query

        def checked_parts(query: jax.Array, key: jax.Array, **kwargs) -> ScoreParts:
            assert parts is not None
            return parts(query, key, **fit(kwargs, query=query, key=key))

        def checked_compare(query: jax.Array, key: jax.Array, **kwargs) -> jax.Array:
            assert compare is not None
            run = jax.checkpoint(compare) if recompute else compare
            return run(query, key, **fit(kwargs, query=query, key=key))

        score = cast(ScoreFunction, checked)
        score.parameters = parameters
        score.same_width = same_width
        score.project = checked_project
        score.project_query = checked_project_query
        score.compare = checked_compare if compare else checked
        score.parts = checked_parts if parts else None
        score.stepwise = "previous" in signature.parameters
        return score

    return declare


def _fit(
    function: str,
    declared: Mapping[str, tuple[str, ...] | Scalar],
    arguments: Mapping[str, Any],
    **arrays: jax.Array,
) -> dict[str, Any]:
    """Checks the shapes of a function's parameters; scalars become [..., 1, 1].

    `arrays` are query and key, each under the letter of its width or, if it is
    projected, under another name.
    """
    sizes = {axis: array.shape[-1] for axis, array in arrays.items()}
    batches = [array.shape[:-2] for array in arrays.values()]
    fitted = dict(arguments)
    for name, axes in declared.items():
        if name not in arguments:
            continue
        shape = batch = jnp.shape(arguments[name])
        depth = len(shape)
        if isinstance(axes, Scalar):
            fitted[name] = jnp.asarray(arguments[name])[..., None, None]
            depth = max(map(len, batches))  # more axes would be axes of the scores
        else:
            batch, last = shape[: -len(axes)], shape[-len(axes) :]
            fits = tuple(map(sizes.setdefault, axes, last)) == last
            if len(last) < len(axes) or not fits:
                wanted = ", ".join(f"{axis}={sizes.get(axis, 'any')}" for axis in axes)
                raise ValueError(
                    f"{function}: {name} {shape} must end in the axes [{wanted}]"
                )
        try:
            jnp.broadcast_shapes(batch, *batches)
            fits = len(batch) <= depth
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"{function}: {name} {shape} does not broadcast with the batch axes "
                f"{' and '.join(map(str, batches))}"
            )
    return fitted
