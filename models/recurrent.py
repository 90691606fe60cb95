"""Recurrent layers: parameters of the cells, and stacks for encoder and decoder.

A step is split in two: `Gates` computes W x + b for all steps at once, `StateMatrices`
holds U, and `cell.step(gates, carry, U)` advances. `Recurrence` runs one cell over a
sequence; `Encoder` stacks recurrences; `Stack` holds a decoder's layers, advanced one
step at a time.

Axes: ... any batch; B batch; S source positions; T target steps; R hypotheses that
share one source; C width of an embedding; D width of a state; E width of an annotation;
G width of a cell's gates; l maxout units; W vocabulary.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.dropout import dropout
from attention.fast.linear import linear
from attention.fast.scan import Matrix
from models.cells import CELLS, CellMatrices, run_cell, time_first
from models.initializers import Init, lstm_bias
from models.layers import Dense, Dropout


class StateMatrices(nn.Module):
    """Recurrent matrices of a cell.

    Attributes:
        cell: a key of `CELLS`.
        features: D.
        inits: initializers.
    """

    cell: str
    features: int
    inits: Init

    @nn.compact
    def __call__(self) -> CellMatrices:
        """Returns the matrices, [D, k D] each."""
        n, cell, init = self.features, CELLS[self.cell], self.inits.recurrent
        return cell.u(
            **{
                name: self.param(name, init, (n, width * n))
                for name, width in cell.matrices.items()
            }
        )


class Gates(nn.Module):
    """The input's contribution x W + b to the gates of a cell.

    The fields are those of `StateMatrices`.
    """

    cell: str
    features: int
    inits: Init

    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes [..., G] from [..., C]."""
        w, b = self.parameters(x.shape[-1])
        return linear(x, w) + b

    @nn.compact
    def parameters(self, width: int) -> tuple[jax.Array, jax.Array]:
        """Returns W [C, G] and b [G] for inputs of this width."""
        size = CELLS[self.cell].input_width * self.features
        w = self.param("kernel", self.inits.kernel, (width, size))
        bias_init = nn.initializers.zeros
        if self.cell == "lstm":
            bias_init = partial(lstm_bias, forget=self.inits.forget)
        return w, self.param("bias", bias_init, (size,))


RESIDUALS = ("none", "residual", "dense")


def add_inputs(y: jax.Array, inputs: Sequence[jax.Array], residual: str) -> jax.Array:
    """Adds the inputs of stacked layers to the output of the last of them.

    With "residual", the layer's own input is added; with "dense", the inputs of all
    layers: Britz et al. (2017), section 4.3.

    Args:
        y: [..., D], the output of a layer.
        inputs: [..., D], the inputs of the second layer up to this one.
        residual: one of `RESIDUALS`.

    Returns:
        [..., D].
    """
    if residual == "none" or not inputs:
        return y
    return y + sum(inputs if residual == "dense" else inputs[-1:])


class StackMatrices(NamedTuple):
    """Weight matrices of a `Stack`."""

    recurrent: tuple[CellMatrices, ...]  # per layer
    inputs: tuple[Matrix, ...]  # [D, G] per layer after the first


class Stack(nn.Module):
    """Stacked recurrent layers of a decoder, advanced together step by step.

    Attributes:
        cell: a key of `CELLS`.
        features: D.
        layers: number of layers.
        dropout: dropout rate at the inputs of the layers after the first.
        inits: initializers.
        residual: one of `RESIDUALS`, for the layers after the first; see `add_inputs`.
    """

    cell: str
    features: int
    layers: int
    dropout: float
    inits: Init
    residual: str = "none"

    def setup(self):
        common = (self.cell, self.features, self.inits)
        self.states = [StateMatrices(*common) for _ in range(self.layers)]
        self.gates = [Gates(*common) for _ in range(self.layers - 1)]

    def recurrent(self) -> tuple[CellMatrices, ...]:
        """Returns the recurrent matrices U of each layer."""
        return tuple(state() for state in self.states)

    def parameters(self) -> tuple[StackMatrices, tuple[jax.Array, ...]]:
        """Returns the matrices, and the biases [G] of the layers after the first."""
        upper = [gates.parameters(self.features) for gates in self.gates]
        matrices = StackMatrices(self.recurrent(), tuple(w for w, _ in upper))
        return matrices, tuple(b for _, b in upper)

    @nn.nowrap
    def advance(
        self,
        w: StackMatrices,
        biases: tuple[jax.Array, ...],
        carries: tuple[jax.Array, ...],
        gates: jax.Array,
        noise: tuple[jax.Array, ...] | None,
    ) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """Advances every layer by one step, a pure function.

        Args:
            w: matrices from `parameters`.
            biases: biases from `parameters`.
            carries: [B, R, carry_width D] per layer.
            gates: [B, R, G], the input's contribution to the gates of the first layer.
            noise: [B, R, D] dropout mask per layer after the first, applied to its
                input; None for no dropout. See `noise`.

        Returns:
            The next carries, and the output [B, R, D] of the last layer.
        """
        cell, n = CELLS[self.cell], self.features
        next_carries, outputs = list[jax.Array](), list[jax.Array]()
        for layer, u in enumerate(w.recurrent):
            if layer:
                x = outputs[-1] if noise is None else outputs[-1] * noise[layer - 1]
                gates = x @ w.inputs[layer - 1] + biases[layer - 1]
            # h_t^l = cell(W h_t^(l-1) + b, h_{t-1}^l; U)
            next_carries.append(cell.step(gates, carries[layer], u))
            h = next_carries[-1][..., :n]
            outputs.append(add_inputs(h, outputs, self.residual))
        return tuple(next_carries), outputs[-1]

    def noise(self, steps: int, batch: int) -> tuple[jax.Array, ...] | None:
        """Samples dropout masks [T, B, 1, D], one per layer after the first.

        The RNG stream is "dropout". Returns None at a rate of 0 or with a single layer.
        """
        upper_layers = self.layers - 1
        if not self.dropout or not upper_layers:
            return None
        ones = jnp.ones((steps, batch, 1, upper_layers * self.features))
        masks = dropout(ones, self.dropout, self.make_rng("dropout"))
        return tuple(jnp.split(masks, upper_layers, axis=-1))


class Maxout(nn.Module):
    """Layer of l maxout units with two pieces each: Goodfellow et al. (2013).

    Unit i is the maximum of the pieces i and i + l.

    Attributes:
        units: l.
        inits: initializers.
    """

    units: int
    inits: Init

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes [..., l] from [..., C]."""
        pieces = Dense(2 * self.units, kernel_init=self.inits.kernel)(x)
        return jnp.maximum(*jnp.split(pieces, 2, axis=-1))


class Recurrence(nn.Module):
    """Recurrent layer over whole sequences; padding does not change the carry.

    Attributes:
        backward: whether to run from the last token to the first.

    The other fields are those of `StateMatrices`.
    """

    cell: str
    features: int
    inits: Init
    backward: bool = False

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        mask: jax.Array | None = None,
        carry: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Runs the layer over sequences.

        Args:
            x: [B, S, C].
            mask: [B, S] bool, False at padding; None without padding.
            carry: [B, carry_width D] before the first token; None for 0.

        Returns:
            Outputs [B, S, D] and the carry after the last token, [B, carry_width D].
        """
        cell = CELLS[self.cell]
        gates = Gates(self.cell, self.features, self.inits, name="input")(x)
        u = StateMatrices(self.cell, self.features, self.inits, name="state")()
        if carry is None:
            carry = jnp.zeros((len(x), cell.carry_width * self.features), x.dtype)
        return run_cell(
            cell, time_first(gates), carry, u=u, mask=mask, reverse=self.backward
        )


class Encoder(nn.Module):
    """Stacked recurrent layers over the source, unidirectional or bidirectional.

    Attributes:
        cell: a key of `CELLS`.
        features: D, per direction.
        layers: number of layers.
        inits: initializers.
        bidirectional: whether each layer runs in both directions and concatenates their
            outputs.
        reverse: whether the source tokens are reversed (Sutskever et al. 2014, section
            3.3). EOS stays last, and annotations are in the order of the source.
        dropout: dropout rate at the inputs of the layers after the first.
        residual: one of `RESIDUALS`, for the layers after the first; see `add_inputs`.
    """

    cell: str
    features: int
    layers: int
    inits: Init
    bidirectional: bool = False
    reverse: bool = False
    dropout: float = 0.0
    residual: str = "none"

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: jax.Array, *, train: bool
    ) -> tuple[jax.Array, list[tuple[jax.Array, ...]]]:
        """Computes the annotations of sources.

        Args:
            x: [B, S, C] embedded tokens.
            mask: [B, S] bool, False at padding.
            train: whether dropout is on.

        Returns:
            Annotations [B, S, E], and per layer a tuple with the last carry
            [B, carry_width D] of each direction.
        """
        if self.reverse:
            x = reverse_tokens(x, mask)
        carries, inputs = [], []
        for layer in range(self.layers):
            if layer:
                inputs.append(x)
                x = Dropout(self.dropout)(x, deterministic=not train)
            common = (self.cell, self.features, self.inits)
            y, carry = Recurrence(*common, name=f"forward_{layer}")(x, mask)
            carries.append((carry,))
            if self.bidirectional:
                backward = Recurrence(*common, backward=True, name=f"backward_{layer}")
                back, carry = backward(x, mask)
                y = jnp.concatenate([y, back], axis=-1)  # h_j = [forward_j; backward_j]
                carries[-1] += (carry,)
            x = add_inputs(y, inputs, self.residual)
        return (reverse_tokens(x, mask) if self.reverse else x), carries


def reverse_tokens(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Reverses the tokens before EOS; EOS and padding stay. Its own inverse.

    Args:
        x: [B, S, ...]; EOS is at the last unmasked position.
        mask: [B, S] bool, False at padding.

    Returns:
        [B, S, ...].
    """
    position = jnp.arange(mask.shape[1])
    length = mask.sum(1, keepdims=True) - 1  # [B, 1], without EOS
    order = jnp.where(position < length, length - 1 - position, position)
    return jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1)
