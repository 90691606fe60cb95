"""RNNsearch, the first translator with attention: Bahdanau, Cho and Bengio (2015).

Appendix A: a bidirectional recurrent encoder annotates the source; the decoder attends
to the annotations with its *previous* state s_{i-1}. The context c_i enters the gates
and, with s_{i-1} and the previous token, a maxout readout:

    e_ij = v_a^T tanh(W_a s_{i-1} + U_a h_j),  alpha_i = softmax(e_i)
    c_i = sum_j alpha_ij h_j
    s_i = GRU(E y_{i-1}, s_{i-1}, c_i)
    p(y_i) = softmax(W_o maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i))

Differs from the paper: gates, initial state and maxout layer have biases, which its
equations omit; optional dropout; maxout pairs unit i with unit i + n/2, the paper pairs
neighbours. For a score that needs keys of the query's width, such as "dot",
the annotations are projected by a matrix [2 D, D]. The matrices C that multiply a
context c_i = sum_j alpha_ij h_j in the gates are applied to the annotations instead,
once per source: C c_i = sum_j alpha_ij (C h_j).

Axes: as in `models.recurrent`; E is 2 D; A hidden width of a score.
"""

from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.scan import Matrix
from base.ranges import LAYERS, SIZE
from models.cells import CELLS, CellMatrices
from models.encoder_decoder import AttentiveDecoder, DecoderCarry, Step, StepInput
from models.initializers import Init, orthogonal
from models.layers import PAD, Dense, logits
from models.recurrent import Encoder, Maxout
from models.source_attention import AttendedSource, SourceMemory


class Bahdanau(AttentiveDecoder):
    """RNNsearch; see the module's docstring.

    Batches are dicts of int32 `source` [B, S] and `target` [B, T], one sentence per
    row; ids 0 = padding, 1 = BOS, 2 = EOS.

    Attributes:
        share_embeddings: whether source and target share one embedding matrix.
        encoder_layers: number of bidirectional layers.
        maxout: l, number of maxout units of the readout.
        readout_state: decoder state in the readout: "previous", s_{i-1} as in the
            appendix, or "new", s_i.
        score_gradient: whether the scores' gradient reaches the encoder.

    The other fields are inherited from `AttentiveDecoder`; A is the paper's n'.
    Defaults are the paper's (appendices A and B); `max_length`, `window` and
    `temperature` are not in the paper.
    """

    cell: str = "gru"
    embedding: int = 620
    hidden: int = 1000
    dropout: float = 0.0
    init_scheme: str = "paper"
    share_embeddings: bool = False
    encoder_layers: Annotated[int, LAYERS] = 1
    maxout: Annotated[int, SIZE] = 500
    readout_state: Literal["previous", "new"] = "previous"
    score: str = "additive"
    alignment: str = "global"
    score_hidden: int = 1000
    score_gradient: bool = True

    # Appendix B.1. Attention is initially uniform, since v_a is 0.
    paper_init: ClassVar[Init] = Init(
        kernel=nn.initializers.normal(0.01),
        recurrent=orthogonal,
        embedding=nn.initializers.normal(0.01),
        score=nn.initializers.normal(0.001),
        score_vector=nn.initializers.zeros,
    )

    def setup(self):
        """Checks the fields and creates the submodules."""
        super().setup()
        n, cell, inits = self.hidden, CELLS[self.cell], self.inits
        self.source_table, self.target_table = self.tables(share=self.share_embeddings)
        self.encoder = Encoder(
            cell=self.cell,
            features=n,
            layers=self.encoder_layers,
            inits=inits,
            bidirectional=True,
            dropout=self.dropout,
        )
        self.bridge = Dense(cell.carry_width * n, kernel_init=inits.kernel)  # W_s
        # v_a, W_a and U_a
        self.cross_attention = self.source_attention()
        self.stack = self.decoder()
        # C_r, C_z and C side by side, [2 D, G]
        self.context = self.param(
            "context", inits.kernel, (2 * n, cell.input_width * n)
        )
        self.deep = Maxout(self.maxout, inits)  # U_o, V_o and C_o as one matrix
        shape = (self.vocab_size, self.maxout)
        self.output = self.param("output", inits.embedding, shape)  # W_o

    def encode(self, source: jax.Array, *, train: bool = False) -> SourceMemory:
        """Annotates sources [B, S] of int32 ids, padded with 0: appendix A.2.1."""
        mask = source != PAD
        embedded = self.drop(self.source_table[source], deterministic=not train)
        annotations, carries = self.encoder(embedded, mask, train=train)
        _, backward = carries[-1]
        # s_0 = tanh(W_s h_1), with h_1 of the backward direction.
        start = nn.tanh(self.bridge(backward[..., : self.hidden]))
        return SourceMemory(
            annotations=annotations,
            mask=mask,
            keys=self.cross_attention.project(annotations),
            values=annotations @ self.context,
            start=(start,),
        )

    def prepare(
        self, memory: SourceMemory
    ) -> tuple[tuple[Matrix, CellMatrices], AttendedSource]:
        """Returns C h_j [B, S, G] and U, and the source with its attention."""
        (u,) = self.stack.recurrent()
        return (memory.values, u), self.cross_attention.source(memory)

    @nn.nowrap
    def advance(
        self,
        w: tuple[Matrix, CellMatrices],
        source: AttendedSource,
        carry: DecoderCarry,
        x: StepInput,
    ) -> tuple[DecoderCarry, Step]:
        """Computes one step of the decoder: appendix A.2.2."""
        c_h, u = w
        (previous,) = carry.states
        s = previous[..., : self.hidden]  # s_{i-1}
        # alpha_i = softmax(e_i), e_ij = a(s_{i-1}, h_j)
        alpha = self.weigh(source, s, carry, x)
        gates_c = alpha.weights @ c_h  # C c_i = sum_j alpha_ij (C h_j)
        state = CELLS[self.cell].step(x.gates + gates_c, previous, u)
        new = state[..., : self.hidden]  # s_i = f(s_{i-1}, y_{i-1}, c_i)
        readout_state = s if self.readout_state == "previous" else new
        return carry.after((state,), alpha), Step(readout_state, alpha)

    def readout(
        self, embedded: jax.Array, step: Step, memory: SourceMemory, *, train: bool
    ) -> jax.Array:
        """Computes logits [B, T, W], W_o maxout(U_o s + V_o E y_{i-1} + C_o c_i)."""
        c = step.aligned.weights @ memory.annotations  # c_i = sum_j alpha_ij h_j
        units = self.deep(jnp.concatenate([step.state, embedded, c], axis=-1))
        return logits(self.drop(units, deterministic=not train), self.output)
