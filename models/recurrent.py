"""What recurrent translators share: cells, scans over time, the two ends of a decoder.

A decoder of this kind is three things: what it does in one step (`advance`), what it
reads of the source, and how a step becomes a prediction (`readout`). The models of
`seq2seq.py`, `bahdanau.py` and `luong.py` say these three; `RecurrentTranslator` makes
a translator of them, trained by one scan over the target and decoded step by step.

Axes: B batch; S source positions; T target steps; R hypotheses that share one source;
C width of an embedding; D width of a state, which is the query; E width of an
annotation; F width of a key or of a product; G width of a cell's gates; V any width
that is read from the source; W vocabulary.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.alignments import ALIGNMENTS
from attention.core import Attention
from attention.scores import SCORES
from models.layers import (
    BOS,
    DRAWN,
    Aligned,
    Alignment,
    Dense,
    Dropout,
    Score,
    check_fields,
    dropout,
    linear,
)

Product = Callable[[jax.Array, str], jax.Array]


class Cell(NamedTuple):
    """A recurrence: what is carried is a function of the input and what was carried.

    Attributes:
        gates: G / D, the width of what an input adds to the gates.
        states: the width of what is carried, in D; its first D are the output.
        matrices: name and width, in D, of each matrix that multiplies the state.
        step: (product, name, x [..., G], carry [..., states D]) -> carry.
    """

    gates: int
    states: int
    matrices: dict[str, int]
    step: Callable[..., jax.Array]


def _gru(product: Product, name: str, x: jax.Array, state: jax.Array) -> jax.Array:
    """The gated unit of Cho et al. (2014) as in Bahdanau et al. (2015), A.1.1.

    r, z = sigmoid(x_rz + [U_r, U_z] s), s~ = tanh(x_s + U (r s)), (1 - z) s + z s~.
    """
    x_gates, x_candidate = jnp.split(x, [2 * state.shape[-1]], axis=-1)
    gates = nn.sigmoid(x_gates + product(state, f"{name}/gates"))
    reset, update = jnp.split(gates, 2, axis=-1)
    candidate = nn.tanh(x_candidate + product(reset * state, f"{name}/candidate"))
    return (1 - update) * state + update * candidate


def _lstm(product: Product, name: str, x: jax.Array, carry: jax.Array) -> jax.Array:
    """Long short-term memory without peepholes, as in Sutskever et al. (2014).

    i, f, o, g = x + U h, c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o)
    tanh(c'); carried are h and c.
    """
    hidden, cell = jnp.split(carry, 2, axis=-1)
    gates = x + product(hidden, f"{name}/gates")
    input_, forget, output, candidate = jnp.split(gates, 4, axis=-1)
    cell = nn.sigmoid(forget) * cell + nn.sigmoid(input_) * nn.tanh(candidate)
    return jnp.concatenate([nn.sigmoid(output) * nn.tanh(cell), cell], axis=-1)


CELLS = {
    "gru": Cell(3, 1, {"gates": 2, "candidate": 1}, _gru),
    "lstm": Cell(4, 2, {"gates": 4}, _lstm),
}


@jax.custom_vjp
def _product(x, weight, transposed, delta):
    """X W, sending its gradient also to `delta`, an argument without an effect."""
    return x @ weight


def _product_backward(residuals, gradient):
    weight, transposed = residuals
    back = jnp.swapaxes(weight, -1, -2) if transposed is None else transposed
    return gradient @ back, None, None, gradient


_product.defvjp(lambda x, w, wt, _: (x @ w, (w, wt)), _product_backward)


def scan(
    step: Callable[..., tuple[Any, Any]],
    weights: dict[str, jax.Array],
    shared: Any,
    carry: Any,
    inputs: Any,
) -> tuple[Any, Any]:
    """`lax.scan` of a step that multiplies by `weights`, with a cheaper gradient.

    The gradient of a matrix that every step multiplies by is a sum over the steps of
    products that are as thin as the batch, each of which reads and writes an array as
    large as the matrix. Here the loop keeps both factors, and after it one product of
    all steps is the sum; what goes back through a step multiplies by a matrix that
    was transposed once. It has reverse-mode gradients only, and one floating dtype.

    Args:
        step: step(product, shared, carry, x) -> (carry, y), a pure function of these;
            product(x [B, R, D], name) is x @ weights[name].
        weights: [D, F], or [B, S, V] for a matrix an element of the batch.
        shared: what every step reads besides.
        carry: what is handed from step to step.
        inputs: [T, ...] what is handed to each step.

    Returns:
        The last carry, and y of all steps, [T, ...].

    Raises:
        ValueError: if a step multiplies twice by a weight.
    """
    batched = {name for name, weight in weights.items() if weight.ndim == 3}
    none = dict.fromkeys(weights)

    def loop(weights, transposed, shared, carry, inputs, deltas):
        def body(carry, x):
            x, deltas = x
            factors = {}

            def product(x, name):
                if name in factors:
                    raise ValueError(f"a step multiplies twice by {name!r}")
                factors[name] = x
                return _product(x, weights[name], transposed[name], deltas[name])

            carry, y = step(product, shared, carry, x)
            return carry, (y, factors)

        return jax.lax.scan(body, carry, (inputs, deltas))

    @jax.custom_vjp
    def run(weights, shared, carry, inputs):
        carry, (y, _) = loop(weights, none, shared, carry, inputs, none)
        return carry, y

    def forward(weights, *moving):
        transposed = jax.lax.optimization_barrier(
            {n: None if n in batched else w.T for n, w in weights.items()}
        )
        _, (_, factors) = jax.eval_shape(lambda: loop(weights, none, *moving, none))
        deltas = {
            name: jnp.zeros((*x.shape[:-1], weights[name].shape[-1]), x.dtype)
            for name, x in factors.items()
        }
        (carry, (y, factors)), back = jax.vjp(
            lambda *moving: loop(weights, transposed, *moving), *moving, deltas
        )
        return (carry, y), (back, factors)

    def backward(residuals, gradients):
        back, factors = residuals
        carry, y = gradients
        nothing = jax.tree.map(jnp.zeros_like, factors)
        *others, deltas = back((carry, (y, nothing)))
        sums = {
            name: jnp.einsum(
                "tbrs,tbrv->bsv" if name in batched else "tbrn,tbrm->nm",
                x,
                deltas[name],
            )
            for name, x in factors.items()
        }
        return sums, *others

    run.defvjp(forward, backward)
    return run(weights, shared, carry, inputs)


class Init(NamedTuple):
    """How parameters start; biases at 0.

    Attributes:
        kernel: of matrices that multiply an input.
        recurrent: of [D, k D] matrices that multiply a state.
        embedding: of the vocabulary's matrices [W, ...].
        score: of a score's matrices; None for what `models.layers.Score` takes.
        score_vector: of a score's vectors; the same.
        forget: bias of an LSTM's forget gate (Jozefowicz et al. 2015: 1).
    """

    kernel: Callable
    recurrent: Callable
    embedding: Callable
    score: Callable | None = None
    score_vector: Callable | None = None
    forget: float = 0.0


def orthogonal(rng: jax.Array, shape: tuple[int, int], dtype=jnp.float32) -> jax.Array:
    """[D, k D], k random orthogonal matrices side by side."""
    width, total = shape
    square = nn.initializers.orthogonal()
    # One by one: batched factorisations side by side can wait for each other on a CPU.
    blocks = [
        square(block, (width, width), dtype)
        for block in jax.random.split(rng, total // width)
    ]
    return jnp.concatenate(blocks, axis=1)


def uniform_init(limit: float) -> Init:
    """All but biases, which are 0, from U(-limit, limit).

    Sutskever et al. (2014), section 3.4: 0.08; Luong et al. (2015), section 4.1: 0.1.
    """

    def init(rng, shape, dtype=jnp.float32):
        return jax.random.uniform(rng, shape, dtype, -limit, limit)

    return Init(init, init, init, init, init)


STANDARD = Init(
    nn.initializers.xavier_uniform(),
    orthogonal,
    nn.initializers.variance_scaling(1.0, "fan_out", "normal"),
    forget=1.0,
)


class CellWeights(nn.Module):
    """The matrices that multiply the state of a cell of width D, by name."""

    cell: str
    features: int
    inits: Init

    @nn.compact
    def __call__(self) -> dict[str, jax.Array]:
        """Returns [D, k D] by the names of `Cell.matrices`."""
        n = self.features
        return {
            name: self.param(name, self.inits.recurrent, (n, width * n))
            for name, width in CELLS[self.cell].matrices.items()
        }


class Gates(nn.Module):
    """What the input of a cell of width D adds to its gates: x W + b."""

    cell: str
    features: int
    inits: Init

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., C] to [..., G]."""
        kernel, bias = self.parameters(x.shape[-1])
        return linear(x, kernel) + bias

    @nn.compact
    def parameters(self, width: int) -> tuple[jax.Array, jax.Array]:
        """Returns W [C, G] and b [G] for inputs of this width."""
        gates, n = CELLS[self.cell].gates * self.features, self.features

        def bias(rng, shape, dtype=jnp.float32):
            zeros = jnp.zeros(shape, dtype)
            if self.cell == "gru":
                return zeros
            return zeros.at[n : 2 * n].set(self.inits.forget)

        return (
            self.param("kernel", self.inits.kernel, (width, gates)),
            self.param("bias", bias, (gates,)),
        )


class Stack(nn.Module):
    """The layers of a decoder, each a step ahead of the next one's input.

    Attributes:
        cell: a key of `CELLS`.
        features: D.
        layers: how many.
        dropout: of what enters the layers after the first.
    """

    cell: str
    features: int
    layers: int
    dropout: float
    inits: Init

    def setup(self):
        common = (self.cell, self.features, self.inits)
        self.states = [CellWeights(*common) for _ in range(self.layers)]
        self.gates = [Gates(*common) for _ in range(self.layers - 1)]

    def weights(self) -> dict[str, jax.Array]:
        """Returns what `advance` multiplies by: [D, k D] each, by name."""
        found = {}
        for layer, state in enumerate(self.states):
            found |= {f"{layer}/{name}": u for name, u in state().items()}
        for layer, gates in enumerate(self.gates, 1):
            found[f"{layer}/input"], _ = gates.parameters(self.features)
        return found

    def biases(self) -> tuple[jax.Array, ...]:
        """Returns the biases [G] of the layers after the first."""
        return tuple(gates.parameters(self.features)[1] for gates in self.gates)

    @nn.nowrap
    def advance(
        self,
        product: Product,
        biases: tuple[jax.Array, ...],
        states: tuple[jax.Array, ...],
        gates: jax.Array,
        noise: tuple[jax.Array, ...] | None,
    ) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """One step; pure.

        Args:
            product: see `scan`.
            biases: see `biases`.
            states: a layer what it carries, [B, R, states D].
            gates: [B, R, G], what enters the first layer.
            noise: [B, R, D] each, what enters the layers after the first is multiplied
                by it; None for nothing. See `noise`.

        Returns:
            The new states, and the output [B, R, D] of the last layer.
        """
        new, output = [], None
        for layer, previous in enumerate(states):
            if layer:
                entering = output if noise is None else output * noise[layer - 1]
                gates = product(entering, f"{layer}/input") + biases[layer - 1]
            new.append(CELLS[self.cell].step(product, str(layer), gates, previous))
            output = new[-1][..., : self.features]
        return tuple(new), output

    def noise(self, steps: int, batch: int) -> tuple[jax.Array, ...] | None:
        """Draws [T, B, 1, D] of dropout for each layer after the first.

        From the stream "dropout"; None where there is nothing to draw.
        """
        after = self.layers - 1
        if not self.dropout or not after:
            return None
        ones = jnp.ones((steps, batch, 1, after * self.features))
        kept = dropout(ones, self.dropout, self.make_rng("dropout"))
        return tuple(jnp.split(kept, after, axis=-1))


class Maxout(nn.Module):
    """The larger of the two pieces of each of l units: Goodfellow et al. (2013).

    The pieces of a unit are l apart.
    """

    units: int
    inits: Init

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., C] to [..., l]."""
        pieces = Dense(2 * self.units, kernel_init=self.inits.kernel)(x)
        return jnp.maximum(*jnp.split(pieces, 2, axis=-1))


class Recurrence(nn.Module):
    """One layer over whole sentences; padding leaves the state as it is.

    Attributes:
        cell: a key of `CELLS`.
        features: D.
        backward: from the last token to the first.
    """

    cell: str
    features: int
    inits: Init
    backward: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Reads sentences.

        Args:
            x: [B, S, C].
            mask: [B, S] bool, False at padding.

        Returns:
            Outputs [B, S, D], and what is carried out of the last token, [B, states D].
        """
        cell = CELLS[self.cell]
        gates = Gates(self.cell, self.features, self.inits, name="input")(x)
        weights = CellWeights(self.cell, self.features, self.inits, name="state")()
        weights = {f"cell/{name}": weight for name, weight in weights.items()}

        def step(product, _, carry, x):
            gates, real = x
            new = cell.step(product, "cell", gates, carry)
            carry = jnp.where(real, new, carry)
            return carry, carry[..., : self.features]

        # Time first, and one row a sentence: [S, B, 1, G] and [S, B, 1, 1].
        inputs = jnp.swapaxes(gates, 0, 1)[:, :, None], mask.T[..., None, None]
        if self.backward:
            inputs = jax.tree.map(lambda x: x[::-1], inputs)
        carry = jnp.zeros((x.shape[0], 1, cell.states * self.features), x.dtype)
        carry, outputs = scan(step, weights, None, carry, inputs)
        if self.backward:
            outputs = outputs[::-1]
        return jnp.swapaxes(outputs[:, :, 0], 0, 1), carry[:, 0]


class Encoder(nn.Module):
    """A stack of recurrent layers, each in one direction or in both.

    Attributes:
        cell: a key of `CELLS`.
        features: D of each layer and direction.
        layers: how many.
        bidirectional: whether a layer reads in both directions and passes on both
            outputs side by side.
        reverse: whether the source is read from its last word to its first (Sutskever
            et al. 2014, section 3.3); its end stays last, and the annotations come
            back in the order of the source.
        dropout: of what enters the layers after the first.
    """

    cell: str
    features: int
    layers: int
    bidirectional: bool
    reverse: bool
    dropout: float
    inits: Init

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: jax.Array, *, train: bool
    ) -> tuple[jax.Array, list[tuple[jax.Array, ...]]]:
        """Annotates sources.

        Args:
            x: [B, S, C] embedded tokens.
            mask: [B, S] bool, False at padding.
            train: whether dropout is on.

        Returns:
            Annotations [B, S, E], and for each layer what its directions carry out of
            their last token, [B, states D] each.
        """
        if self.reverse:
            x = reverse_words(x, mask)
        carries = []
        for layer in range(self.layers):
            if layer:
                x = Dropout(self.dropout)(x, train=train)
            read = [
                Recurrence(
                    *(self.cell, self.features, self.inits, backward),
                    name=f"{'backward' if backward else 'forward'}_{layer}",
                )(x, mask)
                for backward in (False, True)[: 1 + self.bidirectional]
            ]
            outputs, carried = zip(*read, strict=True)
            x = jnp.concatenate(outputs, axis=-1)
            carries.append(carried)
        return (reverse_words(x, mask) if self.reverse else x), carries


def reverse_words(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Turns round the words of each sentence; its end and padding stay. An involution.

    Args:
        x: [B, S, ...]; the last real position of a row is its end.
        mask: [B, S] bool, False at padding.

    Returns:
        [B, S, ...].
    """
    position = jnp.arange(mask.shape[1])
    words = mask.sum(1, keepdims=True) - 1
    order = jnp.where(position < words, words - 1 - position, position)
    return jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1)


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
    def look(self, parameters, keys, mask, query, time, rng):
        """Aligns queries with keys, by nothing but its arguments and fields.

        Args:
            parameters: from `parameters`.
            keys: [B, S, F] from `project`.
            mask: [B, S] bool, False at padding.
            query: [B, R, D].
            time: int scalar, the step.
            rng: see `Alignment.weigh`.

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
        dropout: of what enters a layer or the readout, never from step to step
            (Zaremba et al. 2014).
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
