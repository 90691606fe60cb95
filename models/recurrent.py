"""Recurrent layers: parameters of the cells, the stacks of an encoder and a decoder.

Axes: B batch; S source positions; T target steps; R hypotheses that share one source;
C width of an embedding; D width of a state; E width of an annotation; G width of a
cell's gates.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from models.cells import CELLS, CellWeights, run_cell, time_first
from models.layers import Dense, Dropout
from ops.dropout import dropout
from ops.linear import linear
from ops.scan import Matrix


class Init(NamedTuple):
    """Initializers of a model's parameters; biases start at 0.

    Attributes:
        kernel: of matrices that multiply an input.
        recurrent: of [D, k D] matrices that multiply a state.
        embedding: of the vocabulary's matrices [W, ...].
        score: of a score's matrices; None for the default of `models.attention.Score`.
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
    """Initializer of k random orthogonal matrices side by side, [D, k D]."""
    width, total = shape
    square = nn.initializers.orthogonal()
    # One by one: batched factorisations side by side can wait for each other on a CPU.
    blocks = [
        square(block, (width, width), dtype)
        for block in jax.random.split(rng, total // width)
    ]
    return jnp.concatenate(blocks, axis=1)


def uniform_init(limit: float) -> Init:
    """Initializers that draw all but biases from U(-limit, limit).

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


class StateWeights(nn.Module):
    """The matrices that multiply the state of a cell of width D."""

    cell: str
    features: int
    inits: Init

    @nn.compact
    def __call__(self) -> CellWeights:
        """Return them, [D, k D] each."""
        n, cell, init = self.features, CELLS[self.cell], self.inits.recurrent
        return cell.weights(
            **{
                name: self.param(name, init, (n, width * n))
                for name, width in cell.matrices.items()
            }
        )


class Gates(nn.Module):
    """Input part x W + b of the gates of a cell of width D."""

    cell: str
    features: int
    inits: Init

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., C] to [..., G]."""
        kernel, bias = self.parameters(x.shape[-1])
        return linear(x, kernel) + bias

    @nn.compact
    def parameters(self, width: int) -> tuple[jax.Array, jax.Array]:
        """Return W [C, G] and b [G] for inputs of this width."""
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


class StackWeights(NamedTuple):
    """Matrices of a `Stack`."""

    states: tuple[CellWeights, ...]  # of each layer
    inputs: tuple[Matrix, ...]  # [D, G], of each layer after the first


class Stack(nn.Module):
    """The layers of a decoder, one on the other; all take each step.

    Attributes:
        cell: a key of `CELLS`.
        features: D.
        layers: number of layers.
        dropout: rate at the inputs of the layers after the first.
        inits: initializers.
    """

    cell: str
    features: int
    layers: int
    dropout: float
    inits: Init

    def setup(self):
        common = (self.cell, self.features, self.inits)
        self.states = [StateWeights(*common) for _ in range(self.layers)]
        self.gates = [Gates(*common) for _ in range(self.layers - 1)]

    def weights(self) -> StackWeights:
        """Return the matrices of a step."""
        return StackWeights(
            states=tuple(state() for state in self.states),
            inputs=tuple(gates.parameters(self.features)[0] for gates in self.gates),
        )

    def biases(self) -> tuple[jax.Array, ...]:
        """Return the biases [G] of the layers after the first."""
        return tuple(gates.parameters(self.features)[1] for gates in self.gates)

    @nn.nowrap
    def advance(
        self,
        weights: StackWeights,
        biases: tuple[jax.Array, ...],
        carries: tuple[jax.Array, ...],
        gates: jax.Array,
        noise: tuple[jax.Array, ...] | None,
    ) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """One step of every layer, a pure function.

        Args:
            weights: of `weights`.
            biases: of `biases`.
            carries: [B, R, states D] of each layer.
            gates: [B, R, G], what the input adds to the gates of the first layer.
            noise: [B, R, D], dropout masks of the inputs of the layers after the first;
                None for no dropout. See `noise`.

        Returns:
            The next carries, and the output [B, R, D] of the last layer.
        """
        cell, n = CELLS[self.cell], self.features
        new = [cell.step(gates, carries[0], weights.states[0])]
        for layer in range(1, self.layers):
            x = new[-1][..., :n]
            x = x if noise is None else x * noise[layer - 1]
            gates = x @ weights.inputs[layer - 1] + biases[layer - 1]
            new.append(cell.step(gates, carries[layer], weights.states[layer]))
        return tuple(new), new[-1][..., :n]

    def noise(self, steps: int, batch: int) -> tuple[jax.Array, ...] | None:
        """Draw dropout masks [T, B, 1, D], one for each layer after the first.

        From the stream "dropout"; None without dropout or further layers.
        """
        after = self.layers - 1
        if not self.dropout or not after:
            return None
        ones = jnp.ones((steps, batch, 1, after * self.features))
        kept = dropout(ones, self.dropout, self.make_rng("dropout"))
        return tuple(jnp.split(kept, after, axis=-1))


class Maxout(nn.Module):
    """Maximum of the two pieces of each of l units: Goodfellow et al. (2013).

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
        """Read sentences.

        Args:
            x: [B, S, C].
            mask: [B, S] bool, False at padding.

        Returns:
            Outputs [B, S, D] and the carry after the last token, [B, states D].
        """
        cell = CELLS[self.cell]
        gates = Gates(self.cell, self.features, self.inits, name="input")(x)
        u = StateWeights(self.cell, self.features, self.inits, name="state")()
        carry = jnp.zeros((x.shape[0], cell.states * self.features), x.dtype)
        return run_cell(
            cell, time_first(gates), carry, u, mask=mask, reverse=self.backward
        )


class Encoder(nn.Module):
    """A stack of recurrent layers, each in one direction or in both.

    Attributes:
        cell: a key of `CELLS`.
        features: D of each layer and direction.
        layers: number of layers.
        bidirectional: whether a layer reads in both directions and passes on both
            outputs side by side.
        reverse: whether the source is read from its last word to its first (Sutskever
            et al. 2014, section 3.3); its end stays last, and the annotations come
            back in the order of the source.
        dropout: rate at the inputs of the layers after the first.
        inits: initializers.
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
        """Annotate sources.

        Args:
            x: [B, S, C] embedded tokens.
            mask: [B, S] bool, False at padding.
            train: whether dropout is on.

        Returns:
            Annotations [B, S, E], and for each layer the carries of its directions
            after their last token, [B, states D] each.
        """
        if self.reverse:
            x = reverse_words(x, mask)
        carries = []
        for layer in range(self.layers):
            if layer:
                x = Dropout(self.dropout)(x, train=train)
            read = [
                Recurrence(
                    self.cell,
                    self.features,
                    self.inits,
                    backward=backward,
                    name=f"{'backward' if backward else 'forward'}_{layer}",
                )(x, mask)
                for backward in (False, True)[: 1 + self.bidirectional]
            ]
            outputs, carried = zip(*read, strict=True)
            x = jnp.concatenate(outputs, axis=-1)
            carries.append(carried)
        return (reverse_words(x, mask) if self.reverse else x), carries


def reverse_words(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Reverse the tokens before the end; it and padding stay. An involution.

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
