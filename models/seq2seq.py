"""Encoder-decoders without attention, which encode the source in one fixed vector.

Sutskever, Vinyals and Le (2014): stacked LSTMs read the reversed source, and the
decoder starts from the encoder's last states, s_0 = v:

    s_t = LSTM(E y_{t-1}, s_{t-1}),  p(y_t) = softmax(W_o s_t)

Cho et al. (2014), appendix A: a summary c of the encoder's last state h enters the
decoder's first state, every step and a maxout readout:

    c = tanh(V h),  s_0 = tanh(V' c)
    s_t = GRU(E y_{t-1}, s_{t-1}, c)
    p(y_t) = softmax(W_o maxout(O_h s_t + O_y E y_{t-1} + O_c c))

Differs from the papers: optional dropout; biases start at 0, or with the standard
initialisation at 1 in forget gates; no peepholes, which the LSTM of Sutskever et al.
has; maxout pairs unit i with unit i + n/2, the paper pairs neighbours. Encoder and
decoder use the GRU of `models.cells`: z and 1 - z are swapped relative to Cho et al.,
and the reset gate multiplies the state before the matrix U is applied, not the
summary's contribution.

Axes: as in `models.recurrent`.
"""

from typing import Annotated, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from base.errors import FieldError
from base.ranges import COUNT, LAYERS
from models.cells import CELLS
from models.encoder_decoder import DecoderCarry, EncoderDecoder, Step, StepInput
from models.initializers import Init, uniform_init
from models.layers import PAD, Dense, logits
from models.recurrent import Encoder, Maxout, StackMatrices


class Seq2SeqMemory(NamedTuple):
    """The fixed vector and its projections, computed once for all steps."""

    vector: jax.Array  # [B, layers carry_width D], or [B, D] for a tanh summary
    fed: jax.Array | None  # [B, 1, G], its contribution to the gates of all steps
    start: tuple[jax.Array, ...]  # [B, carry_width D] per layer, the first carry


class Seq2SeqShared(NamedTuple):
    """Arrays of a step besides the matrices."""

    fed: jax.Array | None  # [B, 1, G], C c
    biases: tuple[jax.Array, ...]  # [G] of each layer after the first


class Seq2Seq(EncoderDecoder):
    """Encoder-decoder without attention; see the module's docstring.

    Batches are dicts of int32 `source` [B, S] and `target` [B, T], one sentence per
    row; ids 0 = padding, 1 = BOS, 2 = EOS.

    Attributes:
        share_embeddings: whether source and target share one embedding matrix.
        layers: number of layers of the encoder and of the decoder; Cho et al. have 1.
        reverse_source: whether the encoder reverses the source tokens.
        summary: the fixed vector: "state", the last carries of all encoder layers, or
            "tanh", tanh(V h) of the last output (Cho et al.).
        first_state: the decoder's first state: "vector", the fixed vector; "layer",
            tanh(V' c + b) of it (Cho et al.); or "zero".
        fed_steps: steps to whose gates the fixed vector is added: "none", or "all" (Cho
            et al.).
        maxout: l, number of maxout units of the readout from state, previous token and
            summary; 0 for logits from the state alone.

    The other fields are inherited from `EncoderDecoder`. Defaults follow Sutskever et
    al. (section 3.4).
    """

    cell: str = "lstm"
    embedding: int = 1000
    hidden: int = 1000
    dropout: float = 0.0
    init_scheme: str = "paper"
    share_embeddings: bool = False
    layers: Annotated[int, LAYERS] = 4
    reverse_source: bool = True
    summary: Literal["state", "tanh"] = "state"
    first_state: Literal["vector", "layer", "zero"] = "vector"
    fed_steps: Literal["none", "all"] = "none"
    maxout: Annotated[int, COUNT] = 0

    paper_init: ClassVar[Init] = uniform_init(0.08)  # Sutskever et al., section 3.4

    def setup(self):
        """Checks the fields and creates the submodules."""
        super().setup()
        n, cell, inits = self.hidden, CELLS[self.cell], self.inits
        self.source_table, self.target_table = self.tables(share=self.share_embeddings)
        self.encoder = Encoder(
            cell=self.cell,
            features=n,
            layers=self.layers,
            inits=inits,
            reverse=self.reverse_source,
            dropout=self.dropout,
        )
        if self.summary == "tanh":
            self.summarise = Dense(n, kernel_init=inits.kernel)  # V
        if self.first_state == "layer":
            width = self.layers * cell.carry_width * n
            self.bridge = Dense(width, kernel_init=inits.kernel)  # V'
        if self.fed_steps == "all":
            self.fed = Dense(
                cell.input_width * n, kernel_init=inits.kernel, use_bias=False
            )
        self.stack = self.decoder(self.layers)
        if self.maxout:
            self.deep = Maxout(self.maxout, inits)  # O_h, O_y and O_c as one matrix
        shape = (self.vocab_size, self.maxout or n)
        self.output = self.param("output", inits.embedding, shape)

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        if self.first_state == "zero" and self.fed_steps == "none":
            accepted = "'all' if first_state is 'zero', or the source has no effect"
            raise FieldError("fed_steps", self.fed_steps, accepted)
        if self.summary == "tanh" and self.init_scheme == "paper":
            accepted = (
                "'standard' if summary is 'tanh': the paper is Sutskever et al., "
                "with summary 'state'"
            )
            raise FieldError("init_scheme", self.init_scheme, accepted)
        if self.summary == "tanh" and self.first_state == "vector":
            accepted = "layer or zero if summary is 'tanh', which is not a cell's state"
            raise FieldError("first_state", self.first_state, accepted)

    def encode(self, source: jax.Array, *, train: bool = False) -> Seq2SeqMemory:
        """Encodes sources [B, S] of int32 ids, padded with 0, to one vector each."""
        embedded = self.drop(self.source_table[source], deterministic=not train)
        _, carries = self.encoder(embedded, source != PAD, train=train)
        last = [carry for (carry,) in carries]  # the last carry of each layer
        if self.summary == "tanh":  # c = tanh(V h)
            c = nn.tanh(self.summarise(last[-1][..., : self.hidden]))
        else:  # v, the last carries of all layers
            c = jnp.concatenate(last, axis=-1)
        if self.first_state == "vector":  # s_0 = v
            start = last
        elif self.first_state == "layer":  # s_0 = tanh(V' c)
            start = jnp.split(nn.tanh(self.bridge(c)), self.layers, axis=-1)
        else:
            start = [jnp.zeros_like(carry) for carry in last]
        # C c, added to the gates of each step
        fed = self.fed(c)[:, None] if self.fed_steps == "all" else None
        return Seq2SeqMemory(c, fed, tuple(start))

    def prepare(self, memory: Seq2SeqMemory) -> tuple[StackMatrices, Seq2SeqShared]:
        """Returns the matrices of the step, and its other arrays."""
        stack, biases = self.stack.parameters()
        return stack, Seq2SeqShared(memory.fed, biases)

    @nn.nowrap
    def advance(
        self,
        w: StackMatrices,
        shared: Seq2SeqShared,
        carry: DecoderCarry,
        x: StepInput,
    ) -> tuple[DecoderCarry, Step]:
        """Computes one step, s_t = RNN(E y_{t-1}, s_{t-1}, c), or without a fed c."""
        gates = x.gates  # W E y_{t-1} + b
        if shared.fed is not None:
            gates = gates + shared.fed  # + C c, in the first layer
        # s_t of each layer, by its cell
        states, output = self.stack.advance(
            w, shared.biases, carries=carry.states, gates=gates, noise=x.noise
        )
        return carry.after(states), Step(output)

    def readout(
        self, embedded: jax.Array, step: Step, memory: Seq2SeqMemory, *, train: bool
    ) -> jax.Array:
        """Computes the logits [B, T, W]; with maxout units, those of Cho et al."""
        x = step.state
        if self.maxout:  # maxout(O_h s_t + O_y E y_{t-1} + O_c c)
            c = memory.vector[:, None]
            c = jnp.broadcast_to(c, (*x.shape[:2], c.shape[-1]))
            x = self.deep(jnp.concatenate([x, embedded, c], axis=-1))
        return logits(self.drop(x, deterministic=not train), self.output)
