"""Captions: Show, Attend and Tell with soft or hard attention, and Show and Tell.

Xu et al. (2015), section 3.1: a convolutional encoder annotates the places of a
picture; an LSTM looks at them with its last state h_{t-1}, and what it finds, times a
gate beta_t ("selector", section 4.2.1), enters its gates and, with h_t and the last
word, the readout (eq. 7). The alignment is soft ("global", section 4.2), hard (4.1,
learned by REINFORCE in the task), or any other one by name. Vinyals et al., Show and
Tell (2015): no attention, the picture is the LSTM's first input.

What differs from the papers: the encoder is a small one that learns along, or maps that
were made before; there is a tanh around the sum of the readout, as in Xu's code; the
states start from one layer of the mean annotation, where that code has two; the
additive score is Bahdanau's, without a bias; an embedding, annotations and a readout
have dropout by field, its rate rounded to a multiple of 1/256. Show and Tell sees the
mean of all places, and its readout is that of Xu et al. without a context.

Axes: those of `models.recurrent`; I, J rows and columns of a map; S = I J places, row
by row; C width of an embedding; E width of an annotation.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.attention import DRAWN
from models.convolutions import blocks
from models.layers import Dense, Dropout, LayerNorm, logits
from models.recurrent import CELLS, Init, Stack, uniform_init
from models.recurrent_translator import (
    AttentiveTranslator,
    Carry,
    Memory,
    RecurrentTranslator,
    Step,
)

ENCODERS = ("cnn", "maps")


class PictureEncoder(nn.Module):
    """Annotates pictures: a few convolutions, or one layer on given maps.

    Attributes:
        encoder: "cnn", of pictures, or "maps", of what another network made of them.
        channels: of a layer that makes a place of 4 x 4 pixels, and of others that make
            one of 2 x 2 places; then two convolutions of 3 x 3 and as many channels as
            the last one, E. For maps E alone.
        dropout: of the annotations.
    """

    encoder: str
    channels: tuple[int, ...]
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Annotates.

        Args:
            x: uint8 pictures [B, rows, columns, 3], or float maps [B, I, J, any].
            train: whether dropout is on.

        Returns:
            float32 [B, I J, E].
        """
        if self.encoder == "maps":
            x = Dense(self.channels[-1], name="project")(x.astype(jnp.float32))
        else:
            x = x.astype(jnp.float32) / 127.5 - 1
            init = nn.initializers.he_normal()
            for number, width in enumerate(self.channels):
                x = Dense(width, kernel_init=init)(blocks(x, 2 if number else 4))
                # Of a place's channels, so that a place shows what is there.
                x = nn.relu(LayerNorm()(x))
            for _ in range(2):
                x = nn.Conv(self.channels[-1], (3, 3), kernel_init=init)(x)
                x = nn.relu(LayerNorm()(x))
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        return Dropout(self.dropout)(x, train=train)


class _Captioner(RecurrentTranslator):
    """What both captioners share; batches have the pictures as `source`."""

    encoder: str
    channels: tuple[int, ...]

    share_embeddings: ClassVar[bool] = True  # there is one vocabulary
    paper_init: ClassVar[Init] = uniform_init(0.08)
    choices: ClassVar = {"encoder": ENCODERS}

    def setup(self):
        """Creates encoder, LSTM and readout."""
        super().setup()
        if not self.channels or min(self.channels) < 1:
            raise ValueError(f"channels is {self.channels}: must be some, at least 1")
        inits = self.inits
        self.annotate = PictureEncoder(self.encoder, self.channels, self.dropout)
        self.stack = Stack(self.cell, self.hidden, 1, self.dropout, inits)
        self.from_state = Dense(self.embedding, kernel_init=inits.kernel)
        shape = (self.vocab_size, self.embedding)
        self.output = self.param("output", inits.embedding, shape)

    def _logits(self, units, train):
        return logits(self.drop(nn.tanh(units), train=train), self.output)


class ShowAttendTell(_Captioner, AttentiveTranslator):
    """A captioner with attention; see the module's docstring.

    Attributes:
        encoder: see `PictureEncoder`.
        channels: the same.
        selector: whether what is found is multiplied by beta_t.
        expected: share of the batches in training in which a hard alignment's draw is
            replaced by its expectation, the soft weights: 0.5 in the authors' code, and
            of the pictures in section 4.1. A variable `expected` of the collection
            "schedule" takes its place.

    The others are those of `AttentiveTranslator`; the paper has an LSTM and "additive"
    scores.
    """

    selector: bool
    expected: float

    choices: ClassVar = AttentiveTranslator.choices | _Captioner.choices

    def setup(self):
        """Creates what this captioner has."""
        super().setup()
        if not 0 <= self.expected <= 1:
            raise ValueError(f"expected is {self.expected}: must be in [0, 1]")
        inits, cell = self.inits, CELLS[self.cell]
        self.bridge = Dense(cell.states * self.hidden, kernel_init=inits.kernel)
        shape = (self.channels[-1], cell.gates * self.hidden)
        self.context = self.param("context", inits.kernel, shape)
        self.from_context = Dense(
            self.embedding, kernel_init=inits.kernel, use_bias=False
        )
        if self.selector:
            self.beta = self.param("beta", inits.kernel, (self.hidden, 1))
            self.beta_bias = self.param("beta_bias", nn.initializers.zeros, (1,))

    def encode(self, source: jax.Array, *, train: bool = False) -> Memory:
        """Annotates pictures [B, rows, columns, 3], or maps: section 3.1.1."""
        annotations = self.annotate(source, train=train)
        mask = jnp.ones(annotations.shape[:2], bool)
        keys = self.cross_attention.project(annotations)
        # Section 3.1.2: of the mean annotation.
        start = nn.tanh(self.bridge(annotations.mean(1)))
        return Memory(annotations, mask, keys, annotations, (start,))

    def weights(self, memory: Memory) -> dict[str, jax.Array]:
        """What a step multiplies by: U, the annotations, W for what is found."""
        found = {"annotations": memory.annotations, "context": self.context}
        found |= {"beta": self.beta} if self.selector else {}
        return found | self.stack.weights()

    def shared(self, memory: Memory) -> Any:
        """What a step reads besides; in training whether the draw is replaced."""
        soft = None
        if self.alignment in DRAWN and self.has_rng("alignment"):
            share = self.get_variable("schedule", "expected", self.expected)
            soft = jax.random.bernoulli(self.make_rng("alignment"), share)
        bias = self.beta_bias if self.selector else None
        return *super().shared(memory), bias, soft

    @nn.nowrap
    def advance(self, product, shared, carry, x):
        """alpha_t = align(a, h_{t-1}), z_t = beta_t sum_i alpha_ti a_i: eqs. 1-6."""
        (gates, noise, rng), (source, biases, beta_bias, soft) = x, shared
        query = carry.states[0][..., : self.hidden]
        found = self.cross_attention.look(*source, query, carry.time, rng, soft)
        context = product(found.weights, "annotations")
        if self.selector:
            context *= nn.sigmoid(product(query, "beta") + beta_bias)
        gates = gates + product(context, "context")
        states, output = self.stack.advance(product, biases, carry.states, gates, noise)
        return Carry(carry.time + 1, states), Step(output, found, context)

    def readout(self, embedded, step, memory, *, train):
        """L_o tanh(E y_{t-1} + L_h h_t + L_z z_t): eq. 7."""
        state = self.drop(step.state, train=train)
        units = embedded + self.from_state(state) + self.from_context(step.context)
        return self._logits(units, train)


class ReadPicture(NamedTuple):
    """What an LSTM carries out of a picture."""

    start: tuple[jax.Array, ...]  # [B, states D]


class ShowAndTell(_Captioner):
    """A captioner without attention: Vinyals et al. (2015); the module says more.

    Attributes:
        encoder: see `PictureEncoder`.
        channels: the same.

    The others are those of `RecurrentTranslator`.
    """

    alignment: ClassVar[str] = ""

    def setup(self):
        """Creates what this captioner has."""
        super().setup()
        shape = (self.channels[-1], self.embedding)
        self.picture = self.param("picture", self.inits.kernel, shape)

    def encode(self, source: jax.Array, *, train: bool = False) -> ReadPicture:
        """Reads a picture, or a map, as the word before the first: eq. 10."""
        annotations = self.annotate(source, train=train)
        gates = self.gates(annotations.mean(1) @ self.picture)
        none = jnp.zeros((len(gates), CELLS[self.cell].states * self.hidden))
        weights = self.stack.weights()
        states, _ = self.stack.advance(
            lambda x, name: x @ weights[name], self.stack.biases(), (none,), gates, None
        )
        return ReadPicture(states)

    def weights(self, memory: ReadPicture) -> dict[str, jax.Array]:
        """What a step multiplies by: the matrices U."""
        return self.stack.weights()

    def shared(self, memory: ReadPicture) -> Any:
        """What a step reads besides."""
        return self.stack.biases()

    @nn.nowrap
    def advance(self, product, biases, carry, x):
        """A step of the LSTM."""
        gates, noise, _ = x
        states, output = self.stack.advance(product, biases, carry.states, gates, noise)
        return Carry(carry.time + 1, states), Step(output)

    def readout(self, embedded, step, memory, *, train):
        """L_o tanh(E y_{t-1} + L_h h_t)."""
        state = self.drop(step.state, train=train)
        return self._logits(embedded + self.from_state(state), train)
