"""Language models with one interface: LSTMN, LSTM, Transformer, memory network.

`model(tokens, carry, train=...)` returns the logits of the next token at each position,
and the carry for the next part of the text; `model.start(batch)` is the carry at the
beginning of a text. Reading a text token by token gives the same logits as reading it
whole.

LSTMN: Cheng, Dong and Lapata (2016), sections 3 and 5.1. Skip connections feed the
embedded token to every layer, in addition to the output of the layer below (Graves
2013). The LSTM has the same skip connections. The Transformer is the decoder of Vaswani
et al. (2017) without a source, with pre-norm and relative or other positions; it
carries the previous `memory` tokens, and encodes them again. The memory network is that
of Sukhbaatar et al. (2015), section 5; it also carries previous tokens.

Axes: B batch; T tokens; P carried tokens; C width of an embedding; D width of a state;
N memory slots; W vocabulary.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import Attention
from attention.fast.relative import relative_scores, relative_values
from attention.fast.softmax import attend
from attention.masks import causal_mask, padding_mask, window_mask
from attention.positions import sinusoids
from attention.scores import dot_scores
from base.errors import FieldError
from base.ranges import FRACTION, LAYERS, POSITIVE, SIZE
from models.attention import Aligned
from models.cells import CELLS, run_cell, time_first
from models.layers import PAD, Dropout, LayerNorm, check_fields, logits
from models.lstmn import SCORES, LSTMNLayer, State
from models.memory_network import hop
from models.recurrent import STANDARD, Gates, StateWeights
from models.transformer import EncoderLayer

_QUERY = 0.1  # u^1 of a memory network, the same for every unit


class LSTMLayer(nn.Module):
    """LSTM layer with the interface of `LSTMNLayer`.

    Attributes:
        features: D.
    """

    features: int

    @nn.compact
    def __call__(
        self, x: jax.Array, state: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the outputs [B, T, D] of x [B, T, C], and the state [B, 2 D].

        None is the state at the beginning of the texts.
        """
        if state is None:
            state = jnp.zeros((len(x), 2 * self.features), x.dtype)
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
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # values of text fields

    @nn.nowrap
    def layer(self, number: int) -> Any:
        """Returns layer `number`, counted from 0."""
        raise NotImplementedError

    @nn.nowrap
    def state(self, batch: int) -> Any:
        """Returns the state of a layer before the first token of B texts."""
        raise NotImplementedError

    def setup(self):
        check_fields(self, self.choices)
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
            carry: that of the preceding part; None at the beginning of the texts.
            train: whether dropout is on (RNG stream "dropout").

        Returns:
            [B, T, W] logits of the next tokens, and the carry.
        """
        carry = (None,) * self.layers if carry is None else carry
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
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"score": tuple(SCORES)}

    @nn.nowrap
    def layer(self, number: int) -> LSTMNLayer:
        """Returns layer `number`."""
        return LSTMNLayer(
            features=self.hidden,
            memory=self.memory,
            score=self.score,
            score_hidden=self.score_hidden,
            layer=number,
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
        valid = jnp.concatenate([past != PAD, jnp.ones(tokens.shape, bool)], 1)
        mask = causal_mask(length, length) & padding_mask(valid)
        x = self.table[every] * self.d_model**0.5
        if self.positions == "sinusoidal":
            x += sinusoids(length, self.d_model)
        x = self.drop(x, train=train)
        for layer in self.stack:
            x = layer(x, mask[:, None], train=train)
        x = self.norm(x[:, past.shape[1] :])
        every = jnp.concatenate([self.start(len(tokens)), every], 1)
        return logits(x, self.output), every[:, -self.memory :]


class MemoryNetworkLanguageModel(nn.Module):
    """End-to-end memory network on text: Sukhbaatar et al. (2015), section 5.

    The memory of token t is the N tokens up to t, itself included, with a temporal
    encoding of their distance, from 0 to N - 1:

        m_i = A x_i + T_A(t - i),  c_i = C x_i + T_C(t - i),  u^1 = (0.1, ..., 0.1)
        p^k = softmax(u^k m),  u^(k+1) = f(H u^k + sum_i p_i^k c_i)
        next token = softmax(W u^(K+1))

    f is ReLU on the second half of the units and the identity on the others. All hops
    have the same A, C and H (layer-wise tying). The defaults are the paper's.

    T_A and T_C are implemented as relative position representations (Shaw et al. 2018),
    so that all tokens attend at once, without a copy of the memory for each token.

    Sows an `AttentionRecord` [B, 1, T, T] of each hop, kind "memory".

    Differs from the paper: memories at the beginning of a text have fewer than N
    tokens; dropout is optional.

    Attributes:
        vocab_size: W.
        width: D.
        hops: K.
        memory: N.
        init_scale: standard deviation of the initial parameters.
        dropout: dropout rate of A x, C x and u^(K+1).

    Raises:
        FieldError: at the first call, for a field that is out of range.
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
        self.memory_embedding = self.param("memory_embedding", init, words)  # A
        self.output_embedding = self.param("output_embedding", init, words)  # C
        self.memory_times = self.param("memory_times", init, times)  # T_A
        self.output_times = self.param("output_times", init, times)  # T_C
        self.state_kernel = self.param("state_kernel", init, (self.width,) * 2)  # H
        self.output = self.param("output", init, words)  # W
        self.drop = Dropout(self.dropout)

    @nn.nowrap
    def start(self, batch: int) -> jax.Array:
        """Returns the carry before the first token of B texts: no tokens [B, N - 1]."""
        return jnp.full((batch, self.memory - 1), PAD, jnp.int32)

    def __call__(
        self, tokens: jax.Array, carry: jax.Array | None = None, *, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Reads a part of each text; see `RecurrentLanguageModel`."""
        batch, length = tokens.shape
        past = tokens[:, :0] if carry is None else carry
        every = jnp.concatenate([past, tokens], 1)  # [B, P + T]
        read = self._memories(every, past.shape[1], train)
        state = jnp.full((batch, length, self.width), _QUERY)
        linear = jnp.arange(self.width) < self.width // 2
        for number in range(self.hops):
            state, weights = hop(state, read, self.state_kernel)
            state = jnp.where(linear, state, nn.relu(state))
            names = dict(kind="memory", queries="tokens", keys="tokens")
            weights = weights[:, None, :, past.shape[1] :]
            Aligned(weights).record(self, layer=number, **names)
        state = self.drop(state, train=train)
        every = jnp.concatenate([self.start(batch), every], 1)
        carry = every[:, every.shape[1] - self.memory + 1 :]
        return logits(state, self.output), carry

    def _memories(
        self, every: jax.Array, first: int, train: bool
    ) -> Callable[[jax.Array], Attention]:
        """Attention of the states of tokens from `first` on to their memories.

        Args:
            every: int [B, P + T] tokens.
            first: P, number of carried tokens, which are memories only.
            train: whether dropout is on.

        Returns:
            u^k [B, T, D] -> o^k [B, T, D] and weights [B, T, P + T].
        """
        length = every.shape[1]
        tables = (self.memory_embedding, self.output_embedding)
        key, value = (self.drop(table[every], train=train) for table in tables)
        position = jnp.arange(first, length)
        mask = causal_mask(length - first, length, first)
        mask &= window_mask(position, length, self.memory - 1)
        mask &= padding_mask(every != PAD)  # [B, T, P + T]
        # A table of relative positions has an odd number of rows, for distances from
        # its centre: here the middle of the memory, k tokens before the current one.
        k = self.memory // 2
        extra = [(2 * k + 1 - self.memory, 0), (0, 0)]
        times = (self.memory_times, self.output_times)
        key_times, value_times = (jnp.pad(table[::-1], extra) for table in times)

        def read(state: jax.Array) -> Attention:
            scores = dot_scores(state, key)
            scores += relative_scores(state, key_times, length, first - k)
            context, weights = attend(scores, value, mask=mask)
            context += relative_values(weights, value_times, first - k)
            return Attention(context, weights)

        return read
