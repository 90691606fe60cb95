"""Captions: Show, Attend and Tell with soft or hard attention, and Show and Tell.

Xu et al. (2015), section 3.1: a convolutional encoder annotates the positions of an
image; an LSTM attends to them with its previous state h_{t-1}, and the context z_t,
scaled by a gate beta_t ("selector", section 4.2.1), enters its gates and, with h_t and
the last word, the readout (eq. 7). The alignment is soft ("global", section 4.2), hard
(4.1, trained by REINFORCE in the task), or any other one by name. Vinyals et al., Show
and Tell (2015): no attention, the image is the LSTM's first input.

Differs from the papers: the encoder is a small one trained jointly, or feature maps are
given; the sum in the readout goes through a tanh, as in Xu's code; the first state is
one layer of the mean annotation, where that code has two; the additive score is
Bahdanau's, without a bias; optional dropout of embeddings, annotations and readout, its
rate rounded to a multiple of 1/256. Show and Tell sees the mean of all positions, and
its readout is that of Xu et al. without a context.

Axes: those of `models.recurrent`; I, J rows and columns of a map; S = I J positions,
row by row; C width of an embedding; E width of an annotation.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from errors import FieldError
from models.cells import CELLS, CellWeights
from models.encoder_decoder import (
    ATTENTION_CHOICES,
    Carry,
    EncoderDecoder,
    Memory,
    Source,
    SourceAttention,
    Step,
    StepInput,
)
from models.layers import Dense, Dropout, LayerNorm, check_fields, logits
from models.recurrent import Init, Stack, uniform_init
from ops.convolution import blocks
from ops.scan import Matrix

ENCODERS = ("cnn", "maps")


class ImageEncoder(nn.Module):
    """Annotations of images: a few convolutions, or one layer on given maps.

    Attributes:
        encoder: "cnn" for images, or "maps" for feature maps of another network.
        channels: channels of a convolution of 4 x 4 with stride 4, then of convolutions
            of 2 x 2 with stride 2; the last are E, also of the two convolutions of
            3 x 3 that follow. For "maps" only E.
        dropout: rate at the annotations.
    """

    encoder: str
    channels: tuple[int, ...]
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Annotate images or maps.

        Args:
            x: uint8 images [B, rows, columns, 3], or float maps [B, I, J, any].
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
                # Over the channels of each position, not over all positions.
                x = nn.relu(LayerNorm()(x))
            for _ in range(2):
                x = nn.Conv(self.channels[-1], (3, 3), kernel_init=init)(x)
                x = nn.relu(LayerNorm()(x))
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        return Dropout(self.dropout)(x, train=train)


class CaptionerWeights(NamedTuple):
    """Weight matrices used inside the step."""

    annotations: Matrix  # [B, S, E], a_i
    context: Matrix  # [E, G], for z_t
    beta: Matrix | None  # [D, 1], for the selector
    state: CellWeights  # U


class Shared(NamedTuple):
    """Other arrays used inside the step."""

    source: Source
    beta_bias: jax.Array | None  # [1]


class ShowAttendTell(EncoderDecoder):
    """A captioner with attention; see the module's docstring.

    Batches are dicts of `source`, images or maps, see `ImageEncoder`, and `target`
    [B, T] int32, ids 0 = padding, 1 = start, 2 = end.

    Attributes:
        encoder: see `ImageEncoder`.
        channels: the same.
        score: a key of `attention.scores.SCORES`.
        alignment: a key of `attention.alignments.ALIGNMENTS`.
        score_hidden: A of the additive score and of local-p's predicted position.
        max_length: L of the location score, in positions.
        window: D of the local alignments.
        temperature: temperature of the Gumbel alignment.
        selector: whether the context is multiplied by beta_t.
        soft_prob: share of training batches in which the draws of a hard alignment are
            replaced by their expectation, the soft weights: 0.5 in the authors' code;
            in section 4.1 the choice is made per image. A variable `soft_prob` in the
            collection "schedule" overrides it.

    The other fields are those of `EncoderDecoder`. Defaults are those of the authors'
    code for MS-COCO; `window` and `temperature` are this project's.
    """

    cell: str = "lstm"
    embedding: int = 512
    hidden: int = 1800
    dropout: float = 0.5
    init_scheme: str = "standard"
    encoder: str = "maps"
    channels: tuple[int, ...] = (512,)
    score: str = "additive"
    alignment: str = "global"
    score_hidden: int = 512
    max_length: int = 196
    window: int = 10
    temperature: float = 1.0
    selector: bool = True
    soft_prob: float = 0.5

    paper_init: ClassVar[Init] = uniform_init(0.08)

    @property
    def draws(self) -> bool:
        """True if the alignment is hard and needs REINFORCE to train."""
        return self.alignment == "hard"

    def setup(self):
        """Check the fields and create the parts."""
        super().setup()
        check_fields(
            self,
            ATTENTION_CHOICES | {"encoder": ENCODERS},
            ("score_hidden", "max_length", "window"),
        )
        _check_channels(self.channels)
        if not 0 <= self.soft_prob <= 1:
            raise FieldError("soft_prob", self.soft_prob, "in [0, 1]")
        n, cell, inits = self.hidden, CELLS[self.cell], self.inits
        _, self.target_table = self.tables(share=True)
        self.cross_attention = SourceAttention(
            score=self.score,
            alignment=self.alignment,
            width=n,
            hidden=self.score_hidden,
            max_length=self.max_length,
            window=self.window,
            temperature=self.temperature,
            inits=inits,
            keys="positions",
        )
        self.annotate = ImageEncoder(self.encoder, self.channels, self.dropout)
        self.bridge = Dense(cell.states * n, kernel_init=inits.kernel)
        self.stack = Stack(self.cell, n, 1, self.dropout, inits)
        self.from_state = Dense(self.embedding, kernel_init=inits.kernel)
        self.from_context = Dense(
            self.embedding, kernel_init=inits.kernel, use_bias=False
        )
        shape = (self.vocab_size, self.embedding)
        self.output = self.param("output", inits.embedding, shape)
        shape = (self.channels[-1], cell.gates * n)
        self.context = self.param("context", inits.kernel, shape)
        if self.selector:
            self.beta = self.param("beta", inits.kernel, (n, 1))
            self.beta_bias = self.param("beta_bias", nn.initializers.zeros, (1,))

    def encode(self, source: jax.Array, *, train: bool = False) -> Memory:
        """Annotate images [B, rows, columns, 3], or maps: section 3.1.1."""
        annotations = self.annotate(source, train=train)
        # Section 3.1.2: the first state is a tanh layer of the mean annotation.
        start = nn.tanh(self.bridge(annotations.mean(1)))
        return Memory(
            annotations=annotations,
            mask=jnp.ones(annotations.shape[:2], bool),
            keys=self.cross_attention.project(annotations),
            values=annotations,
            start=(start,),
        )

    def weights(self, memory: Memory) -> CaptionerWeights:
        """Weight matrices used inside the step."""
        (state,) = self.stack.weights().states
        beta = self.beta if self.selector else None
        return CaptionerWeights(memory.annotations, self.context, beta, state)

    def shared(self, memory: Memory) -> Shared:
        """The image as a step attends to it, and the bias of the selector."""
        source = self.cross_attention.source(memory, self._soft())
        return Shared(source, self.beta_bias if self.selector else None)

    def _soft(self) -> jax.Array | None:
        """Bool scalar, True if soft weights replace all draws; None without draws."""
        if not (self.cross_attention.draws and self.has_rng("alignment")):
            return None
        share: float | jax.Array = self.get_variable(
            "schedule", "soft_prob", self.soft_prob
        )
        return jax.random.bernoulli(self.make_rng("alignment"), share)

    @nn.nowrap
    def advance(
        self, w: CaptionerWeights, shared: Shared, carry: Carry, x: StepInput
    ) -> tuple[Carry, Step]:
        """One step of the decoder: eqs. 1 to 6, and beta_t of section 4.2.1."""
        (previous,) = carry.states
        h = previous[..., : self.hidden]  # h_{t-1}
        e = shared.source.score(h)  # e_ti = f_att(a_i, h_{t-1})
        alpha = shared.source.align(e, h, carry.time, x.rng)
        z = alpha.weights @ w.annotations  # z_t = sum_i alpha_ti a_i
        if self.selector:
            z = z * nn.sigmoid(h @ w.beta + shared.beta_bias)  # beta_t
        state = CELLS[self.cell].step(x.gates + z @ w.context, previous, w.state)
        return Carry(carry.time + 1, (state,)), Step(
            state[..., : self.hidden], alpha, z
        )

    def readout(
        self, embedded: jax.Array, step: Step, memory: Memory, *, train: bool
    ) -> jax.Array:
        """L_o tanh(E y_{t-1} + L_h h_t + L_z z_t): eq. 7."""
        state = self.drop(step.state, train=train)
        units = embedded + self.from_state(state) + self.from_context(step.context)
        return logits(self.drop(nn.tanh(units), train=train), self.output)


class ImageState(NamedTuple):
    """First carry of the LSTM, after it has read the image."""

    start: tuple[jax.Array]  # [B, states D]


class ShowAndTell(EncoderDecoder):
    """A captioner without attention: Vinyals et al. (2015).

    Batches are those of `ShowAttendTell`.

    Attributes:
        encoder: see `ImageEncoder`.
        channels: the same.

    The other fields are those of `EncoderDecoder`. Defaults are the paper's widths
    (section 4.3.1), and the initialisation and dropout of the authors' code.
    """

    cell: str = "lstm"
    embedding: int = 512
    hidden: int = 512
    dropout: float = 0.3
    init_scheme: str = "paper"
    encoder: str = "maps"
    channels: tuple[int, ...] = (512,)

    paper_init: ClassVar[Init] = uniform_init(0.08)

    def setup(self):
        """Check the fields and create the parts."""
        super().setup()
        check_fields(self, {"encoder": ENCODERS}, ())
        _check_channels(self.channels)
        inits = self.inits
        _, self.target_table = self.tables(share=True)
        self.annotate = ImageEncoder(self.encoder, self.channels, self.dropout)
        self.stack = Stack(self.cell, self.hidden, 1, self.dropout, inits)
        self.from_state = Dense(self.embedding, kernel_init=inits.kernel)
        shape = (self.vocab_size, self.embedding)
        self.output = self.param("output", inits.embedding, shape)
        shape = (self.channels[-1], self.embedding)
        self.image = self.param("picture", inits.kernel, shape)

    def encode(self, source: jax.Array, *, train: bool = False) -> ImageState:
        """Feed an image, or a map, as the word before the first: eq. 10."""
        annotations = self.annotate(source, train=train)
        gates = self.gates(annotations.mean(1) @ self.image)
        cell, (state,) = CELLS[self.cell], self.stack.weights().states
        zeros = jnp.zeros((len(gates), cell.states * self.hidden))
        return ImageState((cell.step(gates, zeros, state),))

    def weights(self, memory: ImageState) -> CellWeights:
        """Weight matrices used inside the step, U."""
        (state,) = self.stack.weights().states
        return state

    def shared(self, memory: ImageState) -> None:
        """None: the image is in the state."""

    @nn.nowrap
    def advance(
        self, u: CellWeights, shared: None, carry: Carry, x: StepInput
    ) -> tuple[Carry, Step]:
        """One step of the LSTM: eq. 11."""
        (previous,) = carry.states
        state = CELLS[self.cell].step(x.gates, previous, u)
        return Carry(carry.time + 1, (state,)), Step(state[..., : self.hidden])

    def readout(
        self, embedded: jax.Array, step: Step, memory: ImageState, *, train: bool
    ) -> jax.Array:
        """L_o tanh(E y_{t-1} + L_h h_t)."""
        state = self.drop(step.state, train=train)
        units = embedded + self.from_state(state)
        return logits(self.drop(nn.tanh(units), train=train), self.output)


def _check_channels(channels: tuple[int, ...]) -> None:
    if not channels or min(channels) < 1:
        raise FieldError("channels", channels, "one or more widths of at least 1")
