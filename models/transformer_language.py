"""Transformer language model: the decoder of Vaswani et al. (2017) without a source.

The carry is the previous `memory` tokens, which are encoded again. For the interface,
see `models.lstm_language`.

Differs from the paper: pre-norm; the output matrix is not shared; a choice of
positions; the P carried tokens are encoded again, without the tokens before them, and a
token attends to them and to the earlier tokens of its part.

Axes: B batch; T tokens; P carried tokens; C width of the model; W vocabulary.
"""

from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.masks import causal_mask, padding_mask
from attention.positions import sinusoids
from base.ranges import FRACTION, LAYERS, SIZE
from models.layers import PAD, Dropout, LayerNorm, check_fields, logits
from models.multi_head import SelfAttention, check_heads
from models.transformer import FeedForward, Layer


class TransformerLanguageModel(nn.Module):
    """Causal Transformer with pre-norm; see the module's docstring.

    Sows an `AttentionRecord` of each layer, kind "decoder".

    Attributes:
        vocab_size: W.
        d_model: C, width of the model; a multiple of `heads`.
        heads: number of heads.
        layers: number of layers.
        d_ff: hidden width of the feed-forward blocks.
        memory: P, number of previous tokens that are carried.
        positions: encoding of positions: "sinusoidal", "relative" or "rotary".
        max_distance: clipping distance of relative positions.
        dropout: dropout rate.
    """

    vocab_size: Annotated[int, SIZE]
    d_model: Annotated[int, SIZE] = 128
    heads: Annotated[int, SIZE] = 4
    layers: Annotated[int, LAYERS] = 2
    d_ff: Annotated[int, SIZE] = 512
    memory: Annotated[int, SIZE] = 50
    positions: Literal["sinusoidal", "relative", "rotary"] = "relative"
    max_distance: Annotated[int, SIZE] = 50
    dropout: Annotated[float, FRACTION] = 0.0

    attends: ClassVar[bool] = True

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        check_heads(self.d_model, self.heads, rotary=self.positions == "rotary")

    def setup(self):
        check_fields(self)
        init = nn.initializers.normal(self.d_model**-0.5)
        shape = (self.vocab_size, self.d_model)
        self.table = self.param("embedding_table", init, shape)
        self.output = self.param("output", init, shape)
        # A decoder layer without cross-attention is an encoder layer with a causal
        # mask.
        self.stack = [
            Layer(
                SelfAttention(
                    features=self.d_model,
                    heads=self.heads,
                    max_distance=(
                        self.max_distance if self.positions == "relative" else None
                    ),
                    rotary=self.positions == "rotary",
                    kind="decoder",
                    layer=layer,
                    queries="tokens",
                    keys="tokens",
                ),
                FeedForward(self.d_ff),
                norm="pre",
                rate=self.dropout,
            )
            for layer in range(self.layers)
        ]
        self.norm, self.drop = LayerNorm(), Dropout(self.dropout)

    @nn.nowrap
    def start(self, batch: int) -> jax.Array:
        """Returns the carry before the first token of B texts: no tokens [B, P]."""
        return jnp.full((batch, self.memory), PAD, jnp.int32)

    def __call__(
        self, tokens: jax.Array, carry: jax.Array | None = None, *, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Reads a part of each text; see `models.lstm_language`."""
        past = tokens[:, :0] if carry is None else carry
        text = jnp.concatenate([past, tokens], 1)  # [B, P + T]
        length = text.shape[1]
        valid = jnp.concatenate([past != PAD, jnp.ones(tokens.shape, bool)], 1)
        mask = causal_mask(length, length) & padding_mask(valid)
        x = self.table[text] * self.d_model**0.5
        if self.positions == "sinusoidal":
            position = jnp.maximum(jnp.cumsum(valid, 1) - 1, 0)  # of tokens alone
            x += sinusoids(length, self.d_model)[position]
        x = self.drop(x, deterministic=not train)
        for layer in self.stack:
            x = layer(x, mask[:, None], train=train)
        x = self.norm(x[:, past.shape[1] :])
        text = jnp.concatenate([self.start(len(tokens)), text], 1)
        return logits(x, self.output), text[:, -self.memory :]
