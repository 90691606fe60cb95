"""Multi-head attention: Vaswani et al. (2017), section 3.2.2.

With any score and alignment, and with the relative positions of Shaw et al. (2018) or
the rotary positions of Su et al. (2021).

Axes: B batch; H heads; Q queries; K keys; D width of a query and a key; A hidden width
of a score; C width of the model; T tokens of a sequence; L length of a cache; R
hypotheses that share one source.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import Attention
from attention.fast.linear import linear, merge_heads, split_heads
from attention.fast.relative import relative_attention, relative_scores, relative_values
from attention.fast.softmax import attend, masked_softmax
from attention.positions import rotary
from models.attention import DRAWN, Aligned, Alignment, Score, glorot_uniform

_glorot = nn.initializers.xavier_uniform()


class Cache(NamedTuple):
    """Keys and values of the previous decoding steps."""

    key: jax.Array  # [R, B, H, L, D]
    value: jax.Array  # [R, B, H, L, D]


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) of Vaswani et al. (2017), section 3.2.2, with any score.

    Projections have no bias, as in the paper's equations. With `max_distance`,
    self-attention adds the relative positions of Shaw et al. (2018); each head has a
    table for keys and one for values. With `rotary`, it rotates queries and keys by
    their positions (Su et al. 2021). `__call__` and `read` sow an `AttentionRecord`.

    Attributes:
        features: C; a multiple of `heads`.
        heads: H.
        score: a key of `attention.scores.SCORES`.
        score_hidden: A, for the additive score and the position of local-p.
        max_length: maximum source length, for the location score.
        max_distance: k of Shaw et al.; None for no relative positions.
        rotary: whether self-attention has rotary positions; D must be even.
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
    rotary: bool = False
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
            init = partial(glorot_uniform, fan=sum(shape[1:]))
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
        position = jnp.arange(x.shape[1])
        query, key, value = self._project_self(x, position)
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
        query, key, value = self._project_self(x, time)

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
        kernel = merge_heads(kernels, self.heads).astype(self.dtype)
        product = linear(x.astype(self.dtype), kernel)
        return split_heads(product, len(kernels), self.heads)

    def _project_self(self, x: jax.Array, position: jax.Array) -> tuple[jax.Array, ...]:
        """Projects [B, T, C] at positions [T] to query, key and value, [B, H, T, D]."""
        query, key, value = self._project(x, self.query, self.key, self.value)
        if self.rotary:
            query, key = rotary(query, position), rotary(key, position)
        return query, key, value

    def _merge(self, context: jax.Array) -> jax.Array:
        """Concatenates the heads [B, H, Q, D] and multiplies by W^O: [B, Q, C]."""
        context = jnp.swapaxes(context, 1, 2)
        context = context.reshape(*context.shape[:2], -1)
        return linear(context.astype(self.dtype), self.out.astype(self.dtype))
