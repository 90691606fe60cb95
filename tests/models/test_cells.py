import jax.numpy as jnp
import numpy as np
import pytest
from translators import LOOPS

from models.cells import (
    CELLS,
    run_cell,
    time_first,
)

BATCH, STEPS, STATE = 3, 5, 11
LENGTHS = (5, 2, 0)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", sorted(CELLS))
def test_a_cell_over_sequences_equals_a_loop_and_skips_padding(
    x64, draw, name, reverse
):
    cell = CELLS[name]
    gates = draw(BATCH, STEPS, cell.input_width * STATE)
    initial = draw(BATCH, cell.carry_width * STATE)
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
