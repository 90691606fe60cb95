"""Attention as Flax modules: scores, alignments and multi-head attention.

`Score` and `Alignment` create the parameters of the functions of `attention.scores` and
`attention.alignments`. `MultiHeadAttention` follows Vaswani et al. (2017), section
3.2.2, with any score and alignment, and the relative positions of Shaw et al. (2018).

Differs from the papers: local-m stays at the last key if the target is longer than its
source.

Axes: ... any batch; B batch; H heads; Q queries; K keys; D, E width of a query and a
key; A hidden width of a score; C width of the model; T tokens of a sequence; L length
of a cache; R hypotheses that share one source.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS as PLAIN_ALIGNMENTS
from attention.alignments import entropy, log_probability, predicted_position
from attention.core import Attention
from attention.scores import SCORES as PLAIN_SCORES
from models.records import AttentionRecord, DrawRecord
from ops.additive import additive_scores
from ops.linear import linear, split_heads
from ops.relative import relative_attention, relative_scores, relative_values
from ops.softmax import attend, masked_softmax

# Fast equivalents from `ops` replace their plain forms.
ALIGNMENTS = PLAIN_ALIGNMENTS | {"global": masked_softmax}
SCORES = PLAIN_SCORES | dict.fromkeys(("additive", "concat"), additive_scores)

_glorot = nn.initializers.xavier_uniform()


class Score(nn.Module):
    """A score function with learned parameters.

    A scalar parameter (the strength of the cosine score) is the softplus of a learned
    number.

    Attributes:
        function: a key of `SCORES`.
        heads: leading axes of every parameter: (H,) for separate parameters per head.
        hidden: A, for the additive score.
        max_length: maximum source length, for the location score.
        matrix_init: initializer of matrices; by default Glorot's, applied per matrix.
        vector_init: initializer of vectors; by default Glorot's.
    """

    function: str
    heads: Sequence[int] = ()
    hidden: int = 0
    max_length: int = 0
    matrix_init: Callable | None = None
    vector_init: Callable | None = None

    def __call__(self, query: jax.Array, key: jax.Array) -> jax.Array:
        """Returns scores [..., Q, K] of query [..., Q, D] and key [..., K, E]."""
        parameters = self.parameters(query.shape[-1], key.shape[-1])
        parameters = {n: x.astype(query.dtype) for n, x in parameters.items()}
        return SCORES[self.function](query, key, **parameters)

    @nn.compact
    def parameters(self, query_width: int, key_width: int) -> dict[str, jax.Array]:
        """Returns the parameters by name, for query width D and key width E."""
        sizes = dict(A=self.hidden, L=self.max_length, D=query_width, E=key_width)
        parameters = {}
        for name, axes in SCORES[self.function].parameters.items():
            shape = [sizes[axis] for axis in axes]
            if axes:
                init = self.matrix_init if len(shape) > 1 else self.vector_init
                init = init or partial(_uniform, fan=sum(shape[-2:]))
                parameters[name] = self.param(name, init, (*self.heads, *shape))
            else:  # strength sqrt(D): cosines spread like scaled dot products
                inverse_softplus = math.log(math.expm1(math.sqrt(query_width)))
                init = nn.initializers.constant(inverse_softplus)
                raw = self.param(name, init, tuple(self.heads))
                parameters[name] = nn.softplus(raw)
        return parameters


DRAWN = ("hard", "gumbel")  # alignments that sample a key if they get an rng


class Aligned(NamedTuple):
    """Attention weights, and results that only some alignments have (else None).

    Attributes:
        weights: [..., Q, K] attention weights.
        position: [..., Q], p_t predicted by local-p.
        log_probability: [..., Q] log-probability of a sampled hard alignment.
        entropy: [..., Q] entropy of the distribution it is sampled from, in nats.
    """

    weights: jax.Array
    position: jax.Array | None = None
    log_probability: jax.Array | None = None
    entropy: jax.Array | None = None

    def record(
        self, module: nn.Module, *, kind: str, layer: int, queries: str, keys: str
    ) -> None:
        """Sows an `AttentionRecord`, and a `DrawRecord` for a sampled hard alignment.

        The weights must be [B, H, Q, K].

        Args:
            module: the module that sows.
            kind: see `AttentionRecord`.
            layer: index among the layers of this kind, from 0.
            queries: meaning of the queries' axis.
            keys: meaning of the keys' axis.
        """
        record = AttentionRecord(
            self.weights,
            self.position,
            kind=kind,
            layer=layer,
            queries=queries,
            keys=keys,
        )
        module.sow(*record.sown())
        if self.log_probability is not None:
            draw = DrawRecord(self.log_probability, self.entropy)
            module.sow(*draw.sown())


class Alignment(nn.Module):
    """An alignment function with its learned parameters.

    The alignments in `DRAWN` sample a key if they get an `rng`; otherwise they select
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
                self.params_init or partial(_uniform, fan=sum(shape)),
                (*self.heads, *shape),
            )
            for name, shape in shapes.items()
        }

    @nn.nowrap
    def weigh(
        self,
        parameters: dict[str, jax.Array],
        scores: jax.Array,
        *,
        query: jax.Array,
        time: jax.Array,
        mask: jax.Array,
        rng: jax.Array | None,
        soft: jax.Array | None = None,
    ) -> Aligned:
        """Computes attention weights from scores.

        Args:
            parameters: result of `parameters`.
            scores: [..., Q, K].
            query: [..., Q, D], from which local-p predicts its position.
            time: step of each query, from 0; broadcasts to [..., Q].
            mask: [..., Q or 1, K] bool, True = may attend.
            rng: PRNG key of a random alignment; None for the most probable key.
            soft: bool scalar; True replaces a sampled key by the weights of
                `masked_softmax`, with log-probability 0.

        Returns:
            Weights [..., Q, K] and the alignment's other results [..., Q].
        """
        align = ALIGNMENTS[self.function]
        if self.function == "gumbel":
            align = partial(align, temperature=self.temperature)
        if self.function in DRAWN:
            return self._draw(align, scores, mask=mask, rng=rng, soft=soft)
        if self.function not in ("local_m", "local_p"):
            return Aligned(align(scores, mask=mask))
        length = mask.sum(-1)  # [..., Q or 1]
        if self.function == "local_p":
            position = predicted_position(query, length, **parameters)
        else:
            position = jnp.minimum(time, length - 1)
            position = jnp.broadcast_to(position, scores.shape[:-1])
        weights = align(scores, mask=mask, position=position, window=self.window)
        return Aligned(weights, position if self.function == "local_p" else None)

    def _draw(
        self,
        align: Callable[..., jax.Array],
        scores: jax.Array,
        *,
        mask: jax.Array,
        rng: jax.Array | None,
        soft: jax.Array | None,
    ) -> Aligned:
        """Weights of a random alignment, with log-probability and entropy."""
        drawn_weights = align(scores, mask=mask, rng=rng)
        soft_weights = masked_softmax(scores, mask)
        weights = drawn_weights
        if soft is not None:
            weights = jnp.where(soft, soft_weights, drawn_weights)
        if self.function == "gumbel" or rng is None:
            return Aligned(weights)
        log_prob = log_probability(scores, drawn_weights, mask=mask)
        if soft is not None:
            log_prob = jnp.where(soft, 0, log_prob)
        return Aligned(weights, log_probability=log_prob, entropy=entropy(soft_weights))


def _uniform(
    rng: jax.Array, shape: Sequence[int], dtype: jnp.dtype = jnp.float32, *, fan: int
) -> jax.Array:
    """Glorot's uniform initializer; `fan` is the fan-in plus fan-out of one matrix."""
    limit = math.sqrt(6 / fan)
    return jax.random.uniform(rng, shape, dtype, -limit, limit)


class Cache(NamedTuple):
    """Keys and values of the previous decoding steps."""

    key: jax.Array  # [R, B, H, L, D]
    value: jax.Array  # [R, B, H, L, D]


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) of Vaswani et al. (2017), section 3.2.2, with any score.

    Projections have no bias, as in the paper's equations. With `max_distance`,
    self-attention adds the relative positions of Shaw et al. (2018); each head has a
    table for keys and one for values. `__call__` and `read` sow an `AttentionRecord`.

    Attributes:
        features: C; a multiple of `heads`.
        heads: H.
        score: a key of `attention.scores.SCORES`.
        score_hidden: A, for the additive score and the position of local-p.
        max_length: maximum source length, for the location score.
        max_distance: k of Shaw et al.; None for no relative positions.
        alignment: a key of `attention.alignments.ALIGNMENTS`, for cross-attention.
        window: half-width of a local alignment's window in positions.
        temperature: temperature of the Gumbel alignment.
        dtype: dtype of matrix products; softmax and parameters stay float32.
        kind, layer, queries, keys: see `AttentionRecord`.
    """

    features: int = 512
    heads: int = 8
    score: str = "scaled_dot"
    score_hidden: int = 0
    max_length: int = 0
    max_distance: int | None = None
    alignment: str = "global"
    window: int = 10
    temperature: float = 1.0
    dtype: jnp.dtype = jnp.float32
    kind: str = "attention"
    layer: int = 0
    queries: str = "queries"
    keys: str = "keys"

    def setup(self):
        square = (self.features, self.features)
        self.query = self.param("query", _glorot, square)
        self.key = self.param("key", _glorot, square)
        self.value = self.param("value", _glorot, square)
        self.out = self.param("out", _glorot, square)
        self.scores = Score(
            self.score,
            heads=(self.heads,),
            hidden=self.score_hidden,
            max_length=self.max_length,
        )
        self.align = Alignment(
            self.alignment,
            heads=(self.heads,),
            hidden=self.score_hidden,
            window=self.window,
            temperature=self.temperature,
        )
        if self.max_distance is not None:
            width = self.features // self.heads
            shape = (self.heads, 2 * self.max_distance + 1, width)
            init = partial(_uniform, fan=sum(shape[1:]))
            self.relative_key = self.param("relative_key", init, shape)
            self.relative_value = self.param("relative_value", init, shape)

    def __call__(self, x: jax.Array, mask: jax.Array | None) -> jax.Array:
        """Computes self-attention over whole sequences.

        Args:
            x: [B, T, C].
            mask: bool, broadcasts to [B, H, T, T]; True = may attend.

        Returns:
            [B, T, C].
        """
        query, key, value = self._project(x, self.query, self.key, self.value)
        if self.max_distance is None:
            attention = attend(self.scores(query, key), value, mask=mask)
        else:
            attention = relative_attention(
                query,
                key,
                value,
                key_table=self.relative_key.astype(query.dtype),
                value_table=self.relative_value.astype(query.dtype),
                mask=mask,
                score=self.scores,
            )
        self._record(Aligned(attention.weights))
        return self._merge(attention.context)

    def project_memory(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Projects a memory [B, K, C] to keys and values [B, H, K, D]."""
        return self._project(memory, self.key, self.value)

    def read(
        self,
        x: jax.Array,
        key: jax.Array,
        value: jax.Array,
        mask: jax.Array,
        time: jax.Array,
    ) -> Attention:
        """Computes cross-attention to a memory.

        Args:
            x: [B, Q, C].
            key: [B, H, K, D] from `project_memory`.
            value: [B, H, K, D] from `project_memory`.
            mask: bool, broadcasts to [B, H, Q, K]; True = may attend.
            time: int, step of each query, from 0; broadcasts to [B, H, Q].

        Returns:
            Context [B, Q, C] and weights [B, H, Q, K].
        """
        (query,) = self._project(x, self.query)
        rng = None
        if self.alignment in DRAWN and self.has_rng("alignment"):
            rng = self.make_rng("alignment")
        aligned = self.align.weigh(
            self.align.parameters(query.shape[-1]),
            self.scores(query, key),
            query=query,
            time=time,
            mask=mask,
            rng=rng,
        )
        self._record(aligned)
        context = self._merge(jnp.matmul(aligned.weights, value))
        return Attention(context, aligned.weights)

    def start(self, batch: int, rows: int, length: int) -> Cache:
        """Returns an empty cache of `length` steps for `rows` hypotheses per source."""
        width = self.features // self.heads
        empty = jnp.zeros((rows, batch, self.heads, length, width), self.dtype)
        return Cache(empty, empty)

    def step(
        self, x: jax.Array, cache: Cache, time: jax.Array, path: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Computes one step of causal self-attention for R hypotheses per source.

        A hypothesis attends to the cached keys and values on its path through the rows
        of the cache. Beam search therefore reorders only paths, never the cache.

        Args:
            x: [B, R, C], the inputs at step `time`.
            cache: [R, B, H, L, D] keys and values of the previous steps.
            time: int scalar, from 0.
            path: [B, R, L, R] bool; path[b, r, t, s] is True if hypothesis r was in
                row s at step t.

        Returns:
            [B, R, C], and the cache including this step.
        """
        query, key, value = self._project(x, self.query, self.key, self.value)

        def write(cached: jax.Array, new: jax.Array) -> jax.Array:
            new = jnp.moveaxis(new, 2, 0)[:, :, :, None]  # [R, B, H, 1, D]
            return jax.lax.dynamic_update_slice_in_dim(cached, new, time, axis=3)

        cache = Cache(write(cache.key, key), write(cache.value, value))
        scores = self.scores(query, cache.key)  # [R, B, H, R, L]
        scores = jnp.broadcast_to(scores, (x.shape[1], *scores.shape[-4:]))
        scores = jnp.moveaxis(scores, 0, -1)  # [B, H, R, L, R]
        if self.max_distance is not None:
            # All hypotheses are at the same step: they are a batch axis, and Q is 1.
            table = self.relative_key.astype(query.dtype)[:, None]
            relative = relative_scores(
                query[..., None, :], table, keys=scores.shape[-2], offset=time
            )
            scale = query.shape[-1] ** -0.5
            scores += scale * jnp.swapaxes(relative, -1, -2)  # [B, H, R, L, 1]
        *batch, length, rows = scores.shape
        mask = path[:, None].reshape(path.shape[0], 1, rows, -1)
        weights = masked_softmax(scores.reshape(*batch, -1), mask)
        weights = weights.reshape(*batch, length, rows)
        context = jnp.einsum("bhrlp,pbhld->bhrd", weights, cache.value)
        if self.max_distance is not None:
            table = self.relative_value.astype(query.dtype)[:, None]
            step_weights = weights.sum(-1)[..., None, :]  # [B, H, R, 1, L]
            context += relative_values(step_weights, table, time)[..., 0, :]
        return self._merge(context), cache

    def _record(self, aligned: Aligned) -> None:
        aligned.record(
            self, kind=self.kind, layer=self.layer, queries=self.queries, keys=self.keys
        )

    def _project(self, x: jax.Array, *kernels: jax.Array) -> tuple[jax.Array, ...]:
        """Projects [B, T, C] to [B, H, T, D] per kernel, in one matrix product."""
        kernel = jnp.concatenate(kernels, axis=-1).astype(self.dtype)
        product = linear(x.astype(self.dtype), kernel)
        return split_heads(product, len(kernels), self.heads)

    def _merge(self, context: jax.Array) -> jax.Array:
        """Concatenates the heads [B, H, Q, D] and multiplies by W^O: [B, Q, C]."""
        context = jnp.swapaxes(context, 1, 2)
        context = context.reshape(*context.shape[:2], -1)
        return linear(context.astype(self.dtype), self.out.astype(self.dtype))
