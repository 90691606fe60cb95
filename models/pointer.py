"""Pointer networks, with the read-process-write encoder and glimpses.

Vinyals, Fortunato and Jaitly (2015), section 2.3: a sequence-to-sequence model with a
softmax over its inputs, u_ij = v tanh(W_1 e_j + W_2 d_i), p(C_i = j) = softmax_j(u_i);
the selected input enters the next step. Their two baselines have a softmax over
`max_inputs` + 1 classes instead. Order Matters (Vinyals, Bengio and Kudlur 2016,
section 4) adds an encoder that is invariant to the order of its inputs, and glimpses:
attention reads that update the query before it points.

Token 0 is the start symbol at the decoder's input and the end symbol at its output;
token k is input k - 1. The end symbol is a learned vector e_0 alongside the e_j;
the paper leaves this open.

Differs from the papers: inputs enter through a learned linear embedding; a glimpse
reads the inputs but not e_0; its context is added to the query, a choice that the paper
leaves open (replacing the query learns more slowly); the process block initialises the
decoder through a tanh layer; the context of the attention baseline enters the
classifier, but not the next step; biases start at 0, or with the standard
initialisation at 1 in forget gates.

Axes: B instances; S inputs, padded; T pointers; R hypotheses that share an instance;
Q queries, T or R; F features of an input; C width of an embedding; D width of a state;
A hidden width of a score; G width of a cell's gates.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import attend, masked_scores, masked_softmax
from attention.fast.linear import linear
from attention.fast.scan import Matrix, scan
from attention.scores import SCORES
from base.errors import FieldError
from base.ranges import DEPTH, SIZE, Choice
from base.records import ScoreDetails
from models.attention import Score
from models.cells import CELLS, CellMatrices, run_cell, time_first
from models.encoder_decoder import DecoderCarry
from models.initializers import STANDARD, Init, uniform_init
from models.layers import Dense, check_fields
from models.recording import score_details, sow_attention
from models.recurrent import Gates, StateMatrices


class PointerMemory(NamedTuple):
    """Encoded inputs, projected once for all steps."""

    entries: jax.Array  # [B, S + 1, F + 1], the decoder's input for each token
    annotations: jax.Array  # [B, S + 1, D], e_0 and the e_j
    mask: jax.Array  # [B, S + 1] bool, False at padding
    keys: tuple[jax.Array, ...]  # [B, S + 1, A or D], W_1 e_j for each score
    start: jax.Array  # [B, carry_width D], initial carry of the decoder


class Table(nn.Module):
    """Linear embedding of the inputs, and the embedding of the start symbol.

    Attributes:
        embedding: C.
        inits: initializers.
    """

    embedding: int
    inits: Init

    @nn.compact
    def __call__(self, features: int) -> jax.Array:
        """Returns the table [F + 1, C] for F features; the start symbol comes last."""
        shape = (features, self.embedding)
        inputs = self.param("inputs", self.inits.kernel, shape)
        start = self.param("start", self.inits.embedding, (1, self.embedding))
        return jnp.concatenate([inputs, start])


class ProcessMatrices(NamedTuple):
    """Matrices of a process step."""

    q: CellMatrices  # the half of the LSTM's matrix for q
    r: Matrix  # [D, G], its half for r
    m: Matrix  # [B, S, D], m_i


class Process(nn.Module):
    """Process block: Vinyals et al. (2016), section 4.2, eqs. 3 to 7.

    The block is an LSTM without inputs whose state is q*_t = [q_t, r_t]. Its matrix for
    q* is stored in two parts: the cell's recurrent matrix multiplies q, its input
    matrix r.

    Attributes:
        cell: a key of `CELLS`.
        features: D, width of q and r.
        steps: P, number of process steps.
        score: the score function f of eq. 4.
        inits: initializers.
    """

    cell: str
    features: int
    steps: int
    score: Score
    inits: Init

    @nn.compact
    def __call__(self, m: jax.Array, mask: jax.Array) -> jax.Array:
        """Returns the last state q*_P [B, 2 D] for m_i [B, S, D] and mask [B, S]."""
        cell, score, n = CELLS[self.cell], SCORES[self.score.function], self.features
        kernel, bias = Gates(self.cell, n, self.inits, name="input").parameters(n)
        states = StateMatrices(self.cell, n, self.inits, name="state")()
        parameters = self.score.parameters(n, n)

        def step(
            w: ProcessMatrices, shared: Any, carry: Any, _: jax.Array
        ) -> tuple[Any, None]:
            bias, keys, mask, parameters = shared
            state, r = carry
            state = cell.step(r @ w.r + bias, state, w.q)  # eq. 3, q_t = LSTM(q*_{t-1})
            q = state[..., :n]
            query = score.project_query(q, **parameters)
            e = score.compare(query, keys, **parameters)  # eq. 4, e_i = f(m_i, q)
            a = masked_softmax(e, mask)  # eq. 5
            r = a @ w.m  # eq. 6
            return (state, r), None  # eq. 7, q*_t = [q_t, r_t]

        shared = bias, score.project(m, **parameters), mask[:, None], parameters
        state = jnp.zeros((len(m), 1, cell.carry_width * n), m.dtype)
        carry = state, state[..., :n]
        (state, r), _ = scan(
            step,
            ProcessMatrices(states, kernel, m),
            shared,
            carry,
            jnp.arange(self.steps),
        )
        return jnp.concatenate([state[..., :n], r], axis=-1)[:, 0]


class Readout(NamedTuple):
    """Outputs of a decoder's steps."""

    logits: jax.Array  # [B, Q, S + 1], -inf at padding
    weights: jax.Array | None  # [B, Q, S + 1], of the pointer or of a baseline's read
    details: Callable[[], ScoreDetails | None] | None  # of the weights' record


class OutputLayer(nn.Module):
    """Base class of the output layers; its parameters are in the network's scope.

    Attributes:
        score: creates a score.
        inits: initializers.
        features: D.
        glimpses: number of attention reads.
    """

    score: Callable[[], Score]
    inits: Init
    features: int
    glimpses: int

    def setup(self):
        self.reads = [self.score() for _ in range(self.glimpses)]

    @property
    def scores(self) -> Sequence[Score]:
        """The scores whose keys `PointerMemory` has."""
        return self.reads


class Pointer(OutputLayer):
    """Softmax over the inputs: Vinyals et al. (2015), section 2.3."""

    kind: ClassVar[str] = "pointer"  # of the record

    def setup(self):
        super().setup()
        self.pointer = self.score()
        self.end = self.param("end", self.inits.embedding, (1, self.features))

    @property
    def scores(self) -> Sequence[Score]:
        """See `OutputLayer`; the pointer's score is the first."""
        return self.pointer, *self.reads

    def __call__(self, d: jax.Array, memory: PointerMemory) -> Readout:
        """Points from states d_i [B, Q, D]; glimpses update d_i first."""
        e, mask = memory.annotations, memory.mask[:, None]
        keys, *glimpse_keys = memory.keys  # W_1 e_j
        for score, glimpse_key in zip(self.reads, glimpse_keys, strict=True):
            u = score.compare(d, glimpse_key, self.features)
            # d_i + sum_j softmax_j(u_i) e_j
            d = d + attend(u, e, mask=_without_end(mask)).context
        # u_ij = v tanh(W_1 e_j + W_2 d_i)
        u = self.pointer.compare(d, keys, self.features)
        p = masked_softmax(u, mask)  # p(C_i = j) = softmax_j(u_i)
        details = functools.partial(_details, self.pointer, d, e, mask)
        return Readout(masked_scores(u, mask), p, details)


class Classes(OutputLayer):
    """Softmax over fixed classes, of which the end symbol is one: the baselines.

    Attributes:
        max_inputs: number of the other classes.
    """

    max_inputs: int

    kind: ClassVar[str] = "cross"

    def setup(self):
        super().setup()
        self.classes = Dense(self.max_inputs + 1, kernel_init=self.inits.kernel)
        self.end = jnp.zeros((1, self.features))

    def __call__(self, d: jax.Array, memory: PointerMemory) -> Readout:
        """Classifies states d_i [B, Q, D] and what they attend to."""
        e, mask, x = memory.annotations, memory.mask[:, None], d
        weights = details = None
        for score, keys in zip(self.reads, memory.keys, strict=True):  # at most one
            inputs, u = _without_end(mask), score.compare(d, keys, self.features)
            context, weights = attend(u, e, mask=inputs)  # d'_i = sum_j a_ij e_j
            x = jnp.concatenate([d, context], axis=-1)  # [d_i; d'_i]
            details = functools.partial(_details, score, d, e, inputs)
        classes = self.classes(x)[..., : mask.shape[-1]]
        return Readout(masked_scores(classes, mask), weights, details)


class PointerNetwork(nn.Module):
    """Pointer network or baseline; see the module's docstring.

    A batch is a dict of `inputs` [B, S, F] float32, `lengths` [B] int32 and `target`
    [B, T] int32, whose first 0 is the end symbol. The defaults follow Vinyals et al.
    (2015), section 4.1, except the embedding, which the paper does not have.

    Attributes:
        encoder: encoder of the inputs: "recurrent", one layer of `cell` over the inputs
            in their order, or "process", invariant to their order with any score but
            "location".
        process_steps: P, number of steps of the process block.
        output: output layer: "pointer", or a baseline with a softmax over fixed
            classes, computed from the decoder's state and an attention read
            ("attention") or from the state alone ("none").
        glimpses: number of attention reads before each pointer.
        score: score of pointer, reads and process block; see `attention.scores`.
        cell: recurrent cell.
        embedding: C, width of the embedded inputs.
        hidden: D, width of encoder and decoder.
        score_hidden: A, hidden width of a score that has one.
        max_inputs: maximum number of inputs of a baseline and of the location score.
        init_scheme: initialisation: "standard" (Glorot, orthogonal, forget gates open),
            or "paper" (uniform in [-0.08, 0.08]).
    """

    encoder: Literal["recurrent", "process"] = "recurrent"
    process_steps: Annotated[int, DEPTH] = 5
    output: Literal["pointer", "attention", "none"] = "pointer"
    glimpses: Annotated[int, DEPTH] = 0
    score: Annotated[str, Choice(SCORES)] = "additive"
    cell: Annotated[str, Choice(CELLS)] = "lstm"
    embedding: Annotated[int, SIZE] = 256
    hidden: Annotated[int, SIZE] = 256
    score_hidden: Annotated[int, SIZE] = 256
    max_inputs: Annotated[int, SIZE] = 50
    init_scheme: Literal["standard", "paper"] = "paper"

    @nn.nowrap
    def check(self) -> None:
        """Checks rules between the fields."""
        if self.glimpses and self.output != "pointer":
            accepted = f"0 for output={self.output}, which has no pointer"
            raise FieldError("glimpses", self.glimpses, accepted)

    def setup(self):
        """Checks the fields and creates the submodules."""
        check_fields(self)
        inits = uniform_init(0.08) if self.init_scheme == "paper" else STANDARD
        n, cell = self.hidden, CELLS[self.cell]
        score = functools.partial(
            Score,
            self.score,
            hidden=self.score_hidden,
            max_length=self.max_inputs + 1,
            matrix_init=inits.score,
            vector_init=inits.score_vector,
        )
        self.table = Table(self.embedding, inits)
        if self.encoder == "recurrent":
            self.encoder_gates = Gates(self.cell, n, inits)
            self.encoder_state = StateMatrices(self.cell, n, inits)
        else:
            # The MLP of the read block, which makes the m_i.
            self.read = [Dense(n, kernel_init=inits.kernel) for _ in range(2)]
            self.process = Process(self.cell, n, self.process_steps, score(), inits)
            self.bridge = Dense(cell.carry_width * n, kernel_init=inits.kernel)
        self.decoder_gates = Gates(self.cell, n, inits)
        self.decoder_state = StateMatrices(self.cell, n, inits)
        if self.output == "pointer":
            self.readout = Pointer(score, inits, n, self.glimpses)
        else:
            glimpses = int(self.output == "attention")
            self.readout = Classes(score, inits, n, glimpses, self.max_inputs)
        nn.share_scope(self, self.readout)

    def __call__(self, batch: dict[str, jax.Array], *, train: bool) -> jax.Array:
        """Computes the logits of each pointer given the previous pointers.

        Sows an `AttentionRecord` of kind "pointer", or of kind "cross" for a baseline
        with attention.

        Args:
            batch: see the class.
            train: has no effect; nothing is random.

        Returns:
            [B, T, S + 1] float32 logits, -inf at padding; position t predicts
            `target[:, t]`.
        """
        memory = self.encode(batch)
        token = jnp.pad(batch["target"][:, :-1], ((0, 0), (1, 0)))
        gates = self._gates(
            self.decoder_gates, time_first(_entries_of(memory.entries, token))
        )
        states, _ = run_cell(
            CELLS[self.cell], gates, carry=memory.start, u=self.decoder_state()
        )
        # The recurrence does not depend on attention: all steps are read out at once.
        logits, weights, details = self.readout(states, memory)
        if weights is not None:
            names = {"kind": self.readout.kind, "queries": "steps", "keys": "inputs"}
            sow_attention(self, weights[:, None], details, **names)
        return logits

    def encode(self, batch: dict[str, jax.Array]) -> PointerMemory:
        """Encodes the inputs [B, S, F] of a batch; see the class.

        Raises:
            FieldError: in a baseline or with the location score, if there are more than
                `max_inputs` inputs.
        """
        inputs, lengths = batch["inputs"], batch["lengths"]
        size = inputs.shape[1]
        fixed = self.output != "pointer" or self.score == "location"
        if fixed and size > self.max_inputs:
            raise FieldError(
                "max_inputs", self.max_inputs, f"at least {size}, the number of inputs"
            )
        # An entry is a token's features and a flag of the start symbol; see `Table`.
        entries = jnp.pad(inputs, ((0, 0), (1, 0), (0, 1))).at[:, 0, -1].set(1)
        valid = jnp.arange(size) < lengths[:, None]
        read = self._in_order if self.encoder == "recurrent" else self._as_set
        outputs, start = read(entries[:, 1:], valid)
        end = jnp.broadcast_to(self.readout.end, (len(inputs), 1, self.hidden))
        annotations = jnp.concatenate([end, outputs], axis=1)
        return PointerMemory(
            entries=entries,
            annotations=annotations,
            mask=jnp.pad(valid, ((0, 0), (1, 0)), constant_values=True),
            keys=tuple(
                score.project(annotations, self.hidden)  # W_1 e_j
                for score in self.readout.scores
            ),
            start=start,
        )

    def _in_order(
        self, entries: jax.Array, mask: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Reads entries [B, S, F + 1]: e_j [B, S, D] and the last carry."""
        cell, u = CELLS[self.cell], self.encoder_state()
        gates = self._gates(self.encoder_gates, time_first(entries))
        zeros = jnp.zeros((len(entries), cell.carry_width * self.hidden), entries.dtype)
        return run_cell(cell, gates, carry=zeros, u=u, mask=mask)

    def _as_set(
        self, entries: jax.Array, mask: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Reads entries in any order: m_i [B, S, D], and a carry computed from q*_P."""
        first, second = self.read
        m = second(nn.relu(first(entries @ self.table(entries.shape[-1] - 1))))
        return m, nn.tanh(self.bridge(self.process(m, mask)))

    def start(self, memory: PointerMemory, rows: int, length: int) -> DecoderCarry:
        """Returns the initial state, for `rows` equal hypotheses per instance."""
        del length  # the state has a fixed size
        batch, width = memory.start.shape
        state = jnp.broadcast_to(memory.start[:, None], (batch, rows, width))
        return DecoderCarry(jnp.zeros((), jnp.int32), (state,))

    def step(
        self, carry: DecoderCarry, token: jax.Array, memory: PointerMemory
    ) -> tuple[DecoderCarry, jax.Array, jax.Array | None]:
        """Computes one decoding step; see `models.encoder_decoder.EncoderDecoder.step`.

        Tokens are pointers, 0 at first. Logits and weights are [B, R, S + 1], those of
        the pointer or of a baseline's read.
        """
        gates = self._gates(self.decoder_gates, _entries_of(memory.entries, token))
        state = CELLS[self.cell].step(gates, *carry.states, self.decoder_state())
        logits, weights, _ = self.readout(state[..., : self.hidden], memory)
        return carry.after((state,)), logits, weights

    def _gates(self, gates: Gates, entries: jax.Array) -> jax.Array:
        """Computes the contribution [..., G] of entries [..., F + 1] to the gates."""
        kernel, bias = gates.parameters(self.embedding)
        # W (E x) = (W E) x: with kernel W and table E multiplied first, the product
        # with an entry x sums over F + 1 features instead of C.
        folded = self.table(entries.shape[-1] - 1) @ kernel  # [F + 1, G]
        return linear(entries, folded) + bias


def _details(
    score: Score, d: jax.Array, e: jax.Array, mask: jax.Array
) -> ScoreDetails | None:
    """Details of scores of states [B, Q, D] and annotations [B, S + 1, D]."""
    return score_details(score.parts(d[:, None], e[:, None]), mask[:, None])


def _without_end(mask: jax.Array) -> jax.Array:
    """Excludes e_0 from a mask [..., S + 1]."""
    return mask & (jnp.arange(mask.shape[-1]) > 0)


def _entries_of(entries: jax.Array, token: jax.Array) -> jax.Array:
    """Selects the entries [B, Q, F + 1] of tokens [B, Q]."""
    return jnp.take_along_axis(entries, token[..., None], axis=1)
