"""Recurrent encoder-decoders: teacher-forced pass and decoding step.

`EncoderDecoder` is the base class of the models in `bahdanau.py`, `luong.py`,
`seq2seq.py`, `captioner.py` and `listener.py`: it embeds tokens, scans over the target
in training and decodes step by step. A model adds its encoder, its decoder's step (the
equations of its paper) and its readout:

    h = encode(x),  s_0 = start(h)
    s_t, z_t = advance(W E y_{t-1} + b, s_{t-1}; h)
    p(y_t) = softmax(readout(E y_{t-1}, z_t; h))

`DecoderCarry` is s_t, `Step` z_t. `AttentiveDecoder` adds an attention to the source.

Axes: as in `models.recurrent`; D is also the width of a query; F width of a key; V
width of a value; A hidden width of a score.
"""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS, SAMPLED_ALIGNMENTS
from attention.fast.scan import scan
from attention.scores import STEPWISE_SCORES
from base.ranges import FRACTION, SCALE, SIZE, Choice
from models.attention import Alignment, AlignmentOutput, Score
from models.cells import CELLS, batch_first, time_first
from models.initializers import STANDARD, Init
from models.layers import BOS, Dropout, check_fields
from models.recurrent import Gates, Stack
from models.sharding import RECURRENT
from models.source_attention import AttendedSource, SourceAttention


class StepInput(NamedTuple):
    """Inputs of a decoder's step."""

    gates: jax.Array  # [B, R, G], W E y_{t-1} + b of the previous token
    noise: tuple[jax.Array, ...] | None = None  # dropout masks; see `Stack.noise`
    rng: jax.Array | None = None  # PRNG key to sample a key


class DecoderCarry(NamedTuple):
    """State of a decoder."""

    time: jax.Array  # int scalar, from 0
    states: tuple[jax.Array, ...]  # [B, R, carry_width D] per layer
    # [B, R, V], h~_{t-1} of Luong et al. or c_{t-1} of Chan et al., at first 0
    feed: jax.Array | None = None
    attention: jax.Array | None = None  # [B, R, S], a_{t-1}, if the score reads it

    def take(self, parents: jax.Array) -> "DecoderCarry":
        """Returns the state whose row r continues row `parents[b, r]` of this one."""

        def pick(x):
            return jnp.take_along_axis(x, parents[..., None], axis=1)

        return DecoderCarry(self.time, *jax.tree.map(pick, self[1:]))

    def after(
        self,
        states: tuple[jax.Array, ...],
        aligned: AlignmentOutput | None = None,
        feed: jax.Array | None = None,
    ) -> "DecoderCarry":
        """Returns the state after a step with these results."""
        weights = None if self.attention is None else aligned.weights
        return DecoderCarry(self.time + 1, states, feed, weights)


class Step(NamedTuple):
    """Result of a step, [B, R, ...], or of all steps, [B, T, ...].

    A step that needs c_t only through a product W c_t weighs W h_j, computed once per
    source, and leaves `context` None. A readout that needs c_t computes the contexts of
    all steps in one product, which is faster than a thin product in each step.
    """

    state: jax.Array  # [..., D], the decoder's state for the readout
    aligned: AlignmentOutput | None = None  # None without attention
    context: jax.Array | None = None  # [..., E], where the step computes it


class EncoderDecoder(nn.Module):
    """Base class of encoder-decoders with a recurrent decoder.

    A subclass declares its fields with the paper's values, creates in `setup`

    *   `target_table`, and a source table if it has one, by `tables`;
    *   `stack`, by `decoder`;
    *   `cross_attention`, by `source_attention`, if it is an `AttentiveDecoder`,

    and defines the methods `encode`, `prepare`, `advance` and `readout`.

    Attributes:
        vocab_size: W.
        cell: recurrent cell.
        embedding: C, width of the embeddings.
        hidden: D, width of the states.
        dropout: dropout rate of embeddings, between layers and before the output
            matrix; never on recurrent connections (Zaremba et al. 2014).
        init_scheme: initialisation: "standard" for Glorot, orthogonal recurrent
            matrices and a forget bias of 1, or "paper" for that of the paper.
    """

    vocab_size: Annotated[int, SIZE]
    cell: Annotated[str, Choice(CELLS)]
    embedding: Annotated[int, SIZE]
    hidden: Annotated[int, SIZE]
    dropout: Annotated[float, FRACTION]
    init_scheme: Literal["standard", "paper"]

    packs: ClassVar[bool] = False  # each row of a batch holds a single sentence
    sharding: ClassVar = RECURRENT
    needs_reinforce: ClassVar[bool] = False  # True with a hard alignment
    paper_init: ClassVar[Init]

    def setup(self):
        """Checks the fields and creates the shared submodules."""
        check_fields(self)
        self.inits = self.paper_init if self.init_scheme == "paper" else STANDARD
        self.drop = Dropout(self.dropout)
        self.gates = Gates(self.cell, self.hidden, self.inits)

    def tables(self, *, share: bool) -> tuple[jax.Array, jax.Array]:
        """Creates the embeddings [W, C] of source and target; for use in `setup`."""
        names = ("source_embedding", "target_embedding")
        names = ("embedding_table",) if share else names
        shape = (self.vocab_size, self.embedding)
        tables = [self.param(name, self.inits.embedding, shape) for name in names]
        return tables[0], tables[-1]

    def decoder(self, layers: int = 1, residual: str = "none") -> Stack:
        """Creates the layers of the decoder; for use in `setup`."""
        return Stack(
            cell=self.cell,
            features=self.hidden,
            layers=layers,
            dropout=self.dropout,
            inits=self.inits,
            residual=residual,
        )

    def encode(self, source: jax.Array, *, train: bool = False) -> Any:
        """Encodes sources to a memory, once for all steps.

        Args:
            source: [B, ...], as the model's class describes it.
            train: whether dropout is on.

        Returns:
            A tuple with a field `start`, the first carry [B, carry_width D] of each
            layer.
        """
        raise NotImplementedError

    def prepare(self, memory: Any) -> tuple[Any, Any]:
        """Returns the matrices of the step and its other loop-invariant arrays.

        Both are pytrees, the arguments `matrices` and `shared` of
        `attention.fast.scan.scan`.
        """
        raise NotImplementedError

    @nn.nowrap
    def advance(
        self, w: Any, shared: Any, carry: DecoderCarry, x: StepInput
    ) -> tuple[DecoderCarry, Step]:
        """Computes one step of the decoder, a pure function of its arguments.

        Args:
            w: matrices from `prepare`, or handles to them in a scan.
            shared: other arrays from `prepare`.
            carry: from `start` or the previous step.
            x: inputs of the step.

        Returns:
            The next carry and the step's result.
        """
        raise NotImplementedError

    def readout(
        self, embedded: jax.Array, step: Step, memory: Any, *, train: bool
    ) -> jax.Array:
        """Computes the logits [B, T, W] of all steps at once.

        Args:
            embedded: [B, T, C], embedding of each step's previous token.
            step: results of all steps, [B, T, ...].
            memory: from `encode`.
            train: whether dropout is on.

        Returns:
            [B, T, W] float32 logits.
        """
        raise NotImplementedError

    def __call__(self, batch: dict[str, jax.Array], *, train: bool) -> jax.Array:
        """Computes the logits of every target token given the tokens before it.

        Args:
            batch: `source`, for `encode`, and `target` [B, T] int32 with EOS (2) and
                padding (0); BOS (1) is added here.
            train: whether dropout is on (RNG stream "dropout"). With an RNG stream
                "alignment", hard and Gumbel alignments sample a key.

        Returns:
            [B, T, W] float32 logits; position t predicts token t of `target`.
        """
        memory = self.encode(batch["source"], train=train)
        previous = self.previous(batch["target"], memory, train=train)
        logits, step = self.decode(previous, memory, train=train)
        if step.aligned is not None:
            self.cross_attention.record(step.aligned, memory)
        return logits

    def previous(self, target: jax.Array, memory: Any, *, train: bool) -> jax.Array:
        """Returns the previous token of each step, [B, T]: BOS and `target`."""
        del memory, train  # for a model that samples tokens
        return jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)

    def decode(
        self, previous: jax.Array, memory: Any, *, train: bool
    ) -> tuple[jax.Array, Step]:
        """Returns logits [B, T, W] and all steps, for previous tokens [B, T]."""
        size, steps = previous.shape
        embedded = self.drop(self.target_table[previous], deterministic=not train)
        noise = self.stack.noise(steps, size) if train else None
        rngs = None
        if self._samples_keys():
            rngs = jax.random.split(self.make_rng("alignment"), steps)
        inputs = StepInput(time_first(self.gates(embedded)), noise, rngs)
        carry = self.start(memory, 1, steps)
        _, step = scan(self.advance, *self.prepare(memory), carry, inputs)
        step = jax.tree.map(batch_first, step)
        return self.readout(embedded, step, memory, train=train), step

    def start(self, memory: Any, rows: int, length: int) -> DecoderCarry:
        """Returns the state before the first step.

        Args:
            memory: from `encode`.
            rows: number of hypotheses per source, R.
            length: has no effect.
        """
        del length  # the state has a fixed size
        states = jax.tree.map(lambda x: _repeat(x, rows), memory.start)
        return DecoderCarry(jnp.zeros((), jnp.int32), states)

    def step(
        self, carry: DecoderCarry, token: jax.Array, memory: Any
    ) -> tuple[DecoderCarry, jax.Array, jax.Array | None]:
        """Computes one decoding step, with the same logits as a teacher-forced pass.

        Args:
            carry: from `start` or the previous step.
            token: [B, R] int32, the previous token of each hypothesis; initially BOS.
            memory: from `encode`; shared by the R hypotheses of a source.

        Returns:
            The next carry, logits [B, R, W] float32, and the attention weights
            [B, R, S]; None without attention.
        """
        embedded = self.drop(self.target_table[token], deterministic=True)
        x = StepInput(self.gates(embedded))
        carry, step = self.advance(*self.prepare(memory), carry, x)
        weights = None if step.aligned is None else step.aligned.weights
        return carry, self.readout(embedded, step, memory, train=False), weights

    def _samples_keys(self) -> bool:
        """Returns True if an alignment samples a key in this pass."""
        return False


def _repeat(x: jax.Array, rows: int) -> jax.Array:
    """Repeats [B, ...] for R hypotheses: [B, R, ...]."""
    return jnp.broadcast_to(x[:, None], (x.shape[0], rows, *x.shape[1:]))


class AttentiveDecoder(EncoderDecoder):
    """Base class of encoder-decoders whose decoder attends to the source.

    Attributes:
        score: attention score; see `attention.scores`.
        alignment: computation of the weights from the scores; see
            `attention.alignments`.
        score_hidden: A, hidden width of the score and of the position of local-p.
        max_length: maximum number of source positions, for the location score.
        window: half-width of a local alignment's window in positions.
        temperature: temperature of the Gumbel alignment.

    The other fields are those of `EncoderDecoder`.
    """

    score: Annotated[str, Choice(STEPWISE_SCORES)]
    alignment: Annotated[str, Choice(ALIGNMENTS)]
    score_hidden: Annotated[int, SIZE]
    max_length: Annotated[int, SIZE] = 128
    window: Annotated[int, SIZE] = 10
    temperature: Annotated[float, SCALE] = 1.0

    # Fields of some subclasses
    input_feeding: ClassVar[bool] = False  # whether a step reads `DecoderCarry.feed`
    score_gradient: ClassVar[bool] = True  # see `SourceAttention`
    filters: ClassVar[int] = 10  # of the location-aware score; see `Score`
    filter_width: ClassVar[int] = 15

    @property
    def needs_reinforce(self) -> bool:
        """True if the alignment is hard."""
        return self.alignment == "hard"

    def _samples_keys(self) -> bool:
        return self.alignment in SAMPLED_ALIGNMENTS and self.has_rng("alignment")

    def start(self, memory: Any, rows: int, length: int) -> DecoderCarry:
        """Returns the state before the first step; see `EncoderDecoder.start`."""
        carry = super().start(memory, rows, length)
        if self.cross_attention.function.stepwise:
            weights = jnp.zeros_like(memory.mask, memory.keys.dtype)
            carry = carry._replace(attention=_repeat(weights, rows))
        if self.input_feeding:
            shape = (len(memory.mask), rows, memory.values.shape[-1])
            carry = carry._replace(feed=jnp.zeros(shape, memory.values.dtype))
        return carry

    @nn.nowrap
    def weigh(
        self,
        source: AttendedSource,
        query: jax.Array,
        carry: DecoderCarry,
        x: StepInput,
    ) -> AlignmentOutput:
        """Computes a step's weights align(score(s, h)); see `SourceAttention.weigh`."""
        return self.cross_attention.weigh(
            source, query, time=carry.time, previous=carry.attention, rng=x.rng
        )

    def source_attention(self, keys: str = "source") -> SourceAttention:
        """Creates the attention to the source; for use in `setup`."""
        score = Score(
            self.score,
            hidden=self.score_hidden,
            max_length=self.max_length,
            filters=self.filters,
            filter_width=self.filter_width,
            matrix_init=self.inits.score,
            vector_init=self.inits.score_vector,
        )
        alignment = Alignment(
            self.alignment,
            hidden=self.score_hidden,
            window=self.window,
            temperature=self.temperature,
            params_init=self.inits.score,
        )
        return SourceAttention(
            score,
            alignment,
            self.hidden,
            self.inits.kernel,
            score_gradient=self.score_gradient,
            keys=keys,
        )
