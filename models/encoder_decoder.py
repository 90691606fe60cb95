"""Recurrent encoder-decoders: source attention, teacher-forced pass, decoding step.

`EncoderDecoder` is the base of the models in `bahdanau.py`, `luong.py`, `seq2seq.py`
and `captioner.py`: it embeds tokens, scans over the target in training and decodes step
by step. A model adds its encoder, the step of its decoder (`advance`, the equations of
its paper) and the readout.

Axes: those of `models.recurrent`; D is also the width of a query; F width of a key;
W vocabulary.
"""

from typing import Any, ClassVar, NamedTuple

import flax
import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS
from attention.core import Attention
from models.attention import DRAWN, SCORES, Aligned, Alignment, Score
from models.cells import CELLS, batch_first, time_first
from models.layers import BOS, Dense, Dropout, check_fields
from models.recurrent import STANDARD, Gates, Init
from ops.scan import scan

# Accepted values of the fields that choose an attention, for `check_fields`.
ATTENTION_CHOICES = {"score": tuple(SCORES), "alignment": tuple(ALIGNMENTS)}


class Memory(NamedTuple):
    """An encoded source to attend to, projected once for all steps."""

    annotations: jax.Array  # [B, S, E], h_j
    mask: jax.Array  # [B, S] bool, False at padding
    keys: jax.Array  # [B, S, F]
    values: jax.Array  # [B, S, any], annotations times the matrix of the context
    start: tuple[jax.Array, ...]  # [B, states D] of each layer


@flax.struct.dataclass
class Source:
    """A source with the learned score and alignment, a pytree shared by all steps.

    Attributes:
        keys: [B, S, F].
        mask: [B, S] bool, False at padding.
        score_parameters: parameters of the score function, by name.
        align_parameters: parameters of the alignment, by name.
        soft: bool scalar; see `models.attention.Alignment.weigh`.
        row: a key of `SCORES`.
        alignment: settings of the alignment.
    """

    keys: jax.Array
    mask: jax.Array
    score_parameters: dict[str, jax.Array]
    align_parameters: dict[str, jax.Array]
    soft: jax.Array | None
    row: str = flax.struct.field(pytree_node=False)
    alignment: Alignment = flax.struct.field(pytree_node=False)

    def score(self, query: jax.Array) -> jax.Array:
        """Scores [B, R, S] of queries [B, R, D]."""
        compare = SCORES[self.row].compare
        return compare(query, self.keys, **self.score_parameters)

    def align(
        self,
        scores: jax.Array,
        query: jax.Array,
        time: jax.Array,
        rng: jax.Array | None = None,
    ) -> Aligned:
        """Attention weights of scores.

        Args:
            scores: [B, R, S] from `score`.
            query: [B, R, D]; local-p predicts its position from it.
            time: int scalar, the step.
            rng: a PRNG key for a random alignment; None for the most probable key.

        Returns:
            Weights [B, R, S] and the alignment's by-products [B, R].
        """
        return self.alignment.weigh(
            self.align_parameters,
            scores,
            query=query,
            time=time,
            mask=self.mask[:, None],
            rng=rng,
            soft=self.soft,
        )


class SourceAttention(nn.Module):
    """Parameters of a decoder's attention to the source: any score, any alignment.

    If the score needs keys of the query's width, annotations of another width (those of
    both directions) are projected to it by a matrix [E, D].

    Attributes:
        score: a key of `attention.scores.SCORES`.
        alignment: a key of `attention.alignments.ALIGNMENTS`.
        width: D of the query.
        hidden: A of the additive score and of the predicted position.
        max_length: L of the location score.
        window: D of the local alignments.
        temperature: temperature of the Gumbel alignment.
        inits: initializers.
        keys: meaning of the keys' axis; see `models.records.AttentionRecord`.
    """

    score: str
    alignment: str
    width: int
    hidden: int
    max_length: int
    window: int
    temperature: float
    inits: Init
    keys: str = "source"

    def setup(self):
        self.scores = Score(
            self.score,
            hidden=self.hidden,
            max_length=self.max_length,
            matrix_init=self.inits.score,
            vector_init=self.inits.score_vector,
        )
        self.align = Alignment(
            self.alignment, hidden=self.hidden, params_init=self.inits.score
        )
        if SCORES[self.score].same_width:
            self.narrow = Dense(
                self.width, kernel_init=self.inits.kernel, use_bias=False
            )

    @property
    def draws(self) -> bool:
        """True if the alignment draws at random when it gets an rng."""
        return self.alignment in DRAWN

    def project(self, annotations: jax.Array) -> jax.Array:
        """Keys [B, S, F] of annotations [B, S, E], once per source."""
        score = SCORES[self.score]
        if score.same_width and annotations.shape[-1] != self.width:
            annotations = self.narrow(annotations)
        parameters = self.scores.parameters(self.width, annotations.shape[-1])
        return score.project(annotations, **parameters)

    def source(self, memory: Memory, soft: jax.Array | None = None) -> Source:
        """The source as a step attends to it.

        Args:
            memory: a memory with keys from `project`.
            soft: see `Source`.
        """
        same_width = SCORES[self.score].same_width
        width = self.width if same_width else memory.annotations.shape[-1]
        return Source(
            keys=memory.keys,
            mask=memory.mask,
            score_parameters=self.scores.parameters(self.width, width),
            align_parameters=self.align.parameters(self.width),
            soft=soft,
            row=self.score,
            alignment=Alignment(
                self.alignment,
                window=self.window,
                temperature=self.temperature,
                parent=None,
            ),
        )

    def record(self, aligned: Aligned) -> None:
        """Sow the alignment [B, T, ...] of a pass as one head, [B, 1, T, ...]."""
        jax.tree.map(lambda x: x[:, None], aligned).record(
            self, kind="cross", layer=0, queries="target", keys=self.keys
        )


class StepInput(NamedTuple):
    """Inputs of a decoder's step."""

    gates: jax.Array  # [B, R, G], W y_{t-1} + b of the last token
    noise: tuple[jax.Array, ...] | None = None  # dropout masks; see `Stack.noise`
    rng: jax.Array | None = None  # PRNG key for a random alignment


class Carry(NamedTuple):
    """State of a decoder; all but `time` have the axes [B, R, ...]."""

    time: jax.Array  # int scalar, from 0
    states: tuple[jax.Array, ...]  # [B, R, states D] of each layer
    feed: jax.Array | None = None  # [B, R, D], input feeding

    def take(self, parents: jax.Array) -> "Carry":
        """Continue from the hypotheses `parents` [B, R]."""

        def pick(x):
            return jnp.take_along_axis(x, parents[..., None], axis=1)

        return Carry(self.time, *jax.tree.map(pick, (self.states, self.feed)))


class Step(NamedTuple):
    """Results of a step, [B, R, ...], or of all steps, [B, T, ...]."""

    state: jax.Array  # [..., D], the decoder's state for the readout
    aligned: Aligned | None = None  # None without attention
    context: jax.Array | None = None  # [..., E], where the step computes it

    def read(self, annotations: jax.Array) -> jax.Array:
        """Contexts c_t = sum_j alpha_tj h_j, [..., E].

        A step that only needs W c_t can use W h_j, computed once per source. The
        contexts are then left to this function: one product for all steps, which is
        faster than a thin one in each.
        """
        if self.context is not None:
            return self.context
        return self.aligned.weights @ annotations


class EncoderDecoder(nn.Module):
    """Base class of encoder-decoders with a recurrent decoder.

    A subclass declares its fields with the paper's values, creates in `setup`

    *   `target_table`, and a source table if it has one, by `tables`;
    *   `stack`, a `Stack` with the layers of the decoder;
    *   `cross_attention`, a `SourceAttention`, if it attends to the source,

    and defines the methods `encode`, `weights`, `shared`, `advance` and `readout`. The
    memory that `encode` returns has a field `start`, the first carry of each layer.

    Attributes:
        vocab_size: W.
        cell: a key of `models.cells.CELLS`.
        embedding: C.
        hidden: D.
        dropout: rate at embeddings, between layers and before the output matrix; never
            on recurrent connections (Zaremba et al. 2014).
        init_scheme: "standard" (Glorot, orthogonal, forget gates open), or "paper".

    Raises:
        FieldError: when it is initialised or applied, for a field out of range.
    """

    vocab_size: int
    cell: str
    embedding: int
    hidden: int
    dropout: float
    init_scheme: str

    packs: ClassVar[bool] = False  # a state belongs to one sentence
    draws: ClassVar[bool] = False  # see `models.transformer.Transformer`
    paper_init: ClassVar[Init]

    def setup(self):
        """Check the shared fields and create the shared parts."""
        choices = {"init_scheme": ("standard", "paper"), "cell": tuple(CELLS)}
        check_fields(self, choices, ("embedding", "hidden"))
        self.inits = self.paper_init if self.init_scheme == "paper" else STANDARD
        self.drop = Dropout(self.dropout)
        self.gates = Gates(self.cell, self.hidden, self.inits)
        self.cross_attention = None

    def tables(self, *, share: bool) -> tuple[jax.Array, jax.Array]:
        """Create the embeddings [W, C] of source and target; call it in `setup`."""
        names = ("source_embedding", "target_embedding")
        names = ("embedding_table",) if share else names
        shape = (self.vocab_size, self.embedding)
        tables = [self.param(name, self.inits.embedding, shape) for name in names]
        return tables[0], tables[-1]

    def encode(self, source: jax.Array, *, train: bool = False) -> Any:
        """Encode sources [B, ...] to a memory."""
        raise NotImplementedError

    def weights(self, memory: Any) -> Any:
        """Weight matrices used inside the step, a pytree; see `ops.scan.scan`."""
        raise NotImplementedError

    def shared(self, memory: Any) -> Any:
        """Other arrays used inside the step, a pytree."""
        raise NotImplementedError

    @nn.nowrap
    def advance(
        self, w: Any, shared: Any, carry: Carry, x: StepInput
    ) -> tuple[Carry, Step]:
        """One step of the decoder, a pure function of its arguments.

        Args:
            w: result of `weights`, or handles of it; see `ops.scan.scan`.
            shared: result of `shared`.
            carry: from `start` or the previous step.
            x: inputs of the step.
        """
        raise NotImplementedError

    def readout(
        self, embedded: jax.Array, step: Step, memory: Any, *, train: bool
    ) -> jax.Array:
        """Logits [B, T, W] of all steps at once.

        Args:
            embedded: [B, T, C], embedding of each step's previous token.
            step: results of all steps, [B, T, ...].
            memory: from `encode`.
            train: whether dropout is on.
        """
        raise NotImplementedError

    def __call__(self, batch: dict[str, jax.Array], *, train: bool) -> jax.Array:
        """Logits of every target token given those before it.

        Args:
            batch: `source`, for `encode`, and `target` [B, T] int32 with the end token
                (2) and padding (0); the start token (1) is added here.
            train: whether dropout is on (stream "dropout"). A random alignment draws if
                there is a stream "alignment".

        Returns:
            [B, T, W] float32 logits; position t predicts `target[:, t]`.
        """
        memory = self.encode(batch["source"], train=train)
        size, steps = batch["target"].shape
        previous = jnp.pad(
            batch["target"][:, :-1], ((0, 0), (1, 0)), constant_values=BOS
        )
        embedded = self.drop(self.target_table[previous], train=train)
        noise = self.stack.noise(steps, size) if train else None
        rngs = None
        if self._draws():
            rngs = jax.random.split(self.make_rng("alignment"), steps)
        _, step = scan(
            self.advance,
            self.weights(memory),
            self.shared(memory),
            self.start(memory, 1, steps),
            StepInput(time_first(self.gates(embedded)), noise, rngs),
        )
        step = jax.tree.map(batch_first, step)
        if step.aligned is not None:
            self.cross_attention.record(step.aligned)
        return self.readout(embedded, step, memory, train=train)

    def start(self, memory: Any, rows: int, length: int) -> Carry:
        """State before the first step of `rows` equal hypotheses per source."""
        del length  # no part of the state grows with it

        def repeat(x):
            return jnp.broadcast_to(x[:, None], (x.shape[0], rows, *x.shape[1:]))

        return Carry(jnp.zeros((), jnp.int32), jax.tree.map(repeat, memory.start))

    def step(
        self, carry: Carry, token: jax.Array, memory: Any
    ) -> tuple[Carry, jax.Array, Attention | None]:
        """One decoding step; a whole pass gives the same logits.

        Args:
            carry: from `start` or the previous step.
            token: [B, R] int32, the previous token of each hypothesis; first the start
                id.
            memory: from `encode`; shared by the R hypotheses of a source.

        Returns:
            The next carry, logits [B, R, W] float32, and the attention: context
            [B, R, E] and weights [B, R, S]; None without attention.
        """
        embedded = self.drop(self.target_table[token], train=False)
        x = StepInput(self.gates(embedded))
        carry, step = self.advance(self.weights(memory), self.shared(memory), carry, x)
        attention = None
        if step.aligned is not None:
            step = step._replace(context=step.read(memory.annotations))
            attention = Attention(step.context, step.aligned.weights)
        return carry, self.readout(embedded, step, memory, train=False), attention

    def _draws(self) -> bool:
        """Returns whether a random alignment draws in this pass."""
        attention = self.cross_attention
        return attention is not None and attention.draws and self.has_rng("alignment")
