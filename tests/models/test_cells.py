import jax.numpy as jnp
import numpy as np
import pytest
from translators import LOOPS

from models.cells import (
    CELLS,
    GRUMatrices,
    LSTMMatrices,
    gru,
    lstm,
    run_cell,
    time_first,
)

BATCH, STEPS, STATE = 3, 5, 11
LENGTHS = (5, 2, 0)


@pytest.mark.parametrize("update", [0.0, 1.0])
def test_a_gru_keeps_its_state_or_takes_the_candidate_by_its_update_gate(draw, update):
    state, candidate = draw(BATCH, STATE), draw(BATCH, STATE)
    zeros = jnp.zeros((BATCH, STATE))
    gates = jnp.concatenate([zeros, zeros + 1e9 * (2 * update - 1), candidate], -1)
    zero_weights = GRUMatrices(jnp.zeros((STATE, 2 * STATE)), jnp.zeros((STATE, STATE)))
    next_state = gru(gates, state, zero_weights)
    np.testing.assert_array_equal(next_state, jnp.tanh(candidate) if update else state)


def test_an_lstm_keeps_its_cell_if_the_forget_gate_is_open_and_the_others_closed(draw):
    carry, huge = draw(BATCH, 2 * STATE), jnp.full((BATCH, STATE), 1e9)
    gates = jnp.concatenate([-huge, huge, -huge, draw(BATCH, STATE)], axis=-1)
    next_carry = lstm(gates, carry, LSTMMatrices(jnp.zeros((STATE, 4 * STATE))))
    np.testing.assert_array_equal(next_carry[:, STATE:], carry[:, STATE:])
    assert not np.any(next_carry[:, :STATE])  # the output gate is closed


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", sorted(CELLS))
def test_a_cell_over_sequences_equals_a_loop_and_skips_padding(
    x64, draw, name, reverse
):
    cell = CELLS[name]
    gates = draw(BATCH, STEPS, cell.gates * STATE)
    initial = draw(BATCH, cell.states * STATE)
    u = cell.u(*(draw(STATE, k * STATE) for k in cell.matrices.values()))
    mask = jnp.arange(STEPS) < jnp.asarray(LENGTHS)[:, None]
    outputs, last = run_cell(
        cell, time_first(gates), initial, u=u, mask=mask, reverse=reverse
    )
    for b, length in enumerate(LENGTHS):
        carry = np.asarray(initial[b])
        for step in range(length)[:: -1 if reverse else 1]:
            carry = LOOPS[name](gates[b, step], carry, u._asdict())
            np.testing.assert_allclose(outputs[b, step], carry[:STATE], atol=1e-12)
        np.testing.assert_allclose(last[b], carry, atol=1e-12)
