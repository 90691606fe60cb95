"""Captioners: Show, Attend and Tell (soft or hard attention), and Show and Tell.

Xu et al. (2015), section 3.1: a convolutional encoder annotates the positions of an
image; an LSTM attends to them with its previous state h_{t-1}. The context z_t, scaled
by a gate beta_t (the "selector", section 4.2.1), enters the LSTM's gates and, with h_t
and the previous word, the readout (eq. 7). The alignment is soft ("global", section
4.2), hard (section 4.1, trained by REINFORCE in the task), or another of
`attention.alignments.ALIGNMENTS`. Show and Tell, Vinyals et al. (2015), has no
attention: the image is the LSTM's first input.

Differs from the papers: the encoder is a small network trained jointly, or is replaced
by precomputed feature maps; the readout applies a tanh to its sum, as in Xu's code; one
layer computes the initial state from the mean annotation, where that code has two; the
additive score is Bahdanau's, without a bias; dropout of embeddings, annotations and
readout is optional. Show and Tell gets the mean of all positions, and has the readout
of Xu et al. without a context; its LSTM applies tanh to the cell (eq. 8 does not).

Axes: as in `models.recurrent`; I, J rows and columns of a map; S = I J positions, row
by row; A hidden width of a score.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.convolution import blocks
from attention.fast.scan import Matrix
from base.errors import FieldError
from base.ranges import PROBABILITY, SIZE, Choice
from models.cells import CELLS, CellMatrices
from models.encoder_decoder import (
    AttentiveDecoder,
    DecoderCarry,
    EncoderDecoder,
    Step,
    StepInput,
)
from models.initializers import Init, uniform_init
from models.layers import Dense, Dropout, LayerNorm, logits
from models.source_attention import AttendedSource, SourceMemory

ENCODERS = ("cnn", "maps")


def check_channels(channels: Sequence[int]) -> None:
    """Raises a FieldError if there is no channel."""
    if not channels:
        raise FieldError("channels", channels, "a list of one or more widths")


class ImageEncoder(nn.Module):
    """Image encoder: a few convolutions, or a projection of precomputed feature maps.

    Attributes:
        encoder: "cnn" for images, or "maps" for feature maps of another network.
        channels: output channels of each downsampling convolution, the first 4 x 4 with
            stride 4, the others 2 x 2 with stride 2. The last entry is E; two 3 x 3
            convolutions of E channels follow. For "maps" only E is used.
        dropout: dropout rate of the annotations.
    """

    encoder: str
    channels: tuple[int, ...]
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Annotates images or maps.

        Args:
            x: [B, rows, columns, 3] uint8 images, or [B, I, J, any] float maps.
            train: whether dropout is applied.

        Returns:
            [B, S, E] float32 annotations.
        """
        if self.encoder == "maps":
            x = Dense(self.channels[-1], name="project")(x.astype(jnp.float32))
        else:
            x = x.astype(jnp.float32) / 127.5 - 1
            init = nn.initializers.he_normal()
            for index, width in enumerate(self.channels):
                x = Dense(width, kernel_init=init)(blocks(x, 2 if index else 4))
                # Normalises the channels of each position separately.
                x = nn.relu(LayerNorm()(x))
            for _ in range(2):
                x = nn.Conv(self.channels[-1], (3, 3), kernel_init=init)(x)
                x = nn.relu(LayerNorm()(x))
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        return Dropout(self.dropout)(x, deterministic=not train)


class Captioner(EncoderDecoder):
    """Base class of captioners.

    A batch is a dict of `source`, the images or maps of `ImageEncoder`, and `target`,
    [B, T] int32 tokens with ids 0 = padding, 1 = start, 2 = end.

    Attributes:
        encoder: "cnn" for images, or "maps" for feature maps of another network.
        channels: output channels of each downsampling convolution; the last entry is E,
            the width of the annotations.

    The other fields are those of `EncoderDecoder`. Defaults are the widths of Vinyals
    et al. (section 4.3.1), and the initialisation and dropout of their code.
    """

    cell: str = "lstm"
    embedding: int = 512
    hidden: int = 512
    dropout: float = 0.3
    init_scheme: str = "paper"
    encoder: Annotated[str, Choice(ENCODERS)] = "maps"
    channels: Annotated[tuple[int, ...], SIZE.each()] = (512,)

    paper_init: ClassVar[Init] = uniform_init(0.08)

    @nn.nowrap
    def check(self) -> None:
        """Raises a FieldError for an encoder without a width."""
        check_channels(self.channels)

    def setup(self):
        """Checks the fields and creates the shared submodules."""
        super().setup()
        inits = self.inits
        _, self.target_table = self.tables(share=True)
        self.annotate = ImageEncoder(self.encoder, self.channels, self.dropout)
        self.stack = self.decoder()
        self.from_state = Dense(self.embedding, kernel_init=inits.kernel)  # L_h
        shape = (self.vocab_size, self.embedding)
        self.output = self.param("output", inits.embedding, shape)  # L_o

    def word_logits(self, units: jax.Array, *, train: bool) -> jax.Array:
        """Computes the logits L_o tanh(units), [B, T, W], from [B, T, C]: eq. 7."""
        return logits(self.drop(nn.tanh(units), deterministic=not train), self.output)


class CaptionerMatrices(NamedTuple):
    """Matrices of a step with attention."""

    a: Matrix  # [B, S, E], the annotations
    w_z: Matrix  # [E, G], of z_t
    beta: Matrix | None  # [D, 1], f_beta; None without a selector
    u: CellMatrices


class ShowAttendTell(Captioner, AttentiveDecoder):
    """Captioner with attention, Xu et al. (2015); see the module's docstring.

    Attributes:
        selector: whether the context is multiplied by the gate beta_t (section 4.2.1).
        soft_prob: probability that a training batch replaces the weights of a hard or
            Gumbel alignment by their expectation, the soft weights; 0.5 in the authors'
            code, while section 4.1 decides per image. A variable `soft_prob` in the
            collection "schedule" overrides it.

    The other fields are those of `Captioner` and `AttentiveDecoder`. Widths, dropout
    and `selector` follow the authors' code for MS-COCO by default; the `init_scheme`
    "paper" is that of Show and Tell.
    """

    hidden: int = 1800
    dropout: float = 0.5
    init_scheme: str = "standard"
    score: str = "additive"
    alignment: str = "global"
    score_hidden: int = 512
    max_length: int = 196
    selector: bool = True
    soft_prob: Annotated[float, PROBABILITY] = 0.5

    def setup(self):
        """Checks the fields and creates the submodules."""
        super().setup()
        n, cell, inits = self.hidden, CELLS[self.cell], self.inits
        self.cross_attention = self.source_attention(keys="positions")
        self.bridge = Dense(cell.carry_width * n, kernel_init=inits.kernel)  # f_init
        self.from_context = Dense(  # L_z
            self.embedding, kernel_init=inits.kernel, use_bias=False
        )
        shape = (self.channels[-1], cell.input_width * n)
        self.w_context = self.param("context", inits.kernel, shape)
        if self.selector:
            self.beta = self.param("beta", inits.kernel, (n, 1))  # f_beta
            self.beta_bias = self.param("beta_bias", nn.initializers.zeros, (1,))

    def encode(self, source: jax.Array, *, train: bool = False) -> SourceMemory:
        """Annotates images or maps (section 3.1.1) and computes the initial state."""
        annotations = self.annotate(source, train=train)
        # Section 3.1.2: a layer of the mean annotation.
        start = nn.tanh(self.bridge(annotations.mean(1)))
        return SourceMemory(
            annotations=annotations,
            mask=jnp.ones(annotations.shape[:2], bool),
            keys=self.cross_attention.project(annotations),
            values=annotations,
            start=(start,),
        )

    def prepare(
        self, memory: SourceMemory
    ) -> tuple[CaptionerMatrices, tuple[AttendedSource, jax.Array | None]]:
        """Returns the matrices of the step, and the image with the selector's bias."""
        (u,) = self.stack.recurrent()
        beta, bias = (self.beta, self.beta_bias) if self.selector else (None, None)
        matrices = CaptionerMatrices(memory.values, self.w_context, beta, u)
        return matrices, (self.cross_attention.source(memory, self._soft()), bias)

    def _soft(self) -> jax.Array | None:
        """Returns a bool scalar, True for soft weights; None if no key is sampled."""
        if not self._samples_keys():
            return None
        soft_prob: float | jax.Array = self.get_variable(
            "schedule", "soft_prob", self.soft_prob
        )
        return jax.random.bernoulli(self.make_rng("alignment"), soft_prob)

    @nn.nowrap
    def advance(
        self,
        w: CaptionerMatrices,
        shared: tuple[AttendedSource, jax.Array | None],
        carry: DecoderCarry,
        x: StepInput,
    ) -> tuple[DecoderCarry, Step]:
        """Computes one step of the decoder: eqs. 1 to 6, and section 4.2.1 (beta_t)."""
        source, beta_bias = shared
        (previous,) = carry.states
        h = previous[..., : self.hidden]  # h_{t-1}
        # alpha_t = softmax(e_t), e_ti = f_att(a_i, h_{t-1})
        alpha = self.weigh(source, h, carry, x)
        z = alpha.weights @ w.a  # z_t = sum_i alpha_ti a_i
        if self.selector:
            beta = nn.sigmoid(h @ w.beta + beta_bias)  # beta_t = sigmoid(f_beta(h))
            z = beta * z
        state = CELLS[self.cell].step(x.gates + z @ w.w_z, previous, w.u)
        return carry.after((state,), alpha), Step(state[..., : self.hidden], alpha, z)

    def readout(
        self, embedded: jax.Array, step: Step, memory: SourceMemory, *, train: bool
    ) -> jax.Array:
        """Computes the logits L_o tanh(E y_{t-1} + L_h h_t + L_z z_t): eq. 7."""
        h = self.drop(step.state, deterministic=not train)
        units = embedded + self.from_state(h) + self.from_context(step.context)
        return self.word_logits(units, train=train)


class ImageState(NamedTuple):
    """Initial decoder state computed from the image."""

    start: tuple[jax.Array]  # [B, carry_width D], the carry after the image


class ShowAndTell(Captioner):
    """Captioner without attention, Show and Tell: Vinyals et al. (2015).

    The fields are those of `Captioner`.
    """

    def setup(self):
        """Checks the fields and creates the submodules."""
        super().setup()
        shape = (self.channels[-1], self.embedding)
        self.from_image = self.param("picture", self.inits.kernel, shape)

    def encode(self, source: jax.Array, *, train: bool = False) -> ImageState:
        """Feeds the image to the LSTM as its first input: eq. 10."""
        annotations = self.annotate(source, train=train)
        gates = self.gates(annotations.mean(1) @ self.from_image)
        cell, (state,) = CELLS[self.cell], self.stack.recurrent()
        zeros = jnp.zeros((len(gates), cell.carry_width * self.hidden))
        return ImageState((cell.step(gates, zeros, state),))

    def prepare(self, memory: ImageState) -> tuple[CellMatrices, None]:
        """Returns the recurrent matrices U; the image is in the state."""
        return self.stack.recurrent()[0], None

    @nn.nowrap
    def advance(
        self, u: CellMatrices, shared: None, carry: DecoderCarry, x: StepInput
    ) -> tuple[DecoderCarry, Step]:
        """Computes one step of the LSTM."""
        (previous,) = carry.states
        state = CELLS[self.cell].step(x.gates, previous, u)
        return carry.after((state,)), Step(state[..., : self.hidden])

    def readout(
        self, embedded: jax.Array, step: Step, memory: ImageState, *, train: bool
    ) -> jax.Array:
        """Computes the logits L_o tanh(E y_{t-1} + L_h h_t)."""
        h = self.drop(step.state, deterministic=not train)
        return self.word_logits(embedded + self.from_state(h), train=train)
