"""RNNsearch, the translator of Bahdanau, Cho and Bengio (2015): the first attention.

Appendix A: a bidirectional recurrent encoder annotates the source; the decoder looks
for what it needs with its *previous* state s_{i-1}, and what it finds enters its gates
and, with s_{i-1} and the last word, a maxout readout.

What differs from the paper: biases wherever it leaves them out; dropout, by field, its
rate rounded to a multiple of 1/256; the two pieces of a maxout unit are half the layer
apart instead of side by side. A score that compares vectors of one width, such as
"dot", gets the annotations of both directions through a matrix [2D, D] first. The
matrices C that multiply a context sum_j alpha_ij h_j multiply the annotations instead,
once a source: sum_j alpha_ij (C h_j) is the same.

Axes: see `models.recurrent`; l maxout units.
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
    Maxout,
    RecurrentTranslator,
    SourceAttention,
    Stack,
    Step,
    orthogonal,
)


class Memory(NamedTuple):
    """An encoded source, projected once for all steps."""

    annotations: jax.Array  # [B, S, 2D], h_j
    mask: jax.Array  # [B, S] bool
    keys: jax.Array  # [B, S, F], U_a h_j
    values: jax.Array  # [B, S, G], C h_j
    start: jax.Array  # [B, states D], s_0


class Bahdanau(RecurrentTranslator):
    """Encoder-decoder with attention; see the module's docstring.

    Attributes:
        cell: a key of `models.recurrent.CELLS`; the paper's is "gru".
        encoder_layers: bidirectional ones; the paper has one.
        maxout: l, units of two pieces in the readout.
        readout_state: "previous", as the appendix has it, or "new", s_i.
        score: a key of `attention.scores.SCORES`; the paper's is "additive".
        alignment: a key of `attention.alignments.ALIGNMENTS`.
        score_hidden: A, n' of the paper.
        max_length: L of the location score.
        window: D of the local alignments.
        temperature: of the Gumbel alignment.

    The others are those of `RecurrentTranslator`.
    """

    cell: str
    encoder_layers: int
    maxout: int
    readout_state: str
    score: str
    alignment: str
    score_hidden: int
    max_length: int
    window: int
    temperature: float

    # Appendix B.1; attention is uniform at first, since v_a is 0.
    paper_init: ClassVar[Init] = Init(
        kernel=nn.initializers.normal(0.01),
        recurrent=orthogonal,
        embedding=nn.initializers.normal(0.01),
        score=nn.initializers.normal(0.001),
        score_vector=nn.initializers.zeros,
    )
    choices: ClassVar = {
        "cell": tuple(CELLS),
        "readout_state": ("previous", "new"),
        "score": tuple(SCORES),
        "alignment": tuple(ALIGNMENTS),
    }
    positive: ClassVar = (
        *("embedding", "hidden", "encoder_layers", "maxout"),
        *("score_hidden", "max_length", "window"),
    )

    def setup_model(self):
        """Creates what this translator has."""
        cell, inits = CELLS[self.cell], self.inits
        common = (self.cell, self.hidden)
        self.encoder = Encoder(
            *common, self.encoder_layers, True, False, self.dropout, inits
        )
        self.bridge = Dense(cell.states * self.hidden, kernel_init=inits.kernel)
        self.gates = Gates(*common, inits)
        self.stack = Stack(*common, 1, self.dropout, inits)
        shape = (2 * self.hidden, cell.gates * self.hidden)
        self.context = self.param("context", inits.kernel, shape)
        self.cross_attention = SourceAttention(
            *(self.score, self.alignment, self.hidden, self.score_hidden),
            *(self.max_length, self.window, self.temperature, inits),
        )
        self.deep = Maxout(self.maxout, inits)
        shape = (self.vocab_size, self.maxout)
        self.output = self.param("output", inits.embedding, shape)

    def encode(self, source: jax.Array, *, train: bool = False) -> Memory:
        """Annotates sources [B, S] of int32 ids, padded with 0: A.2.1."""
        mask = source != PAD
        embedded = self._embed(source, train=train, source=True)
        annotations, carries = self.encoder(embedded, mask, train=train)
        _, backward = carries[-1]
        return Memory(
            annotations,
            mask,
            self.cross_attention.project(annotations),
            annotations @ self.context,
            # s_0 = tanh(W_s h_1), of the backward direction.
            nn.tanh(self.bridge(backward[..., : self.hidden])),
        )

    def start(self, memory: Memory, rows: int, length: int) -> Carry:
        """State before the first step of `rows` hypotheses a source."""
        return self._start([memory.start], rows)

    def inputs(self, embedded, memory):
        """W E y_{i-1} of each gate: [B, T, C] to [B, T, G]."""
        return self.gates(embedded)

    def weights(self, memory):
        """What a step multiplies by: the matrices U, and C h_j."""
        return {"values": memory.values, **self.stack.weights()}

    def shared(self, memory):
        """What a step reads besides, a pytree."""
        parameters = self.cross_attention.parameters(2 * self.hidden)
        return memory.keys, memory.mask, parameters

    @nn.nowrap
    def advance(self, product, shared, carry, x):
        """A.2.2: e_ij = a(s_{i-1}, h_j), c_i = sum_j alpha_ij h_j, s_i = f(...)."""
        (gates, noise, rng), (keys, mask, parameters) = x, shared
        query = carry.states[0][..., : self.hidden]
        found = self.cross_attention.look(
            parameters, keys, mask, query, carry.time, rng
        )
        gates = gates + product(found.weights, "values")
        states, output = self.stack.advance(product, (), carry.states, gates, noise)
        shown = query if self.readout_state == "previous" else output
        return Carry(carry.time + 1, states), Step(shown, found)

    def readout(self, embedded, step, memory, *, train):
        """t~_i = U_o s + V_o E y_{i-1} + C_o c_i; W_o times the larger of each two."""
        context = step.found.weights @ memory.annotations
        units = self.deep(jnp.concatenate([step.state, embedded, context], axis=-1))
        return logits(self.drop(units, train=train), self.output)
