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
    LOCAL_ALIGNMENTS,
    SAMPLED_ALIGNMENTS,
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
        function: a key of `SCORES`; without calls of the module and of `compare`, also
            one of `STEPWISE_SCORES`.
        heads: leading axes of every parameter: (H,) for separate parameters per head.
        hidden: A, hidden width of a score that has one.
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

    def project(self, key: jax.Array, query_width: int) -> jax.Array:
        """Projects keys [..., K, E], once for all queries; see `compare`."""
        parameters = self.parameters(query_width, key.shape[-1])
        return STEPWISE_SCORES[self.function].project(key, **parameters)

    def compare(self, query: jax.Array, keys: jax.Array, key_width: int) -> jax.Array:
        """Returns scores [..., Q, K] of queries [..., Q, D] and projected keys.

        Args:
            query: [..., Q, D].
            keys: [..., K, A or D], result of `project`.
            key_width: E.
        """
        parameters = self.parameters(query.shape[-1], key_width)
        function = STEPWISE_SCORES[self.function]
        query = function.project_query(query, **parameters)
        return function.compare(query, keys, **parameters)

    def parts(
        self, query: jax.Array, key: jax.Array, **previous: jax.Array
    ) -> ScoreParts | None:
        """Returns the parts of the scores of query [..., Q, D] and key [..., K, E].

        A stepwise score needs `previous` [..., Q, K], the weights of the step before.
        """
        function = STEPWISE_SCORES[self.function]
        if function.parts is None:
            return None
        arguments = self.parameters(query.shape[-1], key.shape[-1]) | previous
        query = function.project_query(query, **arguments)
        return function.parts(query, function.project(key, **arguments), **arguments)

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
            else:
                init = self.matrix_init if len(axes) > 1 else self.vector_init
                shape = [sizes[axis] for axis in axes]
                parameters[name] = _parameter(self, name, init, shape)
        return parameters


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

    The `SAMPLED_ALIGNMENTS` sample a key if they get an `rng`; otherwise they select
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
            name: _parameter(self, f"position_{name}", self.params_init, shape)
            for name, shape in shapes.items()
        }

    @property
    def record_fields(self) -> dict[str, Any]:
        """The fields `window` and `hard` of an `AttentionRecord`."""
        window = self.window if self.function == "local_p" else None
        return {"window": window, "hard": self.function in SAMPLED_ALIGNMENTS}

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
        if self.function in LOCAL_ALIGNMENTS:
            return self._local(scores, query, mask, time, parameters)
        if self.function in SAMPLED_ALIGNMENTS:
            return self._sampled(scores, mask, rng, soft)
        return AlignmentOutput(ALIGNMENTS[self.function](scores, mask=mask))

    @nn.nowrap
    def _local(
        self,
        scores: jax.Array,
        query: jax.Array,
        mask: jax.Array,
        time: int | jax.Array,
        parameters: dict[str, jax.Array] | None,
    ) -> AlignmentOutput:
        """Aligns in a window around p_t: Luong et al. (2015), section 3.2."""
        length = mask.sum(-1)  # S, [..., Q or 1]
        predicted = None
        if self.function == "local_p":  # p_t = S sigmoid(v tanh(W h_t))
            parameters = parameters or self.parameters(query.shape[-1])
            position = predicted = predicted_position(query, length, **parameters)
        else:  # local-m, p_t = t
            position = jnp.minimum(time, length - 1)
        align = LOCAL_ALIGNMENTS[self.function]
        weights = align(scores, position=position, window=self.window, mask=mask)
        return AlignmentOutput(weights, predicted)

    @nn.nowrap
    def _sampled(
        self,
        scores: jax.Array,
        mask: jax.Array,
        rng: jax.Array | None,
        soft: jax.Array | None,
    ) -> AlignmentOutput:
        """Aligns with one key: Xu et al. (2015), section 4.1; Jang et al. (2017)."""
        align = SAMPLED_ALIGNMENTS[self.function]
        if self.function == "gumbel":
            align = partial(align, temperature=self.temperature)
        weights = align(scores, mask=mask, rng=rng)
        soft_weights = masked_softmax(scores, mask)
        sample = None
        if self.function == "hard" and rng is not None:  # for REINFORCE
            log_prob = log_probability(scores, weights, mask=mask)
            log_prob = log_prob if soft is None else jnp.where(soft, 0, log_prob)
            sample = SampleRecord(log_prob, entropy(soft_weights))
        weights = weights if soft is None else jnp.where(soft, soft_weights, weights)
        return AlignmentOutput(weights, sample=sample)


def _parameter(
    module: Score | Alignment, name: str, init: Callable | None, shape: Sequence[int]
) -> jax.Array:
    """Creates a parameter per head; by default with Glorot's initializer."""
    init = init or partial(glorot_uniform, fan=sum(shape[-2:]))
    return module.param(name, init, (*module.heads, *shape))


def glorot_uniform(
    rng: jax.Array, shape: Sequence[int], dtype: jnp.dtype = jnp.float32, *, fan: int
) -> jax.Array:
    """Glorot's uniform initializer; `fan` is the fan-in plus fan-out of one matrix."""
    limit = math.sqrt(6 / fan)
    return jax.random.uniform(rng, shape, dtype, -limit, limit)
