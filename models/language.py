"""Language models: LSTMN, LSTM and causal Transformer, with one interface.

`model(tokens, carry, train=...)` returns the logits of each token's successor, and what
the model carries to the next part of the text; `model.start(batch)` is the carry at the
beginning of a text. Reading a text token by token equals reading it whole.

LSTMN: Cheng, Dong and Lapata (2016), sections 3 and 5.1. Skip connections feed the
embedded token to every layer, besides the output of the layer below (Graves 2013). The
LSTM has the same skip connections. The Transformer is the decoder of Vaswani et al.
(2017) without a source, with pre-norm and relative or other positions; it carries the
previous `memory` tokens, and encodes them again.

Axes: B batch; T tokens; P carried tokens; C width of an embedding; D width of a state;
W vocabulary.
"""

from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.masks import causal_mask, padding_mask
from attention.positions import sinusoids
from errors import FieldError
from models.cells import CELLS, run_cell, time_first
from models.layers import PAD, Dropout, LayerNorm, check_fields, logits
from models.lstmn import SCORES, LSTMNLayer, State
from models.recurrent import STANDARD, Gates, StateWeights
from models.transformer import EncoderLayer
from ranges import FRACTION, LAYERS, SIZE


class LSTMLayer(nn.Module):
    """A layer of LSTM with the interface of `LSTMNLayer`.

    Attributes:
        features: D.
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the outputs [B, T, D] of x [B, T, C], and the state [B, 2 D]."""
        gates = Gates("lstm", self.features, STANDARD, name="input")(x)
        u = StateWeights("lstm", self.features, STANDARD, name="state")()
        return run_cell(CELLS["lstm"], time_first(gates), state, u)


class RecurrentLanguageModel(nn.Module):
    """Base class of language models with stacked recurrent layers.

    Attributes:
        vocab_size: W.
        embedding: C.
        hidden: D.
        layers: number of layers.
        skip: whether the embedded token also enters the layers after the first.
        dropout: dropout rate of embeddings and of the output of each layer.

    Raises:
        FieldError: at the first call, for a field that is out of range.
    """

    vocab_size: Annotated[int, SIZE]
    embedding: Annotated[int, SIZE] = 150
    hidden: Annotated[int, SIZE] = 300
    layers: Annotated[int, LAYERS] = 1
    skip: bool = True
    dropout: Annotated[float, FRACTION] = 0.0

    attends: ClassVar[bool] = False

    @nn.nowrap
    def layer(self, number: int) -> Any:
        """Returns layer `number`, from 0."""
        raise NotImplementedError

    @nn.nowrap
    def state(self, batch: int) -> Any:
        """Returns the state of a layer before the first token of B texts."""
        raise NotImplementedError

    def setup(self):
        check_fields(self, {"score": tuple(SCORES)} if hasattr(self, "score") else {})
        init = STANDARD.embedding
        self.table = self.param(
            "embedding_table", init, (self.vocab_size, self.embedding)
        )
        self.output = self.param("output", init, (self.vocab_size, self.hidden))
        self.bias = self.param("bias", nn.initializers.zeros, (self.vocab_size,))
        self.stack = [self.layer(number) for number in range(self.layers)]
        self.drop = Dropout(self.dropout)

    @nn.nowrap
    def start(self, batch: int) -> tuple[Any, ...]:
        """Returns the carry before the first token of B texts, one state per layer."""
        return (self.state(batch),) * self.layers

    def __call__(
        self, tokens: jax.Array, carry: Any = None, *, train: bool
    ) -> tuple[jax.Array, tuple[Any, ...]]:
        """Reads a part of each text.

        Args:
            tokens: int [B, T].
            carry: of the preceding part; None at the beginning of the texts.
            train: whether dropout is on (RNG stream "dropout").

        Returns:
            [B, T, W] logits of the next tokens, and the carry.
        """
        carry = self.start(len(tokens)) if carry is None else carry
        embedded = self.drop(self.table[tokens], train=train)
        x, states = embedded, []
        for number, (layer, state) in enumerate(zip(self.stack, carry, strict=True)):
            if number and self.skip:
                x = jnp.concatenate([x, embedded], -1)
            x, state = self.read(layer, x, state)
            x = self.drop(x, train=train)
            states.append(state)
        return logits(x, self.output) + self.bias, tuple(states)

    def read(self, layer: Any, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        """Applies a layer: outputs [B, T, D] and the next state."""
        return layer(x, state)


class LSTMLanguageModel(RecurrentLanguageModel):
    """Language model of LSTM layers; see `RecurrentLanguageModel`."""

    @nn.nowrap
    def layer(self, number: int) -> LSTMLayer:
        """Returns layer `number`."""
        return LSTMLayer(self.hidden)

    @nn.nowrap
    def state(self, batch: int) -> jax.Array:
        """Returns the state [B, 2 D] of a layer before the first token."""
        return jnp.zeros((batch, 2 * self.hidden))


class LSTMNLanguageModel(RecurrentLanguageModel):
    """Language model of LSTMN layers: Cheng et al. (2016), section 5.1.

    The defaults of `RecurrentLanguageModel` are the paper's.

    Attributes:
        memory: K, the number of slots of a tape.
        score: a key of `models.lstmn.SCORES`; "additive" in the paper.
        score_hidden: hidden width of the score.
    """

    memory: Annotated[int, SIZE] = 50
    score: str = "additive"
    score_hidden: Annotated[int, SIZE] = 300

    attends: ClassVar[bool] = True

    @nn.nowrap
    def layer(self, number: int) -> LSTMNLayer:
        """Returns layer `number`."""
        return LSTMNLayer(
            self.hidden, self.memory, self.score, self.score_hidden, number
        )

    @nn.nowrap
    def state(self, batch: int) -> State:
        """Returns the state of a layer before the first token."""
        return State.start(batch, self.memory, self.hidden)

    def read(self, layer: Any, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        """Applies a layer: outputs [B, T, D] and the next state."""
        tape, state = layer(x, state)
        return tape.key, state


class TransformerLanguageModel(nn.Module):
    """Causal Transformer with pre-norm; see the module docstring.

    Sows an `AttentionRecord` of each layer, kind "decoder".

    Attributes:
        vocab_size: W.
        d_model: C; a multiple of `heads`.
        heads: number of heads.
        layers: number of layers.
        d_ff: hidden width of the feed-forward blocks.
        memory: P, number of previous tokens that are carried.
        positions: "sinusoidal", "relative" or "rotary".
        max_distance: clipping distance of relative positions.
        dropout: dropout rate.

    Raises:
        FieldError: at the first call, for a field that is out of range.
    """

    vocab_size: Annotated[int, SIZE]
    d_model: Annotated[int, SIZE] = 128
    heads: Annotated[int, SIZE] = 4
    layers: Annotated[int, LAYERS] = 2
    d_ff: Annotated[int, SIZE] = 512
    memory: Annotated[int, SIZE] = 50
    positions: str = "relative"
    max_distance: Annotated[int, SIZE] = 50
    dropout: Annotated[float, FRACTION] = 0.0

    attends: ClassVar[bool] = True

    def setup(self):
        check_fields(self, {"positions": ("sinusoidal", "relative", "rotary")})
        if self.d_model % self.heads:
            accepted = f"a divisor of d_model, which is {self.d_model}"
            raise FieldError("heads", self.heads, accepted)
        init = nn.initializers.normal(self.d_model**-0.5)
        shape = (self.vocab_size, self.d_model)
        self.table = self.param("embedding_table", init, shape)
        self.output = self.param("output", init, shape)
        attention = dict(
            features=self.d_model,
            heads=self.heads,
            max_distance=self.max_distance if self.positions == "relative" else None,
            rotary=self.positions == "rotary",
            dtype=jnp.float32,
            kind="decoder",
            queries="tokens",
            keys="tokens",
        )
        block = dict(d_ff=self.d_ff, norm="pre", rate=self.dropout)
        self.stack = [
            EncoderLayer(attention | dict(layer=number), **block)
            for number in range(self.layers)
        ]
        self.norm, self.drop = LayerNorm(), Dropout(self.dropout)

    @nn.nowrap
    def start(self, batch: int) -> jax.Array:
        """Returns the carry before the first token of B texts: no tokens [B, P]."""
        return jnp.full((batch, self.memory), PAD, jnp.int32)

    def __call__(
        self, tokens: jax.Array, carry: jax.Array | None = None, *, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Reads a part of each text; see `RecurrentLanguageModel`."""
        past = tokens[:, :0] if carry is None else carry
        every = jnp.concatenate([past, tokens], 1)  # [B, P + T]
        length = every.shape[1]
        read = jnp.concatenate([past != PAD, jnp.ones(tokens.shape, bool)], 1)
        mask = causal_mask(length, length) & padding_mask(read)
        x = self.table[every] * self.d_model**0.5
        if self.positions == "sinusoidal":
            x += sinusoids(length, self.d_model)
        x = self.drop(x, train=train)
        for layer in self.stack:
            x = layer(x, mask[:, None], train=train)
        x = self.norm(x[:, past.shape[1] :])
        every = jnp.concatenate([self.start(len(tokens)), every], 1)
        return logits(x, self.output), every[:, -self.memory :]
