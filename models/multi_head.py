"""Multi-head attention: Vaswani et al. (2017), section 3.2.2.

head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), MultiHead = [head_1; ...; head_H] W^O;
with any score, in cross-attention any alignment, and with the relative positions of
Shaw et al. (2018) or the rotary positions of Su et al. (2021).

Axes: B batch; H heads; Q queries; K keys; D width of a query and a key; A hidden width
of a score; C width of the model; T tokens of a sequence; L length of a cache; R
hypotheses that share one source.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import SAMPLED_ALIGNMENTS
from attention.core import Attention, attend
from attention.declaration import ScoreParts
from attention.fast.linear import linear, merge_heads, split_heads
from attention.fast.relative import relative_scores, relative_values
from attention.positions import rotary
from base.errors import FieldError
from base.records import ScoreDetails, sow
from models.attention import Alignment, Score, glorot_uniform
from models.recording import score_details, sow_attention

_glorot = nn.initializers.xavier_uniform()


class ProjectedMemory(NamedTuple):
    """Keys and values of a memory."""

    key: jax.Array  # [B, H, K, D]
    value: jax.Array  # [B, H, K, D]


class Cache(NamedTuple):
    """Keys and values of the previous decoding steps."""

    key: jax.Array  # [B, L, R, H, D]
    value: jax.Array  # [B, L, R, H, D]

    def write(self, time: jax.Array, key: jax.Array, value: jax.Array) -> "Cache":
        """Returns the cache with a step's key and value, [B, H, R, D]."""

        def update(cached: jax.Array, new: jax.Array) -> jax.Array:
            new = jnp.swapaxes(new, 1, 2)[:, None]  # [B, 1, R, H, D]
            return jax.lax.dynamic_update_slice_in_dim(cached, new, time, axis=1)

        return Cache(update(self.key, key), update(self.value, value))

    def follow(self, path: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns keys and values [B, R, H, L, D] of the paths [B, R, L]."""

        def select(cached: jax.Array) -> jax.Array:
            rows = jnp.swapaxes(path, 1, 2)[..., None, None]  # [B, L, R, 1, 1]
            rows = jnp.take_along_axis(cached, rows, 2, mode="promise_in_bounds")
            return jnp.moveaxis(rows, 1, 3)

        return select(self.key), select(self.value)


class MultiHeadAttention(nn.Module):
    """Projections and output matrix shared by `SelfAttention` and `CrossAttention`.

    They have no bias, as in the paper's equations.

    Attributes:
        features: C; a multiple of `heads`.
        heads: H.
        kind, layer, queries, keys: see `AttentionRecord`.
        score: a key of `attention.scores.SCORES`.
        score_hidden: A, hidden width of a score, and of the position of local-p.
        max_length: maximum source length, for the location score.
        dtype: dtype of matrix products; softmax and parameters stay float32.
    """

    features: int
    heads: int
    kind: str
    layer: int
    queries: str
    keys: str
    score: str = "scaled_dot"
    score_hidden: int = 0
    max_length: int = 0
    dtype: jnp.dtype = jnp.float32

    def setup(self):
        square = (self.features, self.features)
        self.query = self.param("query", _glorot, square)  # W^Q
        self.key = self.param("key", _glorot, square)  # W^K
        self.value = self.param("value", _glorot, square)  # W^V
        self.out = self.param("out", _glorot, square)  # W^O
        self.scores = Score(
            self.score,
            heads=(self.heads,),
            hidden=self.score_hidden,
            max_length=self.max_length,
        )

    def _project(self, x: jax.Array, *kernels: jax.Array) -> tuple[jax.Array, ...]:
        """Projects [B, T, C] to [B, H, T, D] per kernel, in one matrix product."""
        kernel = merge_heads(kernels, self.heads).astype(self.dtype)
        product = linear(x.astype(self.dtype), kernel)
        return split_heads(product, len(kernels), self.heads)

    def _output(self, context: jax.Array) -> jax.Array:
        """Concatenates the heads [B, H, Q, D] and multiplies by W^O: [B, Q, C]."""
        context = jnp.swapaxes(context, 1, 2)
        context = context.reshape(*context.shape[:2], -1)
        return linear(context.astype(self.dtype), self.out.astype(self.dtype))

    def _record(
        self,
        weights: jax.Array,
        query: jax.Array,
        key: jax.Array,
        mask: jax.Array | None,
        **fields: Any,
    ) -> None:
        def details() -> ScoreDetails | None:
            q, k = query.astype(jnp.float32), key.astype(jnp.float32)
            return score_details(self._parts(q, k), mask)

        sow_attention(
            self,
            weights,
            details,
            kind=self.kind,
            layer=self.layer,
            queries=self.queries,
            keys=self.keys,
            **fields,
        )

    def _parts(self, query: jax.Array, key: jax.Array) -> ScoreParts | None:
        """Parts of the scores of query [B, H, Q, D] and key [B, H, K, D]."""
        return self.scores.parts(query, key)


def check_heads(d_model: int, heads: int, *, rotary: bool) -> None:
    """Checks the number of heads.

    Args:
        d_model: width of queries, keys and values of all heads.
        heads: number of heads.
        rotary: whether positions are rotary.

    Raises:
        FieldError: if `heads` does not divide `d_model`, or into odd widths with rotary
            positions.
    """
    if d_model % heads:
        raise FieldError("heads", heads, f"a divisor of d_model, which is {d_model}")
    if rotary and d_model // heads % 2:
        accepted = f"of even width with rotary positions; d_model is {d_model}"
        raise FieldError("heads", heads, accepted)


class SelfAttention(MultiHeadAttention):
    """Self-attention over whole sequences, and step by step with a cache.

    With `max_distance`, it adds the relative positions of Shaw et al. (2018); each head
    has a table for keys and one for values. With `rotary`, it rotates queries and keys
    by their positions (Su et al. 2021). `__call__` sows an `AttentionRecord`.

    Attributes:
        max_distance: k of Shaw et al.; None for no relative positions.
        rotary: whether positions are rotary; D must be even.

    The other fields are those of `MultiHeadAttention`.
    """

    max_distance: int | None = None
    rotary: bool = False

    def setup(self):
        super().setup()
        if self.max_distance is not None:
            width = self.features // self.heads
            shape = (self.heads, 2 * self.max_distance + 1, width)
            init = partial(glorot_uniform, fan=sum(shape[1:]))
            self.relative_key = self.param("relative_key", init, shape)
            self.relative_value = self.param("relative_value", init, shape)

    def __call__(self, x: jax.Array, mask: jax.Array | None) -> Attention:
        """Computes self-attention over whole sequences.

        Args:
            x: [B, T, C].
            mask: bool, broadcasts to [B, H, T, T]; True = may attend.

        Returns:
            Context [B, T, C] and weights [B, H, T, T].
        """
        # Q W_i^Q, K W_i^K, V W_i^V of all heads
        query, key, value = self._project(x, self.query, self.key, self.value)
        if self.rotary:
            time = jnp.arange(x.shape[1])
            query, key = rotary(query, time), rotary(key, time)
        # head_i = softmax(Q_i K_i^T / sqrt(D)) V_i
        context, weights = self._attend(query, key, value, mask)
        self._record(weights, query, key, mask)
        # Concat(head_1, ..., head_H) W^O
        return Attention(self._output(context), weights)

    def _attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        mask: jax.Array | None,
        offset: int | jax.Array = 0,
    ) -> Attention:
        """Reads for queries [..., Q, D], the first one at position `offset`."""
        e = self.scores(query, key)  # e_ij = q_i k_j / sqrt(D)
        if self.max_distance is None:
            return attend(e, value, mask=mask)  # alpha = softmax(e), alpha v
        e = e + self._relative_scores(query, key.shape[-2], offset)  # + q a^K / sqrt(D)
        z, alpha = attend(e, value, mask=mask)  # z_i = sum_j alpha_ij v_j
        table = self.relative_value.astype(query.dtype)
        z = z + relative_values(alpha, table, offset)  # + sum_j alpha_ij a^V_ij
        return Attention(z, alpha)

    def _relative_scores(
        self, query: jax.Array, keys: int, offset: int | jax.Array = 0
    ) -> jax.Array:
        """Scores q_i a^K_ij / sqrt(D), [..., Q, K]: Shaw et al. (2018), eq. 5."""
        table = self.relative_key.astype(query.dtype)
        scaled = query / math.sqrt(query.shape[-1])
        return relative_scores(scaled, table, keys, offset)

    def start(self, batch: int, rows: int, length: int) -> Cache:
        """Returns an empty cache of `length` steps for `rows` hypotheses per source."""
        width = self.features // self.heads
        empty = jnp.zeros((batch, length, rows, self.heads, width), self.dtype)
        return Cache(empty, empty)

    def step(
        self, x: jax.Array, cache: Cache, time: jax.Array, path: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Computes one step of causal self-attention for R hypotheses per source.

        A hypothesis attends to the cached keys and values on its path through the rows
        of the cache. Beam search therefore reorders only paths, never the cache.

        Args:
            x: [B, R, C], the inputs at step `time`.
            cache: keys and values of the previous steps.
            time: int scalar, from 0.
            path: [B, R, L] int, the row of each hypothesis at each step.

        Returns:
            [B, R, C], and the cache including this step.
        """
        # [B, H, R, D]
        query, key, value = self._project(x, self.query, self.key, self.value)
        if self.rotary:
            query, key = rotary(query, time), rotary(key, time)
        cache = cache.write(time, key, value)
        # The hypotheses are a batch axis, with a single query each.
        query = jnp.swapaxes(query, 1, 2)[..., None, :]  # [B, R, H, 1, D]
        past = jnp.arange(path.shape[-1]) <= time  # [L]
        context, _ = self._attend(query, *cache.follow(path), past, offset=time)
        return self._output(jnp.swapaxes(context[..., 0, :], 1, 2)), cache

    def _parts(self, query: jax.Array, key: jax.Array) -> ScoreParts | None:
        parts = super()._parts(query, key)
        if parts is None or self.max_distance is None:
            return parts
        bias = self._relative_scores(query, key.shape[-2])
        return parts._replace(bias=parts.bias + bias)


class CrossAttention(MultiHeadAttention):
    """Attention to a memory, with any alignment; `read` sows an `AttentionRecord`.

    Attributes:
        alignment: a key of `attention.alignments.ALIGNMENTS`.
        window: half-width of a local alignment's window in positions.
        temperature: temperature of the Gumbel alignment.

    The other fields are those of `MultiHeadAttention`.
    """

    alignment: str = "global"
    window: int = 10
    temperature: float = 1.0

    def setup(self):
        super().setup()
        self.align = Alignment(
            self.alignment,
            heads=(self.heads,),
            hidden=self.score_hidden,
            window=self.window,
            temperature=self.temperature,
        )

    def project_memory(self, memory: jax.Array) -> ProjectedMemory:
        """Projects a memory [B, K, C] to keys and values, once for all queries."""
        return ProjectedMemory(*self._project(memory, self.key, self.value))

    def read(
        self,
        x: jax.Array,
        memory: ProjectedMemory,
        mask: jax.Array,
        time: jax.Array,
    ) -> Attention:
        """Computes cross-attention to a memory.

        Args:
            x: [B, Q, C].
            memory: from `project_memory`.
            mask: bool, broadcasts to [B, H, Q, K]; True = may attend.
            time: int, step of each query, from 0; broadcasts to [B, H, Q].

        Returns:
            Context [B, Q, C] and weights [B, H, Q, K].
        """
        (query,) = self._project(x, self.query)
        rng = None
        if self.alignment in SAMPLED_ALIGNMENTS and self.has_rng("alignment"):
            rng = self.make_rng("alignment")
        e = self.scores(query, memory.key)  # Q_i K_i^T / sqrt(D)
        # softmax(e) in the paper
        aligned = self.align(e, query=query, time=time, mask=mask, rng=rng)
        fields = {"position": aligned.position, **self.align.record_fields}
        self._record(aligned.weights, query, memory.key, mask, **fields)
        if aligned.sample is not None:
            sow(self, aligned.sample)
        heads = aligned.weights @ memory.value  # head_i = softmax(e) V_i
        # Concat(head_1, ..., head_H) W^O
        return Attention(self._output(heads), aligned.weights)
