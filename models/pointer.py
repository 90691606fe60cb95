"""Pointer networks: Vinyals, Fortunato and Jaitly (2015); Order Matters (2016).

A sequence to sequence whose softmax is over its own inputs, so that it answers any
number of them: u_ij = v tanh(W_1 e_j + W_2 d_i), p(C_i = j) = softmax_j(u_i), and the
input pointed at enters the next step (Vinyals et al. 2015, section 2.3). The two
baselines of that paper have a softmax over `max_inputs` + 1 classes in its place. Order
Matters (Vinyals, Bengio and Kudlur 2016, section 4) adds an encoder that does not see
the order of its inputs, Read-Process-Write, and glimpses: attention reads that make the
query which points.

Token 0 is the end, at the decoder's input the start; token k is input k - 1. The end
is a learned vector e_0 among the e_j, which the paper leaves open.

What differs from the papers: inputs enter through a learned linear embedding; a glimpse
reads the inputs but not e_0, and what it read is added to the query, which the paper
leaves open (in place of the query it learns slower); what the process block found
reaches the decoder through a tanh layer; biases start at 0, but the forget gates'.

Axes: B instances; S inputs, padded; T pointers; R hypotheses that share an instance;
Q queries, T or R; F numbers an input; C width of an embedding; D width of a state;
A hidden width of a score; G width of a cell's gates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.core import Attention, attend, masked_scores, masked_softmax
from attention.scores import SCORES
from models.attention import Score
from models.layers import Dense, check_fields
from models.recurrent import (
    CELLS,
    STANDARD,
    CellWeights,
    Gates,
    Init,
    scan,
    uniform_init,
)
from ops.linear import linear


class Memory(NamedTuple):
    """Encoded inputs, projected once for all steps."""

    entries: jax.Array  # [B, S + 1, F + 1], what a token is at the decoder's input
    annotations: jax.Array  # [B, S + 1, D], e_0 and the e_j
    mask: jax.Array  # [B, S + 1] bool, what may be pointed at
    keys: tuple[jax.Array, ...]  # [B, S + 1, A or D], a score each
    start: jax.Array  # [B, states D]


class Carry(NamedTuple):
    """State of the decoder."""

    state: jax.Array  # [B, R, states D]

    def take(self, parents: jax.Array) -> "Carry":
        """Goes on from rows `parents` [B, R]."""
        return Carry(jnp.take_along_axis(self.state, parents[..., None], axis=1))


class Table(nn.Module):
    """The embedding of F numbers, and below it the vector of the start."""

    embedding: int
    inits: Init

    @nn.compact
    def __call__(self, numbers: int) -> jax.Array:
        """Returns [F + 1, C] for inputs of this many numbers."""
        shape = (numbers, self.embedding)
        inputs = self.param("inputs", self.inits.kernel, shape)
        start = self.param("start", self.inits.embedding, (1, self.embedding))
        return jnp.concatenate([inputs, start])


class Process(nn.Module):
    """Read and process: Order Matters, section 4.2, eqs. 3 to 7.

    q_t = LSTM(q*_{t-1}), r_t = sum_i a_it m_i with a_t = softmax_i(f(m_i, q_t)) and
    q*_t = [q_t; r_t]. The cell has no input: its state is q*, of which U multiplies
    both halves, which is a cell of state q and input r.

    Attributes:
        cell: a key of `CELLS`.
        features: D.
        steps: P, how often it reads.
        score: f.
        inits: how its parameters start.
    """

    cell: str
    features: int
    steps: int
    score: Score
    inits: Init

    @nn.compact
    def __call__(self, m: jax.Array, mask: jax.Array) -> jax.Array:
        """Reads m [B, S, D] with a mask [B, S]; returns q*_P [B, 2 D]."""
        cell, score, n = CELLS[self.cell], SCORES[self.score.row], self.features
        kernel, bias = Gates(self.cell, n, self.inits, name="input").parameters(n)
        states = CellWeights(self.cell, n, self.inits, name="state")()
        weights = {f"cell/{name}": u for name, u in states.items()}
        weights |= {"input": kernel, "values": m}
        parameters = self.score.parameters(n, n)
        shared = bias, score.project(m, **parameters), mask[:, None], parameters

        def step(product, shared, carry, _):
            (bias, keys, mask, parameters), (state, read) = shared, carry
            gates = product(read, "input") + bias
            state = cell.step(product, "cell", gates, state)
            scores = score.compare(state[..., :n], keys, **parameters)
            read = product(masked_softmax(scores, mask), "values")
            return (state, read), None

        state = jnp.zeros((len(m), 1, cell.states * n), m.dtype)
        carry = state, state[..., :n]
        (state, read), _ = scan(step, weights, shared, carry, jnp.arange(self.steps))
        return jnp.concatenate([state[..., :n], read], axis=-1)[:, 0]


class PointerNetwork(nn.Module):
    """Points at its inputs; see the module's docstring.

    Batches are dicts of `inputs` [B, S, F] float32, `lengths` [B] int32 and `target`
    [B, T] int32, whose first 0 is the end.

    Attributes:
        encoder: "recurrent", one layer of `cell` over the inputs in their order, or
            "process", which does not see the order.
        process_steps: P of the latter, at least 0.
        output: "pointer", or a baseline with a softmax over fixed classes: "attention"
            (of the decoder's state and what it reads) or "none" (of its state alone).
        glimpses: reads before each pointing.
        score: a key of `attention.scores.SCORES`, of all that looks at the inputs.
        cell: a key of `models.recurrent.CELLS`.
        embedding: C.
        hidden: D, of encoder and decoder.
        score_hidden: A of the additive score.
        max_inputs: the most inputs of a baseline and of the location score.
        init_scheme: "standard" (Glorot, orthogonal, forget gates open), or "paper".

    Raises:
        ValueError: when it is built, for a field that is out of range.
    """

    encoder: str
    process_steps: int
    output: str
    glimpses: int
    score: str
    cell: str
    embedding: int
    hidden: int
    score_hidden: int
    max_inputs: int
    init_scheme: str

    def setup(self):
        """Checks the fields and creates the parts."""
        choices = {
            "encoder": ("recurrent", "process"),
            "output": ("pointer", "attention", "none"),
            "score": tuple(SCORES),
            "cell": tuple(CELLS),
            "init_scheme": ("standard", "paper"),
        }
        sizes = ("embedding", "hidden", "score_hidden", "max_inputs")
        check_fields(self, choices, sizes)
        for name in ("glimpses", "process_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 0")
        if self.glimpses and self.output != "pointer":
            raise ValueError(
                f"glimpses is {self.glimpses}: must be 0 where output is "
                f"{self.output!r}, which does not point"
            )
        inits = uniform_init(0.08) if self.init_scheme == "paper" else STANDARD
        n, common = self.hidden, (self.cell, self.hidden, inits)
        self.table = Table(self.embedding, inits)
        if self.encoder == "recurrent":
            self.encoder_gates = Gates(*common)
            self.encoder_state = CellWeights(*common)
        else:
            self.read = [Dense(n, kernel_init=inits.kernel) for _ in range(2)]
            self.process = Process(
                *common[:2], self.process_steps, self._score(inits), inits
            )
            width = CELLS[self.cell].states * n
            self.bridge = Dense(width, kernel_init=inits.kernel)
        self.decoder_gates = Gates(*common)
        self.decoder_state = CellWeights(*common)
        reads = (
            self.glimpses if self.output == "pointer" else self.output == "attention"
        )
        self.reads = [self._score(inits) for _ in range(reads)]
        if self.output == "pointer":
            self.pointer = self._score(inits)
            self.end = self.param("end", inits.embedding, (1, n))
        else:  # the end is a class
            self.classes = Dense(self.max_inputs + 1, kernel_init=inits.kernel)
            self.end = jnp.zeros((1, n))

    def __call__(self, batch: dict[str, jax.Array], *, train: bool) -> jax.Array:
        """Logits of every pointer given those before it.

        Args:
            batch: see the class.
            train: of no effect: there is nothing random.

        Returns:
            [B, T, S + 1] float32 logits, -inf at padding; position t predicts
            `target[:, t]`.
        """
        memory = self.encode(batch, train=train)
        token = jnp.pad(batch["target"][:, :-1], ((0, 0), (1, 0)))
        gates = self._gates(self.decoder_gates, _in_time(_pick(memory.entries, token)))
        states, _ = _recur(self.cell, self.decoder_state(), gates, None, memory.start)
        # Nothing that looks at the inputs feeds the recurrence: all steps at once.
        return self._readout(states, memory)[0]

    def encode(self, batch: dict[str, jax.Array], *, train: bool = False) -> Memory:
        """Reads `inputs` [B, S, F] of `lengths` [B].

        Raises:
            ValueError: for more inputs than there are classes or locations.
        """
        del train
        inputs, lengths = batch["inputs"], batch["lengths"]
        size = inputs.shape[1]
        fixed = self.output != "pointer" or self.score == "location"
        if fixed and size > self.max_inputs:
            raise ValueError(
                f"max_inputs is {self.max_inputs}: too few for {size} inputs"
            )
        # Of a token its numbers and whether it is the start: what the table multiplies.
        entries = jnp.pad(inputs, ((0, 0), (1, 0), (0, 1))).at[:, 0, -1].set(1)
        real = jnp.arange(size) < lengths[:, None]
        if self.encoder == "recurrent":
            gates = self._gates(self.encoder_gates, _in_time(entries[:, 1:]))
            width = CELLS[self.cell].states * self.hidden
            empty = jnp.zeros((len(inputs), width), inputs.dtype)
            found, start = _recur(self.cell, self.encoder_state(), gates, real, empty)
        else:
            first, second = self.read
            embedded = entries[:, 1:] @ self.table(inputs.shape[-1])
            found = second(nn.relu(first(embedded)))
            start = nn.tanh(self.bridge(self.process(found, real)))
        end = jnp.broadcast_to(self.end, (len(inputs), 1, self.hidden))
        annotations = jnp.concatenate([end, found], axis=1)
        scores = [*self.reads, self.pointer] if self.output == "pointer" else self.reads
        keys = tuple(
            SCORES[self.score].project(
                annotations, **score.parameters(self.hidden, self.hidden)
            )
            for score in scores
        )
        mask = jnp.pad(real, ((0, 0), (1, 0)), constant_values=True)
        return Memory(entries, annotations, mask, keys, start)

    def start(self, memory: Memory, rows: int, length: int) -> Carry:
        """State before the first step of `rows` equal hypotheses an instance."""
        del length  # nothing here grows with it
        batch, width = memory.start.shape
        return Carry(jnp.broadcast_to(memory.start[:, None], (batch, rows, width)))

    def step(
        self, carry: Carry, token: jax.Array, memory: Memory
    ) -> tuple[Carry, jax.Array, Attention | None]:
        """One decoding step; a whole pass gives the same logits.

        Args:
            carry: from `start` or the step before.
            token: [B, R] int32, the last pointer of each hypothesis; first 0.
            memory: from `encode`; shared by the R hypotheses of an instance.

        Returns:
            The next carry, logits [B, R, S + 1] float32, and what pointed or, in a
            baseline, read: context [B, R, D] and weights [B, R, S + 1]; None without
            attention.
        """
        gates = self._gates(self.decoder_gates, _pick(memory.entries, token))
        weights = {f"cell/{name}": u for name, u in self.decoder_state().items()}
        state = CELLS[self.cell].step(
            lambda x, name: x @ weights[name], "cell", gates, carry.state
        )
        logits, found = self._readout(state[..., : self.hidden], memory)
        return Carry(state), logits, found

    def _score(self, inits: Init) -> Score:
        return Score(
            self.score,
            hidden=self.score_hidden,
            max_length=self.max_inputs + 1,
            matrix_init=inits.score,
            vector_init=inits.score_vector,
        )

    def _gates(self, gates: Gates, entries: jax.Array) -> jax.Array:
        """What entries [..., F + 1] add to a cell's gates: [..., G]."""
        kernel, bias = gates.parameters(self.embedding)
        # The embedding is linear: the table and the kernel, multiplied first, leave a
        # product of F + 1 numbers an input in place of one of C.
        folded = self.table(entries.shape[-1] - 1) @ kernel  # [F + 1, G]
        return linear(entries, folded) + bias

    def _readout(
        self, query: jax.Array, memory: Memory
    ) -> tuple[jax.Array, Attention | None]:
        """Logits [B, Q, S + 1] of states [B, Q, D], and the last look at the inputs."""
        mask = memory.mask[:, None]
        inputs = mask & (jnp.arange(mask.shape[-1]) > 0)  # a read is not of the end
        found = None
        for score, keys in zip(self.reads, memory.keys, strict=False):
            scores = self._compare(score, query, keys)
            found = attend(scores, memory.annotations, mask=inputs)
            if self.output == "pointer":
                query = query + found.context
            else:
                query = jnp.concatenate([query, found.context], axis=-1)
        if self.output == "pointer":
            scores = self._compare(self.pointer, query, memory.keys[-1])
            found = attend(scores, memory.annotations, mask=mask)
        else:
            scores = self.classes(query)[..., : mask.shape[-1]]
        return masked_scores(scores, mask), found

    def _compare(self, score: Score, query: jax.Array, keys: jax.Array) -> jax.Array:
        parameters = score.parameters(self.hidden, self.hidden)
        return SCORES[self.score].compare(query, keys, **parameters)


def _pick(entries: jax.Array, token: jax.Array) -> jax.Array:
    """Entries [B, S + 1, F + 1] of tokens [B, Q]: [B, Q, F + 1]."""
    return jnp.take_along_axis(entries, token[..., None], axis=1)


def _in_time(x: jax.Array) -> jax.Array:
    """Steps first, and one row an instance: [B, T, ...] to [T, B, 1, ...]."""
    return jnp.swapaxes(x, 0, 1)[:, :, None]


def _recur(
    cell: str,
    weights: dict[str, jax.Array],
    gates: jax.Array,
    mask: jax.Array | None,
    state: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Runs a cell over sequences.

    Args:
        cell: a key of `CELLS`.
        weights: of `CellWeights`.
        gates: [T, B, 1, G] what the inputs add.
        mask: [B, T] bool, False where the state stays; None where it never does.
        state: [B, states D], the first.

    Returns:
        Outputs [B, T, D], and the last state [B, states D].
    """
    width = state.shape[-1] // CELLS[cell].states
    weights = {f"cell/{name}": u for name, u in weights.items()}

    def step(product, _, state, x):
        gates, real = x
        new = CELLS[cell].step(product, "cell", gates, state)
        new = new if real is None else jnp.where(real, new, state)
        return new, new[..., :width]

    inputs = gates, None if mask is None else _in_time(mask[..., None])
    state, outputs = scan(step, weights, None, state[:, None], inputs)
    return jnp.swapaxes(outputs[:, :, 0], 0, 1), state[:, 0]
