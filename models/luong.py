"""The translators of Luong, Pham and Manning (2015): global and local attention.

Section 3: stacked LSTMs; the decoder looks at the source with its *current* state h_t,
and the attentional vector h~_t = tanh(W_c [c_t; h_t]) makes the prediction and is fed
to the next step.

What differs from the paper: dropout wherever a layer is entered, by field, its rate
rounded to a multiple of 1/256; positions of the local alignments count in the order of
the source also where it is read backwards, and that of local-m stays at the last one
where the target is longer. A bidirectional encoder, which is not the paper's, starts
the decoder by a tanh layer. W_c is cut in two, and its half for the context multiplies
the annotations once a source instead of each context.

Axes: see `models.recurrent`.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS
from attention.scores import SCORES
from models.layers import PAD, Dense, logits
from models.recurrent import (
    CELLS,
    Carry,
    Encoder,
    Gates,
    Init,
    RecurrentTranslator,
    SourceAttention,
    Stack,
    Step,
    uniform_init,
)


class Memory(NamedTuple):
    """An encoded source, projected once for all steps."""

    annotations: jax.Array  # [B, S, E]
    mask: jax.Array  # [B, S] bool
    keys: jax.Array  # [B, S, F]
    values: jax.Array  # [B, S, D], each annotation times W_c's half for contexts
    start: tuple[jax.Array, ...]  # a layer: [B, states D]


class Luong(RecurrentTranslator):
    """Encoder-decoder with attention; see the module's docstring.

    Attributes:
        cell: a key of `models.recurrent.CELLS`; the paper's is "lstm".
        layers: of the encoder and of the decoder; the paper has 4.
        bidirectional: whether the encoder reads in both directions; not so there.
        reverse_source: whether it reads from the last word to the first.
        input_feeding: whether h~_t enters the next step (section 3.3).
        score: a key of `attention.scores.SCORES`.
        alignment: a key of `attention.alignments.ALIGNMENTS`.
        score_hidden: A of the additive score, and of the predicted position.
        max_length: L of the location score.
        window: D of the local alignments.
        temperature: of the Gumbel alignment.

    The others are those of `RecurrentTranslator`.
    """

    cell: str
    layers: int
    bidirectional: bool
    reverse_source: bool
    input_feeding: bool
    score: str
    alignment: str
    score_hidden: int
    max_length: int
    window: int
    temperature: float

    paper_init: ClassVar[Init] = uniform_init(0.1)  # section 4
    choices: ClassVar = {
        "cell": tuple(CELLS),
        "score": tuple(SCORES),
        "alignment": tuple(ALIGNMENTS),
    }
    positive: ClassVar = (
        *("embedding", "hidden", "layers", "score_hidden", "max_length", "window"),
    )

    def setup_model(self):
        """Creates what this translator has."""
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
        self.gates = Gates(*common, inits)
        self.stack = Stack(*common, self.layers, self.dropout, inits)
        if self.input_feeding:
            shape = (n, CELLS[self.cell].gates * n)
            self.feed = self.param("feed", inits.kernel, shape)
        self.cross_attention = SourceAttention(
            *(self.score, self.alignment, n, self.score_hidden),
            *(self.max_length, self.window, self.temperature, inits),
        )
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
        """State before the first step of `rows` hypotheses a source."""
        feed = None
        if self.input_feeding:
            feed = jnp.zeros((memory.mask.shape[0], self.hidden), memory.values.dtype)
        return self._start(memory.start, rows, feed)

    def inputs(self, embedded, memory):
        """What the last word adds to the gates: [B, T, C] to [B, T, G]."""
        return self.gates(embedded)

    def weights(self, memory):
        """What a step multiplies by, by name; see `scan`."""
        found = {"values": memory.values, "attend": self.attend_state}
        found |= self.stack.weights()
        if self.input_feeding:
            found["feed"] = self.feed
        return found

    def shared(self, memory):
        """What a step reads besides, a pytree."""
        width = self.hidden * (1 + self.bidirectional)
        parameters = self.cross_attention.parameters(width)
        return memory.keys, memory.mask, parameters, self.stack.biases()

    @nn.nowrap
    def advance(self, product, shared, carry, x):
        """Section 3: h_t, then a_t from it, then h~_t = tanh(W_c [c_t; h_t])."""
        (gates, noise, rng), (keys, mask, parameters, biases) = x, shared
        if self.input_feeding:
            gates = gates + product(carry.feed, "feed")
        states, query = self.stack.advance(product, biases, carry.states, gates, noise)
        found = self.cross_attention.look(
            parameters, keys, mask, query, carry.time, rng
        )
        attentional = nn.tanh(
            product(found.weights, "values") + product(query, "attend")
        )
        feed = attentional if self.input_feeding else None
        return Carry(carry.time + 1, states, feed), Step(attentional, found)

    def readout(self, embedded, step, memory, *, train):
        """W_s h~_t, eq. 6: [B, T, D] to [B, T, W]."""
        return logits(self.drop(step.state, train=train), self.output)
