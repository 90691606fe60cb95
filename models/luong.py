"""Translators with global and local attention: Luong, Pham and Manning (2015).

Section 3: stacked LSTMs; the decoder attends to the source with its *current* state
h_t. The attentional vector h~_t = tanh(W_c [c_t; h_t]) predicts the token and is fed to
the next step.

Differs from the paper: optional dropout of embeddings, between layers and before the
output matrix; biases start at 0, or with the standard initialisation at 1 in forget
gates; local alignments count positions in the order of the source even if the encoder
reverses it, and local-m stays at the last position if the target is longer. A
bidirectional encoder, which the paper does not have, initialises the decoder through a
tanh layer; residual connections and a decoder of another depth are those of Britz et
al. (2017). W_c is split into two halves, and the half for the context is applied to the
annotations, once per source, instead of to each context.

Axes: as in `models.recurrent`; A hidden width of a score.
"""

from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.scan import Matrix
from base.ranges import DEPTH, LAYERS, Choice
from models.cells import CELLS
from models.encoder_decoder import AttentiveDecoder, DecoderCarry, Step, StepInput
from models.initializers import Init, uniform_init
from models.layers import PAD, Dense, logits
from models.recurrent import RESIDUALS, Encoder, StackMatrices
from models.source_attention import AttendedSource, SourceMemory


class LuongMatrices(NamedTuple):
    """Matrices of a decoder's step."""

    c_h: Matrix  # [B, S, D], the half of W_c for c_t, times h_s
    w_h: Matrix  # [D, D], the half of W_c for h_t
    feed: Matrix | None  # [D, G], of h~_{t-1}; None without input feeding
    stack: StackMatrices


class Luong(AttentiveDecoder):
    """Encoder-decoder with global or local attention; see the module's docstring.

    Batches are dicts of int32 `source` [B, S] and `target` [B, T], one sentence per
    row; ids 0 = padding, 1 = BOS, 2 = EOS.

    Attributes:
        share_embeddings: whether source and target share one embedding matrix.
        layers: number of layers of the encoder.
        decoder_layers: number of layers of the decoder; 0 for as many as `layers`.
        residual: connections around the layers after the first, "none", "residual" or
            "dense"; see `models.recurrent.add_inputs`.
        bidirectional: whether the encoder runs in both directions.
        reverse_source: whether the encoder reverses the source tokens.
        input_feeding: whether the attentional state h~_t enters the next step (section
            3.3).
        score_gradient: whether the scores' gradient reaches the encoder.

    The other fields are inherited from `AttentiveDecoder`. Defaults are the paper's
    (section 4), except `max_length` and `temperature`, which it does not have.
    """

    cell: str = "lstm"
    embedding: int = 1000
    hidden: int = 1000
    dropout: float = 0.2
    init_scheme: str = "paper"
    share_embeddings: bool = False
    layers: Annotated[int, LAYERS] = 4
    decoder_layers: Annotated[int, DEPTH] = 0
    residual: Annotated[str, Choice(RESIDUALS)] = "none"
    bidirectional: bool = False
    reverse_source: bool = True
    input_feeding: bool = True
    score: str = "general"
    alignment: str = "global"
    score_hidden: int = 1000
    score_gradient: bool = True

    paper_init: ClassVar[Init] = uniform_init(0.1)  # section 4.1

    def setup(self):
        """Checks the fields and creates the submodules."""
        super().setup()
        n, cell, inits = self.hidden, CELLS[self.cell], self.inits
        self.depth = self.decoder_layers or self.layers
        self.source_table, self.target_table = self.tables(share=self.share_embeddings)
        self.encoder = Encoder(
            cell=self.cell,
            features=n,
            layers=self.layers,
            inits=inits,
            bidirectional=self.bidirectional,
            reverse=self.reverse_source,
            dropout=self.dropout,
            residual=self.residual,
        )
        if self.bidirectional:
            self.bridges = [
                Dense(cell.carry_width * n, kernel_init=inits.kernel)
                for _ in range(self.depth)
            ]
        self.cross_attention = self.source_attention()
        self.stack = self.decoder(self.depth, self.residual)
        if self.input_feeding:
            self.feed = self.param("feed", inits.kernel, (n, cell.input_width * n))
        # W_c for h_t and for c_t
        self.attend_state = self.param("attend_state", inits.kernel, (n, n))
        shape = (n * (1 + self.bidirectional), n)
        self.attend_context = self.param("attend_context", inits.kernel, shape)
        shape = (self.vocab_size, n)
        self.output = self.param("output", inits.embedding, shape)  # W_s

    def encode(self, source: jax.Array, *, train: bool = False) -> SourceMemory:
        """Annotates sources [B, S] of int32 ids, padded with 0."""
        mask = source != PAD
        embedded = self.drop(self.source_table[source], deterministic=not train)
        annotations, carries = self.encoder(embedded, mask, train=train)
        # Decoder layer i starts from encoder layer `first` + i, so that the last layers
        # correspond; in a deeper decoder, the lower layers all start from layer 0.
        first = self.layers - self.depth
        carries = [carries[max(first + i, 0)] for i in range(self.depth)]
        if self.bidirectional:
            start = [
                nn.tanh(bridge(jnp.concatenate(directions, axis=-1)))
                for bridge, directions in zip(self.bridges, carries, strict=True)
            ]
        else:  # each layer starts from the last carry of its layer of the encoder
            start = [carry for (carry,) in carries]
        return SourceMemory(
            annotations=annotations,
            mask=mask,
            keys=self.cross_attention.project(annotations),
            values=annotations @ self.attend_context,
            start=tuple(start),
        )

    def prepare(
        self, memory: SourceMemory
    ) -> tuple[LuongMatrices, tuple[AttendedSource, tuple[jax.Array, ...]]]:
        """Returns the matrices of the step, and the source with the stack's biases."""
        feed = self.feed if self.input_feeding else None
        stack, biases = self.stack.parameters()
        matrices = LuongMatrices(memory.values, self.attend_state, feed, stack)
        return matrices, (self.cross_attention.source(memory), biases)

    @nn.nowrap
    def advance(
        self,
        w: LuongMatrices,
        shared: tuple[AttendedSource, tuple[jax.Array, ...]],
        carry: DecoderCarry,
        x: StepInput,
    ) -> tuple[DecoderCarry, Step]:
        """Computes one step of the decoder: section 3, eqs. 5 and 7."""
        source, biases = shared
        gates = x.gates + carry.feed @ w.feed if self.input_feeding else x.gates
        states, h = self.stack.advance(
            w.stack, biases, carries=carry.states, gates=gates, noise=x.noise
        )
        # a_t(s) = align(score(h_t, h_s))
        a = self.weigh(source, h, carry, x)
        # h~_t = tanh(W_c [c_t; h_t]), W_c [c_t; h_t] = C c_t + W h_t,
        # C c_t = sum_s a_t(s) (C h_s)
        attentional = nn.tanh(a.weights @ w.c_h + h @ w.w_h)
        feed = attentional if self.input_feeding else None
        return carry.after(states, a, feed), Step(attentional, a)

    def readout(
        self, embedded: jax.Array, step: Step, memory: SourceMemory, *, train: bool
    ) -> jax.Array:
        """Computes the logits [B, T, W], W_s h~_t: eq. 6."""
        return logits(self.drop(step.state, deterministic=not train), self.output)
