"""Long short-term memory-network (LSTMN) of Cheng, Dong and Lapata (2016).

Each token attends to the states of all tokens before it, kept on a tape
(`attention.tape`), and their weighted sum replaces the previous state of an LSTM.

    a_i^t = v tanh(W_h h_i + W_x x_t + W_h~ h~_{t-1}),  s^t = softmax(a^t)      (4), (5)
    [h~_t; c~_t] = sum_i s_i^t [h_i; c_i]                                            (6)
    i, f, o, c^ = W [h~_t; x_t] + b                                                  (7)
    c_t = sigmoid(f) c~_t + sigmoid(i) tanh(c^),  h_t = sigmoid(o) tanh(c_t)    (8), (9)

Deep fusion (section 4) also attends to the tape of another text, with hidden states
gamma_j and cells alpha_j, by the scores b_j^t = u tanh(W_g gamma_j + W_x x_t + W_g~
gamma~_{t-1}), and adds the read cell alpha~_t through a gate r_t = sigmoid(W_r
[gamma~_t; x_t] + b_r):

    c_t = r_t alpha~_t + sigmoid(f) c~_t + sigmoid(i) tanh(c^)

Axes: B batch; T tokens; S tokens of the other text; K slots of the tape; C width of an
input; D width of a state; A hidden width of a score.

The language model of section 5.1 stacks such layers with skip connections.

Differs from the paper: biases; no attention beyond the last K tokens.
"""

from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.scan import Matrix
from attention.fast.tape import tape_scan
from attention.tape import Tape, empty_tape, read_tape, token_weights
from base.ranges import SIZE, Choice
from base.records import ScoreDetails
from models.attention import MATCHING_SCORES, glorot_uniform
from models.initializers import STANDARD
from models.layers import Dense
from models.lstm_language import LSTMLanguageModel
from models.recording import score_details, sow_attention
from models.recurrent import Gates, StateMatrices


class TapeMatrices(NamedTuple):
    """Weight matrices of the attention to a tape."""

    key: Matrix  # [D, A], W_h
    summary: Matrix  # [D, A], W_h~


class Matrices(NamedTuple):
    """Weight matrices of a step, the last two for deep fusion."""

    gates: Matrix  # [D, 4 D], W for h~_t, with i, f, o and c^ side by side
    intra: TapeMatrices
    inter: TapeMatrices | None = None  # W_g and W_g~
    fuse: Matrix | None = None  # [D, D], W_r for gamma~_t


class Shared(NamedTuple):
    """Other arrays that every step reads, the last two for deep fusion."""

    v: jax.Array  # [A]
    # W_g gamma_j [B, S, A], [gamma_j; alpha_j] [B, S, 2 D]; float 1 at tokens [B, S]
    source: Tape | None = None
    u: jax.Array | None = None  # [A]


class Carry(NamedTuple):
    """Read vectors of the previous token."""

    h: jax.Array  # [B, D], h~_{t-1}
    gamma: jax.Array | None = None  # [B, D], gamma~_{t-1}, with deep fusion


class Token(NamedTuple):
    """Products of matrices and x_t, for all tokens; the last two for deep fusion."""

    gates: jax.Array  # [B, 4 D], W x_t + b
    intra: jax.Array  # [B, A], W_x x_t of a^t
    inter: jax.Array | None = None  # [B, A], W_x x_t of b^t
    fuse: jax.Array | None = None  # [B, D], W_r x_t + b_r


def token_query(x: jax.Array, summary: jax.Array, w: TapeMatrices) -> jax.Array:
    """Query W_x x_t + W_h~ h~_{t-1} [..., A] of eq. 4, from W_x x_t and h~_{t-1}."""
    return x + summary @ w.summary


def read(
    score: str, query: jax.Array, tape: Tape, v: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Attention of one token to a tape: Cheng et al. (2016), eqs. 4 to 6.

    Args:
        score: a key of `models.attention.MATCHING_SCORES`.
        query: [B, A], W_x x_t + W_h~ h~_{t-1}.
        tape: keys W_h h_i [B, K, A] and values [h_i; c_i] [B, K, 2 D].
        v: [A].

    Returns:
        h~_t [B, D], c~_t [B, D] and the weights s^t [B, K].
    """
    a = MATCHING_SCORES[score].compare(query[:, None], tape.key, v=v)  # eq. 4
    context, weights = read_tape(a[:, 0], tape)  # eqs. 5, 6
    return *jnp.split(context, 2, -1), weights


def lstmn(
    w: Matrices,
    shared: Shared,
    tape: tuple[jax.Array, jax.Array],
    valid: jax.Array,
    carry: Carry,
    x: Token,
    score: str = "additive",
) -> tuple[
    Carry, tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array | None], jax.Array
]:
    """One step of an LSTMN: Cheng et al. (2016), eqs. 4 to 9, for `tape_scan`.

    Args:
        w: weight matrices.
        shared: other arrays.
        tape: keys [B, K, A] and values [B, K, 2 D] of previous tokens, in any order.
        valid: [B, K] bool, slots with a token.
        carry: read vectors of the previous token.
        x: products of the token.
        score: a key of `MATCHING_SCORES`.

    Returns:
        The next carry; key and value of the token on the tape; h_t [B, D] and, with
        deep fusion, the weights [B, S] of the other text; and the weights s^t [B, K].
    """
    query = token_query(x.intra, carry.h, w.intra)
    h_read, c_read, s = read(score, query, Tape(*tape, valid), shared.v)  # eqs. 4 to 6
    i, f, o, c_hat = jnp.split(x.gates + h_read @ w.gates, 4, axis=-1)  # eq. 7
    c = nn.sigmoid(f) * c_read + nn.sigmoid(i) * nn.tanh(c_hat)  # eq. 8
    gamma = source_weights = None
    if shared.source is not None:  # deep fusion, section 4
        source = shared.source._replace(valid=shared.source.valid > 0)
        query = token_query(x.inter, carry.gamma, w.inter)
        gamma, alpha, source_weights = read(score, query, source, shared.u)
        c = nn.sigmoid(x.fuse + gamma @ w.fuse) * alpha + c  # r_t alpha~_t + c_t
    h = nn.sigmoid(o) * nn.tanh(c)  # eq. 9
    entry = h @ w.intra.key, jnp.concatenate([h, c], -1)
    return Carry(h_read, gamma), entry, (h, source_weights), s


class TapeAttention(nn.Module):
    """Parameters of the attention to a tape.

    Attributes:
        features: D.
        hidden: A.
        additive: whether the score is additive and has a vector v.
    """

    features: int
    hidden: int
    additive: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, TapeMatrices, jax.Array]:
        """Returns the query W_x x [..., A] of x [..., C], the matrices, and v [A]."""
        init = STANDARD.kernel
        shape = self.features, self.hidden
        query = Dense(self.hidden, use_bias=False, name="query")(x)
        v = jnp.zeros(0)
        if self.additive:
            v = self.param("v", partial(glorot_uniform, fan=self.hidden), shape[1:])
        key, summary = (self.param(name, init, shape) for name in ("key", "summary"))
        return query, TapeMatrices(key, summary), v


class LSTMNState(NamedTuple):
    """State that a layer carries from one part of a text to the next.

    Attributes:
        value: [B, K, 2 D], the tape: [h_i; c_i].
        valid: [B, K] bool, slots with a token.
        summary: [B, D], h~ of the last token.
    """

    value: jax.Array
    valid: jax.Array
    summary: jax.Array

    @classmethod
    def start(cls, batch: int, slots: int, features: int) -> "LSTMNState":
        """Returns the state before the first token of B texts."""
        tape = empty_tape(batch, slots=slots, key=0, value=2 * features)
        return cls(tape.value, tape.valid, jnp.zeros((batch, features)))


class LSTMNLayer(nn.Module):
    """LSTMN layer over whole texts; its outputs equal those of single steps.

    Sows an `AttentionRecord` [B, 1, T, T] of the intra-attention, kind "intra", and
    with deep fusion one of the inter-attention, kind "cross" [B, 1, T, S].

    Attributes:
        features: D.
        memory: K, the number of slots of the tape.
        score: a key of `MATCHING_SCORES`.
        score_hidden: A.
        layer: number of the layer, for the record.
    """

    features: int
    memory: int
    score: str
    score_hidden: int
    layer: int = 0

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        state: LSTMNState | None = None,
        mask: jax.Array | None = None,
        source: Tape | None = None,
    ) -> tuple[Tape, LSTMNState]:
        """Reads texts.

        Args:
            x: [B, T, C] embedded tokens, or the outputs of a lower layer.
            state: the state after the preceding part of the texts; None at their
                beginning, with the same result as `LSTMNState.start`, but faster.
            mask: bool [B, T], False at padding after the last token.
            source: tape of another text, for deep fusion.

        Returns:
            The tape of the T tokens, with h_t as keys [B, T, D] and [h_t; c_t] as
            values [B, T, 2 D]; and the state after them.
        """
        batch, steps, _ = x.shape
        n, slots, empty = self.features, self.memory, state is None
        start = LSTMNState.start(batch, slots, n) if state is None else state
        mask = jnp.ones((batch, steps), bool) if mask is None else mask
        valid = jnp.concatenate([start.valid, mask], 1)
        w, shared, tokens = self._prepare(x, source)
        key = jnp.zeros((batch, slots, self.score_hidden), x.dtype)
        if not empty:
            key = start.value[..., :n] @ w.intra.key
        gamma = None if source is None else jnp.zeros_like(start.summary)
        entries, last, outputs, weights = tape_scan(
            partial(lstmn, score=self.score),
            w,
            shared,
            (key, start.value),
            valid,
            Carry(start.summary, gamma),
            jax.tree.map(_swap, tokens),
            empty=empty,
        )
        key, value, h, source_weights, weights = jax.tree.map(
            _swap, (*entries, *outputs, weights)
        )
        distance = jnp.arange(steps)[:, None] - jnp.arange(steps)
        on_tape = mask[:, None] & (distance > 0) & (distance <= slots)
        # The tape of a later part of a text also has the tokens before it.
        tape = Tape(key, h, on_tape) if empty else None
        weights = token_weights(weights)
        self._record("intra", weights, tape, tokens.intra, w.intra, shared.v)
        if source is not None:
            tape = Tape(shared.source.key, source.key, source.valid[:, None])
            self._record("cross", source_weights, tape, tokens.inter, w.inter, shared.u)
        values = jnp.concatenate([start.value, value], 1)
        state = LSTMNState(values[:, -slots:], valid[:, -slots:], last.h)
        return Tape(h, value, mask), state

    def _prepare(
        self, x: jax.Array, source: Tape | None
    ) -> tuple[Matrices, Shared, Token]:
        """Returns the arguments w, shared and x of `lstmn`, for all tokens at once."""
        n, additive = self.features, "v" in MATCHING_SCORES[self.score].parameters
        gates = Gates("lstm", n, STANDARD, name="input")(x)
        w_gates = StateMatrices("lstm", n, STANDARD, name="state")().gates
        attention = partial(TapeAttention, n, self.score_hidden, additive)
        query, w_intra, v = attention(name="intra")(x)
        if source is None:
            return Matrices(w_gates, w_intra), Shared(v), Token(gates, query)
        source_query, w_inter, u = attention(name="inter")(x)
        w_fuse = self.param("gate", STANDARD.kernel, (n, n))
        tape = Tape(
            source.key @ w_inter.key, source.value, source.valid.astype(x.dtype)
        )
        return (
            Matrices(w_gates, w_intra, w_inter, w_fuse),
            Shared(v, tape, u),
            Token(gates, query, source_query, Dense(n, name="input_gate")(x)),
        )

    def _record(
        self,
        kind: str,
        weights: jax.Array,
        tape: Tape | None,
        query: jax.Array,
        w: TapeMatrices,
        v: jax.Array,
    ) -> None:
        """Sows weights [B, T, K] on a tape of hidden states, with `valid` [B, T, K]."""

        def details() -> ScoreDetails | None:
            if tape is None:
                return None
            # h~_{t-1}, the read vector of the previous token
            summary = jnp.pad(weights @ tape.value, ((0, 0), (1, 0), (0, 0)))[:, :-1]
            queries = token_query(query, summary, w)[:, None]
            score = MATCHING_SCORES[self.score]
            parts = score.parts(queries, tape.key[:, None], v=v)
            return score_details(parts, tape.valid[:, None])

        keys = {"intra": "tokens", "cross": "source"}[kind]
        names = {"kind": kind, "layer": self.layer, "queries": "tokens", "keys": keys}
        sow_attention(self, weights[:, None], details, **names)


def _swap(x: jax.Array) -> jax.Array:
    """Swaps the axes of texts and tokens."""
    return jnp.swapaxes(x, 0, 1)


class LSTMNLanguageModel(LSTMLanguageModel):
    """Language model of LSTMN layers: Cheng et al. (2016), section 5.1.

    The defaults of `LSTMLanguageModel` are the paper's.

    Attributes:
        memory: K, the number of slots of a tape.
        score: score of the intra-attention; "additive" in the paper.
        score_hidden: hidden width of the score.
    """

    memory: Annotated[int, SIZE] = 50
    score: Annotated[str, Choice(MATCHING_SCORES)] = "additive"
    score_hidden: Annotated[int, SIZE] = 300

    attends: ClassVar[bool] = True

    @nn.nowrap
    def layer(self, number: int) -> LSTMNLayer:
        """Returns layer `number`."""
        return LSTMNLayer(
            features=self.hidden,
            memory=self.memory,
            score=self.score,
            score_hidden=self.score_hidden,
            layer=number,
        )

    @nn.nowrap
    def state(self, batch: int) -> LSTMNState:
        """Returns the state of a layer before the first token."""
        return LSTMNState.start(batch, self.memory, self.hidden)

    def read(self, layer: Any, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        """Applies a layer: outputs [B, T, D] and the next state."""
        tape, state = layer(x, state)
        return tape.key, state
