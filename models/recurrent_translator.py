"""What recurrent translators share: how they look at the source, the ends of a decoder.

A decoder of this kind is three things: what it does in one step (`advance`), what it
reads of the source, and how a step becomes a prediction (`readout`). The models of
`seq2seq.py`, `bahdanau.py` and `luong.py` say these three; `RecurrentTranslator` makes
a translator of them, trained by one scan over the target and decoded step by step.

Axes: those of `models.recurrent`; D is also the width of the query, F that of a key.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS
from attention.core import Attention
from attention.scores import SCORES
from models.attention import DRAWN, Aligned, Alignment, Score
from models.layers import BOS, Dense, Dropout, check_fields
from models.recurrent import CELLS, STANDARD, Gates, Init, scan


class SourceAttention(nn.Module):
    """How a recurrent decoder looks at the annotations: any score, any alignment.

    Attributes:
        score: a key of `attention.scores.SCORES`.
        alignment: a key of `attention.alignments.ALIGNMENTS`.
        width: D of the query.
        score_hidden: A of the additive score and of the predicted position.
        max_length: L of the location score.
        window: D of the local alignments.
        temperature: of the Gumbel alignment.
        inits: how its parameters start.
    """

    score: str
    alignment: str
    width: int
    score_hidden: int
    max_length: int
    window: int
    temperature: float
    inits: Init

    def setup(self):
        self.scores = Score(
            self.score,
            hidden=self.score_hidden,
            max_length=self.max_length,
            matrix_init=self.inits.score,
            vector_init=self.inits.score_vector,
        )
        self.align = Alignment(
            self.alignment,
            hidden=self.score_hidden,
            window=self.window,
            temperature=self.temperature,
            params_init=self.inits.score,
        )

        if SCORES[self.score].same_width:
            self.narrow = Dense(
                self.width, kernel_init=self.inits.kernel, use_bias=False
            )

    def parameters(self, annotations: int) -> dict[str, Any]:
        """Returns what `look` needs, a pytree, for annotations of this width E."""
        if SCORES[self.score].same_width:
            annotations = self.width
        return {
            "score": self.scores.parameters(self.width, annotations),
            "align": self.align.parameters(self.width),
        }

    def project(self, annotations: jax.Array) -> jax.Array:
        """Returns the keys [B, S, F] of annotations [B, S, E]: once a source.

        A score that compares vectors of one width gets annotations of another (of both
        directions) through a matrix W [E, D] first.
        """
        score = SCORES[self.score]
        if score.same_width and annotations.shape[-1] != self.width:
            annotations = self.narrow(annotations)
        parameters = self.scores.parameters(self.width, annotations.shape[-1])
        return score.project(annotations, **parameters)

    @nn.nowrap
    def look(self, parameters, keys, mask, query, time, rng, soft=None):
        """Aligns queries with keys, by nothing but its arguments and fields.

        Args:
            parameters: from `parameters`.
            keys: [B, S, F] from `project`.
            mask: [B, S] bool, False at padding.
            query: [B, R, D].
            time: int scalar, the step.
            rng: see `Alignment.weigh`.
            soft: the same.

        Returns:
            `Aligned`, of weights [B, R, S].
        """
        scores = SCORES[self.score].compare(query, keys, **parameters["score"])
        return self.align.weigh(
            parameters["align"],
            scores,
            query=query,
            time=time,
            mask=mask[:, None],
            rng=rng,
            soft=soft,
        )

    def record(self, found: Aligned) -> None:
        """Sows what a pass [B, T, ...] found, of one head: [B, 1, T, ...]."""
        jax.tree.map(lambda x: x[:, None], found).record(self)


class Carry(NamedTuple):
    """State of a recurrent decoder; all but `time` have the axes [B, R, ...]."""

    time: jax.Array  # int scalar
    states: tuple[jax.Array, ...]  # a layer: [B, R, states D]
    feed: jax.Array | None = None  # [B, R, D], what is fed to the next step

    def take(self, parents: jax.Array) -> "Carry":
        """Goes on from rows `parents` [B, R]."""

        def pick(x):
            return jnp.take_along_axis(x, parents[..., None], axis=1)

        return Carry(self.time, *jax.tree.map(pick, (self.states, self.feed)))


class Step(NamedTuple):
    """What a step leaves for the readout: [B, R, ...] each, or [B, T, ...] of all."""

    state: jax.Array  # [..., D]
    found: Aligned | None = None  # None without attention
    context: jax.Array | None = None  # [..., E], where it is not what the weights read


class RecurrentTranslator(nn.Module):
    """An encoder and a decoder that take a step a token.

    Batches are dicts of int32 `source` [B, S] and `target` [B, T], ids 0 = padding,
    1 = start, 2 = end, one sentence a row; both end in 2, and the start is added here.

    A subclass has `encode`, which returns a `memory` with what each layer starts from
    as `memory.start`; `stack` (a `Stack`); `alignment` (empty without attention); and
    of its decoder

    *   `weights(memory)` and `shared(memory)`, see `scan`;
    *   `advance(product, shared, carry, (gates [B, R, G], noise, rng)) -> (carry,
        Step)`, a pure function marked `nn.nowrap`; noise is the dropout mask of
        `stack`, rng what an alignment draws with, and each may be None;
    *   `readout(embedded, step, memory, *, train) -> logits [B, T, W]`.

    Attributes:
        vocab_size: W, of the joint vocabulary.
        cell: a key of `CELLS`.
        embedding: C.
        hidden: D, of each direction of the encoder and of the decoder.
        dropout: of embeddings, between layers and of what the output matrix
            multiplies; never from step to step (Zaremba et al. 2014).
        init_scheme: "standard" (Glorot, orthogonal, forget gates open), or "paper".
        share_embeddings: one matrix for source and target.

    Raises:
        ValueError: when it is built, for a field that is out of range.
    """

    vocab_size: int
    cell: str
    embedding: int
    hidden: int
    dropout: float
    init_scheme: str
    share_embeddings: bool

    packs: ClassVar[bool] = False
    paper_init: ClassVar[Init]
    choices: ClassVar[dict[str, tuple[str, ...]]] = {}  # what a field takes
    positive: ClassVar[tuple[str, ...]] = ("embedding", "hidden")

    def setup(self):
        """Checks the fields and creates what all translators have."""
        choices = {"init_scheme": ("standard", "paper"), "cell": tuple(CELLS)}
        check_fields(self, choices | self.choices, self.positive)
        self.inits = self.paper_init if self.init_scheme == "paper" else STANDARD
        names = ("source_embedding", "target_embedding")
        names = ("embedding_table",) if self.share_embeddings else names
        shape = (self.vocab_size, self.embedding)
        self.tables = [self.param(n, self.inits.embedding, shape) for n in names]
        self.drop = Dropout(self.dropout)
        self.gates = Gates(self.cell, self.hidden, self.inits)

    def __call__(self, batch: dict[str, jax.Array], *, train: bool) -> jax.Array:
        """Logits of every target token given those before it.

        Args:
            batch: `source` [B, S] and `target` [B, T] int32.
            train: whether dropout is on (stream "dropout"). A hard alignment draws
                where there is a stream "alignment".

        Returns:
            [B, T, W] float32 logits; position t predicts `target[:, t]`.
        """
        memory = self.encode(batch["source"], train=train)
        target = batch["target"]
        steps = target.shape[1]
        previous = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
        embedded = self._embed(previous, train=train)
        noise = self.stack.noise(steps, target.shape[0]) if train else None
        rngs = None
        if self.alignment in DRAWN and self.has_rng("alignment"):
            rngs = jax.random.split(self.make_rng("alignment"), steps)
        gates = jnp.swapaxes(self.gates(embedded), 0, 1)[:, :, None]
        _, step = scan(
            self.advance,
            *(self.weights(memory), self.shared(memory)),
            *(self.start(memory, 1, steps), (gates, noise, rngs)),
        )
        # [T, B, 1, ...] to [B, T, ...]
        step = jax.tree.map(lambda x: jnp.swapaxes(x[:, :, 0], 0, 1), step)
        if step.found is not None:
            self.cross_attention.record(step.found)
        return self.readout(embedded, step, memory, train=train)

    def start(self, memory: Any, rows: int, length: int) -> Carry:
        """State before the first step of `rows` equal hypotheses a source."""
        del length  # nothing here grows with it

        def repeat(x):
            return jnp.broadcast_to(x[:, None], (x.shape[0], rows, *x.shape[1:]))

        return Carry(jnp.zeros((), jnp.int32), jax.tree.map(repeat, memory.start))

    def step(
        self, carry: Carry, token: jax.Array, memory: Any
    ) -> tuple[Carry, jax.Array, Attention | None]:
        """One decoding step; a whole pass gives the same logits.

        Args:
            carry: from `start` or the step before.
            token: [B, R] int32, the last token of each hypothesis; first the start id.
            memory: from `encode`; shared by the R hypotheses of a source.

        Returns:
            The next carry, logits [B, R, W] float32, and what it read: context
            [B, R, E] and weights [B, R, S]; None without attention.
        """
        embedded = self._embed(token, train=False)
        weights = self.weights(memory)
        carry, step = self.advance(
            lambda x, name: x @ weights[name],
            self.shared(memory),
            carry,
            (self.gates(embedded), None, None),
        )
        logits = self.readout(embedded, step, memory, train=False)
        if step.found is None:
            return carry, logits, None
        weights = step.found.weights
        return carry, logits, Attention(weights @ memory.annotations, weights)

    def _embed(self, ids, *, train, source=False):
        table = self.tables[0 if source else -1]
        return self.drop(table[ids], train=train)


class Memory(NamedTuple):
    """An encoded source to be attended to, projected once for all steps."""

    annotations: jax.Array  # [B, S, E], h_j
    mask: jax.Array  # [B, S] bool
    keys: jax.Array  # [B, S, F]
    values: jax.Array  # [B, S, V], each annotation times what multiplies a context
    start: tuple[jax.Array, ...]  # a layer: [B, states D]


class AttentiveTranslator(RecurrentTranslator):
    """A translator whose decoder looks at the source; `encode` returns a `Memory`.

    Attributes:
        score: a key of `attention.scores.SCORES`.
        alignment: a key of `attention.alignments.ALIGNMENTS`.
        score_hidden: A of the additive score, and of the predicted position.
        max_length: L of the location score.
        window: D of the local alignments.
        temperature: of the Gumbel alignment.
    """

    score: str
    alignment: str
    score_hidden: int
    max_length: int
    window: int
    temperature: float

    choices: ClassVar = {"score": tuple(SCORES), "alignment": tuple(ALIGNMENTS)}
    positive: ClassVar = (
        *RecurrentTranslator.positive,
        *("score_hidden", "max_length", "window"),
    )

    def setup(self):
        """See `RecurrentTranslator`."""
        super().setup()
        self.cross_attention = SourceAttention(
            *(self.score, self.alignment, self.hidden, self.score_hidden),
            *(self.max_length, self.window, self.temperature, self.inits),
        )

    def shared(self, memory):
        """What a step reads besides: what `look` and the stack need."""
        parameters = self.cross_attention.parameters(memory.annotations.shape[-1])
        return (parameters, memory.keys, memory.mask), self.stack.biases()
