"""End-to-end memory network on text: Sukhbaatar et al. (2015), section 5.

The memory of token t is the N tokens up to t, itself included, with a temporal encoding
of their distance, from 0 to N - 1:

    m_i = A x_i + T_A(t - i),  c_i = C x_i + T_C(t - i),  u^1 = (0.1, ..., 0.1)
    p^k = softmax(u^k m),  o^k = sum_i p_i^k c_i,  u^(k+1) = f(H u^k + o^k)
    next token = softmax(W u^(K+1))

f is ReLU on the second half of the units and the identity on the others. All hops have
the same A, C and H (layer-wise tying).

Axes: B batch; T tokens; N memory slots; K hops; D width; W vocabulary.

Differs from the paper: memories at the beginning of a text have fewer than N tokens;
dropout is optional.
"""

from functools import partial
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import masked_softmax
from attention.declaration import ScoreParts
from base.ranges import FRACTION, LAYERS, POSITIVE, SIZE
from base.records import ScoreDetails
from models.layers import PAD, Dropout, check_fields, logits
from models.recording import score_details, sow_attention

_QUERY = 0.1  # u^1, the same for every unit


class MemoryNetworkLanguageModel(nn.Module):
    """End-to-end memory network on text; see the module docstring.

    The defaults are the paper's. Sows an `AttentionRecord` [B, 1, T, T] of each hop,
    kind "memory".

    Attributes:
        vocab_size: W.
        width: D, width of the embeddings.
        hops: K, number of hops.
        memory: N, number of words in the memory, with the current one.
        init_scale: standard deviation of the initial parameters.
        dropout: dropout rate of A x, C x and u^(K+1).
    """

    vocab_size: Annotated[int, SIZE]
    width: Annotated[int, SIZE] = 150
    hops: Annotated[int, LAYERS] = 6
    memory: Annotated[int, SIZE] = 100
    init_scale: Annotated[float, POSITIVE] = 0.05
    dropout: Annotated[float, FRACTION] = 0.0

    attends: ClassVar[bool] = True

    def setup(self):
        check_fields(self)
        init = nn.initializers.normal(self.init_scale)
        words, times = (self.vocab_size, self.width), (self.memory, self.width)
        self.a = self.param("memory_embedding", init, words)
        self.c = self.param("output_embedding", init, words)
        # Rows are distances t - i; reversed, they are slots, the oldest token first.
        self.t_a = self.param("memory_times", init, times)[::-1]
        self.t_c = self.param("output_times", init, times)[::-1]
        self.h = self.param("state_kernel", init, (self.width, self.width))
        self.w = self.param("output", init, words)
        self.drop = Dropout(self.dropout)

    @nn.nowrap
    def start(self, batch: int) -> jax.Array:
        """Returns the carry before the first token of B texts: no tokens [B, N - 1]."""
        return jnp.full((batch, self.memory - 1), PAD, jnp.int32)

    def __call__(
        self, tokens: jax.Array, carry: jax.Array | None = None, *, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Reads a part of each text; see `models.lstm_language`."""
        batch, steps = tokens.shape
        past = self.start(batch) if carry is None else carry
        text = jnp.concatenate([past, tokens], 1)  # [B, N - 1 + T]
        # Slot n of token t is token t + n of the text.
        slots = jnp.arange(steps)[:, None] + jnp.arange(self.memory)  # [T, N]
        mask = text[:, slots] != PAD  # [B, T, N]
        ax = self.drop(self.a[text], deterministic=not train)  # A x, [B, N - 1 + T, D]
        cx = self.drop(self.c[text], deterministic=not train)
        u = jnp.full((batch, steps, self.width), _QUERY)  # u^1
        for k in range(self.hops):
            query = u
            u, p = self._hop(u, ax, cx, mask)
            # The record leaves out carried tokens. If there are any, it has no details.
            sow_attention(
                self,
                p[:, None, :, -steps:],
                partial(self._details, query, ax, mask) if carry is None else None,
                kind="memory",
                layer=k,
                queries="tokens",
                keys="tokens",
            )
        u = self.drop(u, deterministic=not train)
        return logits(u, self.w), text[:, steps:]

    def _hop(
        self, u: jax.Array, ax: jax.Array, cx: jax.Array, mask: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """One hop of all tokens: u^(k+1) [B, T, D] and p^k [B, T, N - 1 + T]."""
        # u m_i = u A x_i + u T_A(t - i)
        scores = window_of(u @ jnp.swapaxes(ax, 1, 2), self.memory) + u @ self.t_a.T
        p = masked_softmax(scores, mask)  # [B, T, N]
        weights = from_window(p, ax.shape[1])
        o = weights @ cx + p @ self.t_c  # sum_i p_i (C x_i + T_C(t - i))
        u = u @ self.h + o
        identity = jnp.arange(self.width) < self.width // 2
        return jnp.where(identity, u, nn.relu(u)), weights  # f(H u + o)

    def _details(
        self, u: jax.Array, ax: jax.Array, mask: jax.Array
    ) -> ScoreDetails | None:
        """Parts of the scores u A x_i + u T_A(t - i) of the tokens of whole texts."""
        steps, columns = u.shape[1], ax.shape[1]
        bias, inside = (
            from_window(x, columns)[:, None, :, -steps:] for x in (u @ self.t_a.T, mask)
        )
        parts = ScoreParts(u[:, None], ax[:, None, -steps:], bias=bias)
        return score_details(parts, inside)


def window_of(x: jax.Array, size: int) -> jax.Array:
    """Selects columns t to t + N - 1 of row t.

    Args:
        x: [..., T, N - 1 + T].
        size: N.

    Returns:
        [..., T, N].
    """
    *batch, rows, columns = x.shape
    # Rows that are longer by one shift each next row by one column.
    flat = x.reshape(*batch, rows * columns)
    flat = jnp.pad(flat, [*[(0, 0)] * len(batch), (0, rows)])
    return flat.reshape(*batch, rows, columns + 1)[..., :size]


def from_window(x: jax.Array, columns: int) -> jax.Array:
    """Inverse of `window_of`, with 0 elsewhere.

    Args:
        x: [..., T, N].
        columns: N - 1 + T.

    Returns:
        [..., T, N - 1 + T].
    """
    *batch, rows, size = x.shape
    # The same shift by reshaping, backwards.
    x = jnp.pad(x, [*[(0, 0)] * (len(batch) + 1), (0, columns + 1 - size)])
    flat = x.reshape(*batch, -1)[..., : rows * columns]
    return flat.reshape(*batch, rows, columns)
