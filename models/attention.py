"""Scores and alignments as Flax modules, which create their parameters.

The functions are those of `attention.scores` and `attention.alignments`.

Differs from the papers: local-m stays at the last key if the target is longer than its
source.

Axes: ... any batch; H heads; Q queries; K keys; D, E width of a query and a key; A
hidden width of a score; R, C width and number of the filters of the location-aware
score.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import (
    ALIGNMENTS,
    entropy,
    log_probability,
    predicted_position,
)
from attention.core import masked_softmax
from attention.declaration import Scalar, ScoreParts
from attention.scores import SCORES, STEPWISE_SCORES
from base.records import SampleRecord

MATCHING_SCORES = {
    name: score
    for name, score in SCORES.items()
    if score.parts and "w_query" in score.parameters
}
"""The scores with a matrix for the query and one for the key, by name."""


class Score(nn.Module):
    """A score function with learned parameters.

    A `Scalar` is stored as one number per head, before its transform.

    Attributes:
        function: a key of `SCORES`; a model that decodes stepwise and calls
            `parameters` alone may use `STEPWISE_SCORES`.
        heads: leading axes of every parameter: (H,) for separate parameters per head.
        hidden: A, for the additive score.
        max_length: maximum source length, for the location score.
        filters: C, for the location-aware score.
        filter_width: R, for the location-aware score.
        matrix_init: initializer of matrices; by default Glorot's, applied per matrix.
        vector_init: initializer of vectors; by default Glorot's.
    """

    function: str
    heads: Sequence[int] = ()
    hidden: int = 0
    max_length: int = 0
    filters: int = 10
    filter_width: int = 15
    matrix_init: Callable | None = None
    vector_init: Callable | None = None

    def __call__(self, query: jax.Array, key: jax.Array) -> jax.Array:
        """Returns scores [..., Q, K] of query [..., Q, D] and key [..., K, E]."""
        parameters = self.parameters(query.shape[-1], key.shape[-1])
        parameters = {n: x.astype(query.dtype) for n, x in parameters.items()}
        return SCORES[self.function](query, key, **parameters)

    def parts(self, query: jax.Array, key: jax.Array) -> ScoreParts | None:
        """Returns the parts of the scores of query [..., Q, D] and key [..., K, E]."""
        function = SCORES[self.function]
        if function.parts is None:
            return None
        parameters = self.parameters(query.shape[-1], key.shape[-1])
        query = function.project_query(query, **parameters)
        return function.parts(query, function.project(key, **parameters), **parameters)

    @nn.compact
    def parameters(self, query_width: int, key_width: int) -> dict[str, jax.Array]:
        """Returns the parameters by name, for query width D and key width E."""
        sizes = dict(A=self.hidden, L=self.max_length, D=query_width, E=key_width)
        sizes |= dict(C=self.filters, R=self.filter_width)
        parameters = {}
        for name, axes in STEPWISE_SCORES[self.function].parameters.items():
            if isinstance(axes, Scalar):
                start = axes.start(query_width) if callable(axes.start) else axes.start
                transform, inverse = axes.transform
                init = nn.initializers.constant(inverse(start))
                parameters[name] = transform(self.param(name, init, tuple(self.heads)))
                continue
            shape = [sizes[axis] for axis in axes]
            init = self.matrix_init if len(shape) > 1 else self.vector_init
            init = init or partial(glorot_uniform, fan=sum(shape[-2:]))
            parameters[name] = self.param(name, init, (*self.heads, *shape))
        return parameters


SAMPLED = ("hard", "gumbel")  # alignments that sample a key if they get an rng


class AlignmentOutput(NamedTuple):
    """Attention weights, and results that only some alignments have (else None).

    Attributes:
        weights: [..., Q, K] attention weights.
        position: [..., Q], p_t predicted by local-p.
        sample: log-probability and entropy [..., Q] of a sampled hard alignment.
        query: [..., Q, D] queries of the scores; only for the details of a record.
    """

    weights: jax.Array
    position: jax.Array | None = None
    sample: SampleRecord | None = None
    query: jax.Array | None = None


class Alignment(nn.Module):
    """An alignment function with its learned parameters.

    The alignments in `SAMPLED` sample a key if they get an `rng`; otherwise they select
    the most probable key.

    Attributes:
        function: a key of `ALIGNMENTS`.
        heads: leading axes of every parameter: (H,) for separate parameters per head.
        hidden: A, hidden width of the position predicted by local-p.
        window: half-width of a local alignment's window in positions, the paper's D.
        temperature: temperature of the Gumbel alignment.
        params_init: initializer of the parameters; by default Glorot's.
    """

    function: str
    heads: Sequence[int] = ()
    hidden: int = 0
    window: int = 10
    temperature: float = 1.0
    params_init: Callable | None = None

    @nn.compact
    def parameters(self, width: int) -> dict[str, jax.Array]:
        """Returns the parameters by name, for queries of this width."""
        if self.function != "local_p":
            return {}
        shapes = {"w": (width, self.hidden), "v": (self.hidden,)}
        return {
            name: self.param(
                f"position_{name}",
                self.params_init or partial(glorot_uniform, fan=sum(shape)),
                (*self.heads, *shape),
            )
            for name, shape in shapes.items()
        }

    @property
    def record_fields(self) -> dict[str, Any]:
        """The fields `window` and `hard` of an `AttentionRecord`."""
        window = self.window if self.function == "local_p" else None
        return {"window": window, "hard": self.function in SAMPLED}

    @nn.nowrap
    def __call__(
        self,
        scores: jax.Array,
        *,
        query: jax.Array,
        mask: jax.Array,
        time: int | jax.Array = 0,
        rng: jax.Array | None = None,
        soft: jax.Array | None = None,
        parameters: dict[str, jax.Array] | None = None,
    ) -> AlignmentOutput:
        """Computes attention weights from scores.

        Args:
            scores: [..., Q, K].
            query: [..., Q, D], from which local-p predicts its position.
            mask: [..., Q or 1, K] bool, True = may attend.
            time: step of each query, from 0; broadcasts to [..., Q].
            rng: PRNG key to sample a key; None for the most probable key.
            soft: bool scalar; True replaces a sampled key by the weights of
                `masked_softmax`, with log-probability 0.
            parameters: result of `parameters`, inside of a scan; by default computed.

        Returns:
            Weights [..., Q, K] and the alignment's other results [..., Q].
        """
        align, local = ALIGNMENTS[self.function], {"mask": mask, "window": self.window}
        if self.function == "local_m":
            last = mask.sum(-1) - 1  # [..., Q or 1]
            position = jnp.broadcast_to(jnp.minimum(time, last), scores.shape[:-1])
            return AlignmentOutput(align(scores, position=position, **local))
        if self.function == "local_p":
            if parameters is None:
                parameters = self.parameters(query.shape[-1])
            position = predicted_position(query, mask.sum(-1), **parameters)
            return AlignmentOutput(align(scores, position=position, **local), position)
        if self.function not in SAMPLED:
            return AlignmentOutput(align(scores, mask=mask))

        if self.function == "gumbel":
            align = partial(align, temperature=self.temperature)
        weights = sampled_weights = align(scores, mask=mask, rng=rng)
        soft_weights = masked_softmax(scores, mask)
        if soft is not None:
            weights = jnp.where(soft, soft_weights, sampled_weights)
        if self.function == "gumbel" or rng is None:
            return AlignmentOutput(weights)
        log_prob = log_probability(scores, sampled_weights, mask=mask)
        if soft is not None:
            log_prob = jnp.where(soft, 0, log_prob)
        return AlignmentOutput(
            weights, sample=SampleRecord(log_prob, entropy(soft_weights))
        )


def glorot_uniform(
    rng: jax.Array, shape: Sequence[int], dtype: jnp.dtype = jnp.float32, *, fan: int
) -> jax.Array:
    """Glorot's uniform initializer; `fan` is the fan-in plus fan-out of one matrix."""
    limit = math.sqrt(6 / fan)
    return jax.random.uniform(rng, shape, dtype, -limit, limit)
