"""Listen, Attend and Spell: Chan, Jaitly, Le and Vinyals (2016), section 3.

The listener is a pyramid of bidirectional LSTMs: each layer after the first reads pairs
of outputs of the layer below, so that n such layers divide the number of frames by 2^n
(eq. 5). The speller is a recurrent decoder that attends to the listener's outputs with
its new state s_i, and takes the previous context c_{i-1} and character as input (eqs. 6
to 8). In training, each previous character is replaced, with probability `sampling`, by
one that is sampled from the model (section 3.3).

Differs from the paper: phi and psi of the score "multiplicative" are matrices, not
networks, and other scores can be chosen; the distribution over characters is a network
with one hidden layer; the initial state is 0; the characters of section 3.3 are sampled
from a teacher-forced pass, so that they do not depend on each other (Mihaylova and
Martins, 2019).

Axes: as in `models.recurrent`; T frames, in the decoder characters; M mel bands; S
positions, T divided by 2^n; E = 2 D, width of the listener's outputs.
"""

from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS
from attention.fast.scan import Matrix
from base.errors import FieldError
from base.ranges import DEPTH, LAYERS, PROBABILITY, SIZE, Choice
from models.cells import CELLS
from models.encoder_decoder import AttentiveDecoder, DecoderCarry, Step, StepInput
from models.initializers import Init, uniform_init
from models.layers import Dense, Dropout, logits
from models.recurrent import Encoder, StackMatrices
from models.source_attention import AttendedSource, SourceMemory

# All but hard alignment, which needs REINFORCE.
SOFT_ALIGNMENTS = tuple(x for x in ALIGNMENTS if x != "hard")


def pair_frames(x: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Concatenates pairs of frames: [h_2i; h_2i+1] of eq. 5.

    Args:
        x: [B, T, C]; an odd T is padded.
        mask: [B, T] bool, False at padding, which is set to 0.

    Returns:
        [B, ceil(T / 2), 2 C], and its mask: a pair is valid if its first frame is.
    """
    x, odd = jnp.where(mask[..., None], x, 0), x.shape[1] % 2
    x = jnp.pad(x, ((0, 0), (0, odd), (0, 0)))
    return x.reshape(len(x), -1, 2 * x.shape[2]), mask[:, ::2]


def mix_samples(
    rng: jax.Array, given: jax.Array, logits: jax.Array, rate: float
) -> jax.Array:
    """Replaces previous characters by samples from the model: section 3.3.

    Args:
        rng: PRNG key.
        given: [B, T] previous character of each step; the first is never replaced.
        logits: [B, T, W] computed from `given`, without a gradient. The previous
            character of step t is replaced by a sample from those of step t - 1.
        rate: probability of a replacement.

    Returns:
        [B, T] previous characters.
    """
    sample_rng, replace_rng = jax.random.split(rng)
    samples = jax.random.categorical(sample_rng, jax.lax.stop_gradient(logits))
    replaced = jax.random.bernoulli(replace_rng, rate, given.shape)
    mixed = jnp.where(replaced[:, 1:], samples[:, :-1], given[:, 1:])
    return jnp.concatenate([given[:, :1], mixed], axis=1)


class Listener(nn.Module):
    """Pyramidal bidirectional encoder: eqs. 4 and 5.

    Attributes:
        cell: a key of `models.cells.CELLS`.
        features: D, per direction.
        layers: number of layers.
        halvings: n; the last n layers halve the number of frames.
        dropout: dropout rate at the inputs of the layers after the first.
        inits: initializers.
    """

    cell: str
    features: int
    layers: int
    halvings: int
    dropout: float
    inits: Init

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: jax.Array, *, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Computes [B, S, E] and its mask [B, S] from [B, T, M] and its mask."""
        for layer in range(self.layers):
            if layer:
                x = Dropout(self.dropout)(x, deterministic=not train)
            if layer >= self.layers - self.halvings:
                x, mask = pair_frames(x, mask)
            encoder = Encoder(
                self.cell,
                self.features,
                layers=1,
                inits=self.inits,
                bidirectional=True,
                name=f"layer_{layer}",
            )
            x, _ = encoder(x, mask, train=train)
        return x, mask


class SpellerMatrices(NamedTuple):
    """Matrices of a step of the speller."""

    h: Matrix  # [B, S, E], the annotations
    w_c: Matrix  # [E, G], of c_{i-1}
    stack: StackMatrices


class ListenAttendSpell(AttentiveDecoder):
    """Listen, Attend and Spell; see the module docstring.

    A batch is a dict of `source`, itself a dict of float32 `frames` [B, T, M] and int32
    `lengths` [B], and int32 `target` [B, characters]; ids 0 = padding, 1 = start, 2 =
    end.

    Attributes:
        listener: D, width of the listener per direction.
        listener_layers: number of layers of the listener; the first keeps all frames.
        halvings: n, number of layers that halve the number of frames; fewer than
            `listener_layers`. 0 is the paper's baseline without a pyramid.
        layers: number of layers of the speller.
        sampling: probability that a previous character is sampled from the model in
            training.
        alignment: computation of the weights from the scores.
        filters: number of filters of the location-aware score.
        filter_width: width of the filters of the location-aware score, in positions.

    The other fields are inherited from `AttentiveDecoder`. Defaults are the paper's
    (section 4), except for fields that it does not specify: `embedding`,
    `score_hidden`, `max_length`, `window`, `temperature` and those of the filters.
    """

    cell: str = "lstm"
    embedding: int = 128
    hidden: int = 512
    dropout: float = 0.0
    init_scheme: str = "paper"
    listener: Annotated[int, SIZE] = 256
    listener_layers: Annotated[int, LAYERS] = 4
    halvings: Annotated[int, DEPTH] = 3
    layers: Annotated[int, LAYERS] = 2
    sampling: Annotated[float, PROBABILITY] = 0.1
    score: str = "multiplicative"
    alignment: Annotated[str, Choice(SOFT_ALIGNMENTS)] = "global"
    score_hidden: int = 512
    max_length: int = 256
    filters: Annotated[int, SIZE] = 10
    filter_width: Annotated[int, LAYERS] = 15

    paper_init: ClassVar[Init] = uniform_init(0.1)  # section 4
    input_feeding: ClassVar[bool] = True  # the context c_{i-1}

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        if self.halvings >= self.listener_layers:
            accepted = f"less than listener_layers={self.listener_layers}"
            raise FieldError("halvings", self.halvings, accepted)

    def setup(self):
        """Checks the fields and creates the submodules."""
        super().setup()
        n, cell, inits = self.hidden, CELLS[self.cell], self.inits
        _, self.target_table = self.tables(share=True)
        self.listen = Listener(
            cell=self.cell,
            features=self.listener,
            layers=self.listener_layers,
            halvings=self.halvings,
            dropout=self.dropout,
            inits=inits,
        )
        self.cross_attention = self.source_attention(keys="frames")
        self.stack = self.decoder(self.layers)  # RNN
        width = 2 * self.listener
        self.w_context = self.param(
            "context", inits.kernel, (width, cell.input_width * n)
        )
        # CharacterDistribution
        self.character = Dense(n, kernel_init=inits.kernel)
        self.output = self.param("output", inits.embedding, (self.vocab_size, n))

    def encode(
        self, source: dict[str, jax.Array], *, train: bool = False
    ) -> SourceMemory:
        """Encodes spectrograms: eq. 2."""
        frames = source["frames"]
        mask = jnp.arange(frames.shape[1]) < source["lengths"][:, None]
        annotations, mask = self.listen(frames, mask, train=train)
        zeros = jnp.zeros((len(frames), CELLS[self.cell].carry_width * self.hidden))
        return SourceMemory(
            annotations=annotations,
            mask=mask,
            keys=self.cross_attention.project(annotations),
            values=annotations,
            start=(zeros,) * self.layers,
        )

    def prepare(
        self, memory: SourceMemory
    ) -> tuple[SpellerMatrices, tuple[AttendedSource, tuple[jax.Array, ...]]]:
        """Returns the matrices of the step, and the source with the stack's biases."""
        stack, biases = self.stack.parameters()
        matrices = SpellerMatrices(memory.values, self.w_context, stack)
        return matrices, (self.cross_attention.source(memory), biases)

    def previous(
        self, target: jax.Array, memory: SourceMemory, *, train: bool
    ) -> jax.Array:
        """Returns the previous characters, some of them sampled in training.

        Sampling uses the RNG stream "sampling"; without it, no character is sampled.
        """
        given = super().previous(target, memory, train=train)
        if not (train and self.sampling and self.has_rng("sampling")):
            return given
        predicted, _ = self.decode(given, memory, train=False)
        return mix_samples(self.make_rng("sampling"), given, predicted, self.sampling)

    @nn.nowrap
    def advance(
        self,
        w: SpellerMatrices,
        shared: tuple[AttendedSource, tuple[jax.Array, ...]],
        carry: DecoderCarry,
        x: StepInput,
    ) -> tuple[DecoderCarry, Step]:
        """Computes one step of the speller: eqs. 6 and 7, and 9 to 11."""
        source, biases = shared
        gates = x.gates + carry.feed @ w.w_c  # of y_{i-1} and c_{i-1}
        # s_i = RNN(s_{i-1}, y_{i-1}, c_{i-1})
        states, s = self.stack.advance(
            w.stack, biases, carries=carry.states, gates=gates, noise=x.noise
        )
        # alpha_i = softmax(e_i), e_iu = <phi(s_i), psi(h_u)>
        alpha = self.weigh(source, s, carry, x)
        c = alpha.weights @ w.h  # c_i = sum_u alpha_iu h_u
        return carry.after(states, alpha, c), Step(s, alpha, c)

    def readout(
        self, embedded: jax.Array, step: Step, memory: SourceMemory, *, train: bool
    ) -> jax.Array:
        """Computes the logits of CharacterDistribution(s_i, c_i): eq. 8."""
        x = jnp.concatenate([step.state, step.context], axis=-1)
        x = nn.tanh(self.character(self.drop(x, deterministic=not train)))
        return logits(self.drop(x, deterministic=not train), self.output)
