"""Recurrent layers: cells, scans over time, the stacks of an encoder and a decoder.

Axes: B batch; S source positions; T target steps; R hypotheses that share one source;
C width of an embedding; D width of a state; E width of an annotation; F width of a
product; G width of a cell's gates; V any width that is read from the source;
W vocabulary.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.layers import Dense, Dropout
from ops.dropout import dropout
from ops.linear import linear

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
        score: of a score's matrices; None for what `models.attention.Score` takes.
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
    """The layers of a decoder, one on the other; all take each step.

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
