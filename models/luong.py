"""The translators of Luong, Pham and Manning (2015): global and local attention.

Section 3: stacked LSTMs; the decoder looks at the source with its *current* state h_t,
and the attentional vector h~_t = tanh(W_c [c_t; h_t]) makes the prediction and is fed
to the next step.

What differs from the paper: dropout of embeddings, between layers and before the output
matrix, by field, its rate rounded to a multiple of 1/256; biases start at 0; positions
of the local alignments count in the order of the source also where it is read
backwards, and that of local-m stays at the last one where the target is longer. A
bidirectional encoder, which is not the paper's, starts the decoder by a tanh layer. W_c
is cut in two, and its half for the context multiplies the annotations once a source
instead of each context.

Axes: see `models.recurrent`.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.layers import PAD, Dense, logits
from models.recurrent import (
    CELLS,
    Encoder,
    Init,
    Stack,
    uniform_init,
)
from models.recurrent_translator import AttentiveTranslator, Carry, Memory, Step


class Luong(AttentiveTranslator):
    """Encoder-decoder with attention; see the module's docstring.

    Attributes:
        layers: of the encoder and of the decoder; the paper has 4.
        bidirectional: whether the encoder reads in both directions; not so there.
        reverse_source: whether it reads from the last word to the first.
        input_feeding: whether h~_t enters the next step (section 3.3).

    The others are those of `AttentiveTranslator`; the paper's cell is "lstm".
    """

    layers: int
    bidirectional: bool
    reverse_source: bool
    input_feeding: bool

    paper_init: ClassVar[Init] = uniform_init(0.1)  # section 4.1
    positive: ClassVar = (*AttentiveTranslator.positive, "layers")

    def setup(self):
        """Creates what this translator has."""
        super().setup()
        n, inits, common = self.hidden, self.inits, (self.cell, self.hidden)
        self.encoder = Encoder(
            *(*common, self.layers, self.bidirectional, self.reverse_source),
            *(self.dropout, inits),
        )
        if self.bidirectional:
            width = CELLS[self.cell].states * n
            self.bridges = [
                Dense(width, kernel_init=inits.kernel) for _ in range(self.layers)
            ]
        self.stack = Stack(*common, self.layers, self.dropout, inits)
        if self.input_feeding:
            shape = (n, CELLS[self.cell].gates * n)
            self.feed = self.param("feed", inits.kernel, shape)
        self.attend_state = self.param("attend_state", inits.kernel, (n, n))
        shape = (n * (1 + self.bidirectional), n)
        self.attend_context = self.param("attend_context", inits.kernel, shape)
        shape = (self.vocab_size, n)
        self.output = self.param("output", inits.embedding, shape)

    def encode(self, source: jax.Array, *, train: bool = False) -> Memory:
        """Annotates sources [B, S] of int32 ids, padded with 0."""
        mask = source != PAD
        embedded = self._embed(source, train=train, source=True)
        annotations, carries = self.encoder(embedded, mask, train=train)
        if self.bidirectional:
            start = [
                nn.tanh(bridge(jnp.concatenate(carried, axis=-1)))
                for bridge, carried in zip(self.bridges, carries, strict=True)
            ]
        else:  # each layer goes on from where that of the encoder ended
            start = [carried for (carried,) in carries]
        keys = self.cross_attention.project(annotations)
        values = annotations @ self.attend_context
        return Memory(annotations, mask, keys, values, tuple(start))

    def start(self, memory: Memory, rows: int, length: int) -> Carry:
        """State before the first step of `rows` equal hypotheses a source."""
        carry = super().start(memory, rows, length)
        if not self.input_feeding:
            return carry
        shape = (len(memory.mask), rows, self.hidden)
        return carry._replace(feed=jnp.zeros(shape, memory.values.dtype))

    def weights(self, memory):
        """What a step multiplies by, by name; see `scan`."""
        found = {"values": memory.values, "attend": self.attend_state}
        found |= self.stack.weights()
        if self.input_feeding:
            found["feed"] = self.feed
        return found

    @nn.nowrap
    def advance(self, product, shared, carry, x):
        """Section 3: h_t, then a_t from it, then h~_t = tanh(W_c [c_t; h_t])."""
        (gates, noise, rng), (source, biases) = x, shared
        if self.input_feeding:
            gates = gates + product(carry.feed, "feed")
        states, query = self.stack.advance(product, biases, carry.states, gates, noise)
        found = self.cross_attention.look(*source, query, carry.time, rng)
        attentional = nn.tanh(
            product(found.weights, "values") + product(query, "attend")
        )
        feed = attentional if self.input_feeding else None
        return Carry(carry.time + 1, states, feed), Step(attentional, found)

    def readout(self, embedded, step, memory, *, train):
        """W_s h~_t, eq. 6: [B, T, D] to [B, T, W]."""
        return logits(self.drop(step.state, train=train), self.output)
