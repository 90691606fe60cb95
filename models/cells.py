"""Recurrent cells (GRU, LSTM and RNN without gates) and their scan over sequences.

The GRU follows Bahdanau et al. (2015), appendix A.1.1; the LSTM Zaremba et al. (2014),
section 3; the RNN Elman (1990). A cell is a function step(x, carry, u) -> next carry,
where x is the input's contribution to the gates and u holds the recurrent matrices.

Axes: ... any batch; B batch; S source positions; T steps; D width of a state; G width
of a cell's gates, D (RNN), 3 D (GRU) or 4 D (LSTM).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.scan import Matrix, scan


class RNNMatrices(NamedTuple):
    """Recurrent matrix of an RNN without gates."""

    state: Matrix  # [D, D], U


class GRUMatrices(NamedTuple):
    """Recurrent matrices of a GRU."""

    gates: Matrix  # [D, 2 D], U_r and U_z side by side
    candidate: Matrix  # [D, D], U


class LSTMMatrices(NamedTuple):
    """Recurrent matrix of an LSTM."""

    gates: Matrix  # [D, 4 D], for i, f, o and g side by side


CellMatrices = RNNMatrices | GRUMatrices | LSTMMatrices


def rnn(x: jax.Array, state: jax.Array, u: RNNMatrices) -> jax.Array:
    """Recurrent unit without gates: Elman (1990); "vanilla" in Britz et al. (2017).

    The next state is tanh(x + U s).

    Args:
        x: [..., D], W y + b.
        state: [..., D], s.
        u: recurrent matrix.

    Returns:
        [..., D], the next state.
    """
    return nn.tanh(x + state @ u.state)


def gru(x: jax.Array, state: jax.Array, u: GRUMatrices) -> jax.Array:
    """Gated recurrent unit of Cho et al. (2014) as in Bahdanau et al. (2015), A.1.1.

    r, z = sigmoid(x_rz + [U_r, U_z] s), s~ = tanh(x_s + U (r s)), and the next state is
    (1 - z) s + z s~.

    Args:
        x: [..., 3 D], W y + b for r, z and s~.
        state: [..., D], s.
        u: recurrent matrices.

    Returns:
        [..., D], the next state.
    """
    x_gates, x_candidate = jnp.split(x, [2 * state.shape[-1]], axis=-1)
    gates = nn.sigmoid(x_gates + state @ u.gates)
    reset, update = jnp.split(gates, 2, axis=-1)
    candidate = nn.tanh(x_candidate + (reset * state) @ u.candidate)
    return (1 - update) * state + update * candidate


def lstm(x: jax.Array, carry: jax.Array, u: LSTMMatrices) -> jax.Array:
    """Long short-term memory without peepholes: Zaremba et al. (2014), section 3.

    i, f, o, g = x + U h, c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o)
    tanh(c').

    Args:
        x: [..., 4 D], W y + b for i, f, o and g.
        carry: [..., 2 D], h and c side by side.
        u: recurrent matrix.

    Returns:
        [..., 2 D], the next h and c.
    """
    hidden, cell = jnp.split(carry, 2, axis=-1)
    gates = x + hidden @ u.gates
    input_, forget, output, candidate = jnp.split(gates, 4, axis=-1)
    cell = nn.sigmoid(forget) * cell + nn.sigmoid(input_) * nn.tanh(candidate)
    return jnp.concatenate([nn.sigmoid(output) * nn.tanh(cell), cell], axis=-1)


class Cell(NamedTuple):
    """A recurrent cell and its widths.

    Attributes:
        step: step(x [..., input_width D], carry [..., carry_width D], u) -> next carry;
            its first D elements are the output.
        input_width: width of x as a multiple of D.
        carry_width: width of the carry as a multiple of D.
        u: type of the recurrent matrices.
        matrices: width of each matrix of `u` as a multiple of D, by name.
    """

    step: Callable[[jax.Array, jax.Array, Any], jax.Array]
    input_width: int
    carry_width: int
    u: type[CellMatrices]
    matrices: dict[str, int]


CELLS = {
    "gru": Cell(
        step=gru,
        input_width=3,
        carry_width=1,
        u=GRUMatrices,
        matrices={"gates": 2, "candidate": 1},
    ),
    "lstm": Cell(
        step=lstm, input_width=4, carry_width=2, u=LSTMMatrices, matrices={"gates": 4}
    ),
    "rnn": Cell(
        step=rnn, input_width=1, carry_width=1, u=RNNMatrices, matrices={"state": 1}
    ),
}


def run_cell(
    cell: Cell,
    gates: jax.Array,
    carry: jax.Array,
    u: CellMatrices,
    *,
    mask: jax.Array | None = None,
    reverse: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Runs a cell over sequences.

    Args:
        cell: a value of `CELLS`.
        gates: [S, B, 1, G], the inputs' contribution to the gates; see `time_first`.
        carry: [B, carry_width D] before the first step.
        u: recurrent matrices.
        mask: [B, S] bool, False at padding, where the carry does not change; None for
            no padding.
        reverse: whether to run from the last position to the first.

    Returns:
        Outputs [B, S, D] in the order of the positions, and the last carry
        [B, carry_width D].
    """
    width = carry.shape[-1] // cell.carry_width

    def step(u, _, carry, x):
        gates, valid = x
        next_carry = cell.step(gates, carry, u)
        if valid is not None:
            next_carry = jnp.where(valid, next_carry, carry)
        return next_carry, next_carry[..., :width]

    valid = None if mask is None else mask.T[..., None, None]  # [S, B, 1, 1]
    inputs = gates, valid
    if reverse:
        inputs = jax.tree.map(lambda x: x[::-1], inputs)
    carry, outputs = scan(
        step, matrices=u, shared=None, carry=carry[:, None], inputs=inputs
    )
    if reverse:
        outputs = outputs[::-1]
    return batch_first(outputs), carry[:, 0]


def time_first(x: jax.Array) -> jax.Array:
    """Transposes [B, T, ...] to [T, B, 1, ...], the layout of a scan over steps."""
    return jnp.swapaxes(x, 0, 1)[:, :, None]


def batch_first(x: jax.Array) -> jax.Array:
    """Transposes [T, B, 1, ...] to [B, T, ...]; the inverse of `time_first`."""
    return jnp.swapaxes(x[:, :, 0], 0, 1)
