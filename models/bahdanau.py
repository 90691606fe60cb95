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

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.layers import PAD, Dense, logits
from models.recurrent import (
    CELLS,
    Encoder,
    Init,
    Maxout,
    Stack,
    orthogonal,
)
from models.recurrent_translator import AttentiveTranslator, Carry, Memory, Step


class Bahdanau(AttentiveTranslator):
    """Encoder-decoder with attention; see the module's docstring.

    Attributes:
        encoder_layers: bidirectional ones; the paper has one.
        maxout: l, units of two pieces in the readout.
        readout_state: "previous", as the appendix has it, or "new", s_i.

    The others are those of `AttentiveTranslator`; the paper's cell is "gru", its score
    "additive" with a `score_hidden` of n'.
    """

    encoder_layers: int
    maxout: int
    readout_state: str

    # Appendix B.1; attention is uniform at first, since v_a is 0.
    paper_init: ClassVar[Init] = Init(
        kernel=nn.initializers.normal(0.01),
        recurrent=orthogonal,
        embedding=nn.initializers.normal(0.01),
        score=nn.initializers.normal(0.001),
        score_vector=nn.initializers.zeros,
    )
    choices: ClassVar = AttentiveTranslator.choices | {
        "readout_state": ("previous", "new")
    }
    positive: ClassVar = (*AttentiveTranslator.positive, "encoder_layers", "maxout")

    def setup(self):
        """Creates what this translator has."""
        super().setup()
        cell, inits = CELLS[self.cell], self.inits
        common = (self.cell, self.hidden)
        self.encoder = Encoder(
            *common, self.encoder_layers, True, False, self.dropout, inits
        )
        self.bridge = Dense(cell.states * self.hidden, kernel_init=inits.kernel)
        self.stack = Stack(*common, 1, self.dropout, inits)
        shape = (2 * self.hidden, cell.gates * self.hidden)
        self.context = self.param("context", inits.kernel, shape)
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
            (nn.tanh(self.bridge(backward[..., : self.hidden])),),
        )

    def weights(self, memory):
        """What a step multiplies by: the matrices U, and C h_j."""
        return {"values": memory.values, **self.stack.weights()}

    @nn.nowrap
    def advance(self, product, shared, carry, x):
        """A.2.2: e_ij = a(s_{i-1}, h_j), c_i = sum_j alpha_ij h_j, s_i = f(...)."""
        (gates, noise, rng), (source, biases) = x, shared
        query = carry.states[0][..., : self.hidden]
        found = self.cross_attention.look(*source, query, carry.time, rng)
        gates = gates + product(found.weights, "values")
        states, output = self.stack.advance(product, biases, carry.states, gates, noise)
        shown = query if self.readout_state == "previous" else output
        return Carry(carry.time + 1, states), Step(shown, found)

    def readout(self, embedded, step, memory, *, train):
        """t~_i = U_o s + V_o E y_{i-1} + C_o c_i; W_o times the larger of each two."""
        context = step.found.weights @ memory.annotations
        units = self.deep(jnp.concatenate([step.state, embedded, context], axis=-1))
        return logits(self.drop(units, train=train), self.output)
