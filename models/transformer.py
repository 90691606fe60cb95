"""The Transformer of Vaswani et al. (2017), encoder and decoder, section 3.

As published: post-norm, sinusoidal positions, one embedding matrix for source, target
and output, multiplied by sqrt(C) at the inputs, dropout on the sums of embeddings and
positions and on the output of each sub-layer, no biases in the attention projections.
Optional: pre-norm (with a final norm after each stack), learned positions, the relative
positions of Shaw et al. (2018) or the rotary ones of Su et al. (2021) instead of
absolute ones, any score in any of the three attentions, any alignment in
cross-attention.

Axes: B batch; S source positions; T target steps; C width of the model; H heads; D
width of a head; W vocabulary; R hypotheses that share one source; L maximum decoded
length.
"""

from typing import Annotated, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS
from attention.masks import causal_mask, padding_mask, segment_mask
from attention.positions import learned_positions, sinusoids
from attention.scores import SCORES
from base.ranges import COUNT, FRACTION, LAYERS, SCALE, SIZE, Choice
from models.layers import (
    BOS,
    EOS,
    PAD,
    Dense,
    Dropout,
    LayerNorm,
    check_fields,
    logits,
)
from models.multi_head import (
    Cache,
    CrossAttention,
    ProjectedMemory,
    SelfAttention,
    check_heads,
)
from models.sharding import TRANSFORMER

_SCORE = Choice(SCORES)


class TransformerMemory(NamedTuple):
    """An encoded source, projected once for all decoder layers."""

    layers: tuple[ProjectedMemory, ...]  # [B, H, S, D] each
    mask: jax.Array  # [B, S] bool, False at padding


class TransformerCarry(NamedTuple):
    """State of step-by-step decoding."""

    time: jax.Array  # int scalar, from 0
    path: jax.Array  # [B, R, L] int; see `SelfAttention.step`
    caches: tuple[Cache, ...]  # per layer

    def take(self, parents: jax.Array) -> "TransformerCarry":
        """Returns the state whose row r continues row `parents[b, r]` of this one."""
        # Only the paths are reordered, never the caches.
        path = jnp.take_along_axis(self.path, parents[..., None], axis=1)
        return self._replace(path=path)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2: Vaswani et al. (2017), eq. 2."""

    hidden: int = 2048
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        hidden = nn.relu(Dense(self.hidden, self.dtype, name="in")(x))
        return Dense(x.shape[-1], self.dtype, name="out")(hidden)


class Residual(nn.Module):
    """Residual connection, dropout and layer norm around a sub-layer: section 3.1.

    `after(x, f(before(x)))` is LN(x + Dropout(f(x))) with post-norm, and
    x + Dropout(f(LN(x))) with pre-norm.
    """

    norm: str
    rate: float

    def setup(self):
        self.layer_norm = LayerNorm()
        self.dropout = Dropout(self.rate)

    def before(self, x: jax.Array) -> jax.Array:
        """Returns the input [B, T, C] of the sub-layer."""
        return self.layer_norm(x) if self.norm == "pre" else x

    def after(self, x: jax.Array, y: jax.Array, *, train: bool) -> jax.Array:
        """Adds the sub-layer's output y [B, T, C] to x."""
        x = x + self.dropout(y, deterministic=not train)
        return x if self.norm == "pre" else self.layer_norm(x)


class Layer(nn.Module):
    """Self-attention, cross-attention and feed-forward: section 3.1.

    Attributes:
        self_attention, feed_forward: sub-layers.
        norm: "post" or "pre".
        rate: dropout rate.
        cross_attention: sub-layer of a decoder; None in an encoder.
    """

    self_attention: SelfAttention
    feed_forward: FeedForward
    norm: str
    rate: float
    cross_attention: CrossAttention | None = None

    def setup(self):
        count = 2 if self.cross_attention is None else 3
        self.residuals = [Residual(self.norm, self.rate) for _ in range(count)]

    def __call__(
        self,
        x: jax.Array,
        mask: jax.Array,
        source: ProjectedMemory | None = None,
        source_mask: jax.Array | None = None,
        *,
        train: bool,
    ) -> jax.Array:
        """Maps [B, T, C] to [B, T, C].

        Args:
            x: [B, T, C].
            mask: mask of self-attention, bool, broadcasts to [B, H, T, T].
            source: from `CrossAttention.project_memory`, in a decoder.
            source_mask: mask of cross-attention, bool, broadcasts to [B, H, T, S].
            train: whether dropout is on.
        """
        first, time = self.residuals[0], jnp.arange(x.shape[1])
        # Concat(head_1, ..., head_H) W^O, head_i = softmax(Q_i K_i^T / sqrt(D)) V_i
        y, _ = self.self_attention(first.before(x), mask)
        x = first.after(x, y, train=train)  # post-norm: LN(x + SelfAttention(x))
        x, _ = self._after_self_attention(x, source, source_mask, time, train=train)
        return x

    def step(
        self,
        x: jax.Array,
        cache: Cache,
        time: jax.Array,
        path: jax.Array,
        source: ProjectedMemory,
        source_mask: jax.Array,
    ) -> tuple[jax.Array, Cache, jax.Array]:
        """Computes one decoding step [B, R, C] of R hypotheses per source.

        For `source` and `source_mask` see `__call__`; the other arguments are those of
        `SelfAttention.step`.

        Returns:
            Output [B, R, C], the cache including this step, and the cross-attention
            weights [B, H, R, S].
        """
        first = self.residuals[0]
        y, cache = self.self_attention.step(first.before(x), cache, time, path)
        x = first.after(x, y, train=False)  # post-norm: LN(x + SelfAttention(x))
        x, weights = self._after_self_attention(
            x, source, source_mask, time, train=False
        )
        return x, cache, weights

    def _after_self_attention(
        self,
        x: jax.Array,
        source: ProjectedMemory | None,
        mask: jax.Array | None,
        time: jax.Array,
        *,
        train: bool,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the layer's output, and the weights of cross-attention, if any.

        The comments are of post-norm.
        """
        weights = None
        if self.cross_attention is not None:
            second = self.residuals[1]
            # head_i = softmax(Q_i K_i^T / sqrt(D)) V_i, with K and V of the source
            y, weights = self.cross_attention.read(second.before(x), source, mask, time)
            x = second.after(x, y, train=train)  # LN(x + CrossAttention(x))
        last = self.residuals[-1]
        y = self.feed_forward(last.before(x))
        return last.after(x, y, train=train), weights  # LN(x + FFN(x))


class Transformer(nn.Module):
    """Transformer encoder-decoder; see the module's docstring.

    Batches are dicts of int32 `source` [B, S] and `target` [B, T], ids 0 = padding,
    1 = BOS, 2 = EOS; both end in EOS, and BOS is added here. A row may pack several
    sentences, each ending in EOS. Then sentence i of the target attends only to itself
    and to sentence i of the source, and each sentence's positions start at 0.

    Attributes:
        vocab_size: W, size of the joint vocabulary.
        d_model: C, width of the model; a multiple of `heads`.
        heads: H, number of heads.
        encoder_layers: number of layers of the encoder, the paper's N.
        decoder_layers: number of layers of the decoder, the paper's N.
        d_ff: hidden width of the feed-forward blocks.
        dropout: dropout rate, the paper's P_drop.
        norm: place of the layer norms: "post", as published, or "pre".
        positions: encoding of positions: "sinusoidal", "learned", "relative", "rotary"
            or "none".
        max_distance: k, the clipping distance of relative positions.
        max_length: maximum sequence length of learned positions and the location score.
        encoder_score: score of the encoder's self-attention; see `attention.scores`.
        decoder_score: score of the decoder's self-attention.
        cross_score: score of the attention to the source.
        cross_alignment: alignment of the attention to the source; see
            `attention.alignments`. Local ones need one sentence per row.
        score_hidden: hidden width of a score that has one, and of the position of
            local-p.
        window: half-width of a local alignment's window in positions.
        temperature: temperature of the Gumbel alignment.
        share_embeddings: whether source, target and output share one matrix.
        dtype: dtype of matrix products; parameters, softmax, norms and loss stay
            float32.
    """

    vocab_size: Annotated[int, SIZE]
    d_model: Annotated[int, SIZE] = 512
    heads: Annotated[int, SIZE] = 8
    encoder_layers: Annotated[int, LAYERS] = 6
    decoder_layers: Annotated[int, LAYERS] = 6
    d_ff: Annotated[int, SIZE] = 2048
    dropout: Annotated[float, FRACTION] = 0.1
    norm: Literal["post", "pre"] = "post"
    positions: Literal["sinusoidal", "learned", "relative", "rotary", "none"] = (
        "sinusoidal"
    )
    max_distance: Annotated[int, COUNT] = 16
    max_length: Annotated[int, SIZE] = 256
    encoder_score: Annotated[str, _SCORE] = "scaled_dot"
    decoder_score: Annotated[str, _SCORE] = "scaled_dot"
    cross_score: Annotated[str, _SCORE] = "scaled_dot"
    cross_alignment: Annotated[str, Choice(ALIGNMENTS)] = "global"
    score_hidden: Annotated[int, SIZE] = 64
    window: Annotated[int, SIZE] = 10
    temperature: Annotated[float, SCALE] = 1.0
    share_embeddings: bool = True
    dtype: Literal["float32", "bfloat16"] = "float32"

    packs: ClassVar[bool] = True  # a row of a batch may hold several sentences
    sharding: ClassVar = TRANSFORMER

    @property
    def needs_reinforce(self) -> bool:
        """True if the alignment is hard."""
        return self.cross_alignment == "hard"

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        check_heads(self.d_model, self.heads, rotary=self.positions == "rotary")

    def setup(self):
        check_fields(self)
        if self.share_embeddings:
            shared = self._table("embedding", self.vocab_size)
            self.source_table = self.target_table = self.output_table = shared
        else:
            self.source_table = self._table("source_embedding", self.vocab_size)
            self.target_table = self._table("target_embedding", self.vocab_size)
            self.output_table = self._table("output_embedding", self.vocab_size)
        self.source_positions = self.target_positions = None
        if self.positions == "learned":
            self.source_positions = self._table("source_positions", self.max_length)
            self.target_positions = self._table("target_positions", self.max_length)
        self.embedding_dropout = Dropout(self.dropout)
        self.encoder = [
            self._layer(
                self._self_attention("encoder", n, self.encoder_score, "source")
            )
            for n in range(self.encoder_layers)
        ]
        self.decoder = [
            self._layer(
                self._self_attention("decoder", n, self.decoder_score, "previous"),
                self._cross_attention(n),
            )
            for n in range(self.decoder_layers)
        ]
        if self.norm == "pre":
            self.encoder_norm = LayerNorm()
            self.decoder_norm = LayerNorm()

    def _table(self, name: str, rows: int) -> jax.Array:
        init = nn.initializers.normal(self.d_model**-0.5)
        return self.param(name, init, (rows, self.d_model))

    @nn.nowrap
    def _layer(
        self, attention: SelfAttention, cross: CrossAttention | None = None
    ) -> Layer:
        feed_forward = FeedForward(self.d_ff, jnp.dtype(self.dtype))
        return Layer(attention, feed_forward, self.norm, self.dropout, cross)

    @nn.nowrap
    def _self_attention(
        self, kind: str, layer: int, score: str, tokens: str
    ) -> SelfAttention:
        return SelfAttention(
            features=self.d_model,
            heads=self.heads,
            score=score,
            score_hidden=self.score_hidden,
            max_length=self.max_length,
            max_distance=self.max_distance if self.positions == "relative" else None,
            rotary=self.positions == "rotary",
            dtype=jnp.dtype(self.dtype),
            kind=kind,
            layer=layer,
            queries=tokens,
            keys=tokens,
        )

    @nn.nowrap
    def _cross_attention(self, layer: int) -> CrossAttention:
        return CrossAttention(
            features=self.d_model,
            heads=self.heads,
            score=self.cross_score,
            score_hidden=self.score_hidden,
            max_length=self.max_length,
            alignment=self.cross_alignment,
            window=self.window,
            temperature=self.temperature,
            dtype=jnp.dtype(self.dtype),
            kind="cross",
            layer=layer,
            queries="target",
            keys="source",
        )

    def __call__(self, batch: dict[str, jax.Array], *, train: bool) -> jax.Array:
        """Computes logits [B, T, W]; see `models.encoder_decoder.EncoderDecoder`."""
        source, target = batch["source"], batch["target"]
        memory = self.encode(source, train=train)
        sentence, position = _segments(target)
        previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)))
        previous = jnp.where(position == 0, BOS, previous)
        length = target.shape[1]
        tables = self.target_table, self.target_positions
        x = self._embed(previous, tables, position, length, train=train)
        causal = causal_mask(length, length)
        causal &= segment_mask(sentence, sentence)[:, None]  # [B, 1, T, T]
        mask = segment_mask(sentence, _segments(source)[0])[:, None]  # [B, 1, T, S]
        for layer, projected in zip(self.decoder, memory.layers, strict=True):
            x = layer(x, causal, projected, mask, train=train)
        return self._logits(x)

    def encode(self, source: jax.Array, *, train: bool = False) -> TransformerMemory:
        """Encodes sources [B, S] of int32 ids, padded with 0."""
        sentence, position = _segments(source)
        mask = segment_mask(sentence, sentence)[:, None]  # [B, 1, S, S]
        tables = self.source_table, self.source_positions
        x = self._embed(source, tables, position, source.shape[1], train=train)
        for layer in self.encoder:
            x = layer(x, mask, train=train)
        if self.norm == "pre":
            x = self.encoder_norm(x)
        layers = (layer.cross_attention.project_memory(x) for layer in self.decoder)
        return TransformerMemory(tuple(layers), source != PAD)

    def start(
        self, memory: TransformerMemory, rows: int, length: int
    ) -> TransformerCarry:
        """Returns the state before the first step; `rows` is R, `length` is L."""
        batch = memory.mask.shape[0]
        return TransformerCarry(
            time=jnp.zeros((), jnp.int32),
            path=jnp.zeros((batch, rows, length), jnp.int32),
            caches=tuple(
                layer.self_attention.start(batch, rows, length)
                for layer in self.decoder
            ),
        )

    def step(
        self, carry: TransformerCarry, token: jax.Array, memory: TransformerMemory
    ) -> tuple[TransformerCarry, jax.Array, jax.Array]:
        """Computes one decoding step; see `models.encoder_decoder.EncoderDecoder.step`.

        The weights [B, R, S] are those of the last layer, the mean of its heads.
        """
        path = carry.path.at[:, :, carry.time].set(jnp.arange(token.shape[1]))
        tables = self.target_table, self.target_positions
        x = self._embed(token, tables, carry.time, path.shape[-1], train=False)
        mask = padding_mask(memory.mask)[:, None]
        caches = []
        for layer, cache, source in zip(
            self.decoder, carry.caches, memory.layers, strict=True
        ):
            x, cache, weights = layer.step(
                x,
                cache,
                time=carry.time,
                path=path,
                source=source,
                source_mask=mask,
            )
            caches.append(cache)
        carry = TransformerCarry(carry.time + 1, path, tuple(caches))
        return carry, self._logits(x), weights.mean(1)

    def _embed(
        self,
        ids: jax.Array,
        tables: tuple[jax.Array, jax.Array | None],
        position: jax.Array,
        length: int,
        *,
        train: bool,
    ) -> jax.Array:
        """Embeds ids, E x sqrt(C) + PE with dropout: [B, T, C], sections 3.4 and 3.5.

        Args:
            ids: [B, T].
            tables: of the tokens [W, C], and of learned positions or None.
            position: of each token, [B, T], or a scalar, that of all tokens.
            length: bound of the positions.
            train: whether dropout is on.
        """
        tokens, learned = tables
        x, encodings = tokens[ids] * self.d_model**0.5, None
        if self.positions == "sinusoidal":
            # PE(pos, 2i) = sin(pos / 10000^(2i/C)), and a cosine at 2i + 1
            encodings = sinusoids(length, self.d_model)
        elif self.positions == "learned":
            encodings = learned_positions(learned, min(length, self.max_length))
        x = x if encodings is None else x + encodings[position]
        return self.embedding_dropout(x, deterministic=not train)

    def _logits(self, x: jax.Array) -> jax.Array:
        if self.norm == "pre":
            x = self.decoder_norm(x)
        dtype = jnp.dtype(self.dtype)
        return logits(x.astype(dtype), self.output_table.astype(dtype))


def _segments(ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Each token's sentence index (-1 at padding) and position within the sentence."""
    index = jnp.arange(ids.shape[1])
    after_eos = jnp.pad(ids[:, :-1] == EOS, ((0, 0), (1, 0)))
    start = jax.lax.cummax(jnp.where(after_eos, index, 0), axis=1)
    return jnp.where(ids == PAD, -1, jnp.cumsum(after_eos, axis=1)), index - start
