import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention.positions import learned_positions, rotary, sinusoids


@pytest.mark.parametrize("length, dim, offset", [(7, 10, 0), (5, 11, 13), (1, 2, 3)])
def test_sinusoids_equal_a_loop(x64, length, dim, offset):
    encodings = sinusoids(length, dim, offset)
    assert encodings.shape == (length, dim)
    for row, column in np.ndindex(length, dim):
        angle = (offset + row) / 10000 ** (2 * (column // 2) / dim)
        expected = (math.sin, math.cos)[column % 2](angle)
        assert abs(encodings[row, column] - expected) < 1e-12


@pytest.mark.parametrize("step", [1, 5, 23])
def test_a_shift_is_the_same_rotation_at_every_position(x64, step):
    dim = 14
    first, shifted = (sinusoids(31, dim, s).reshape(31, dim // 2, 2) for s in (0, step))
    angles = step / 10000 ** (np.arange(0, dim, 2) / dim)
    rotation = np.array(
        [[np.cos(angles), np.sin(angles)], [-np.sin(angles), np.cos(angles)]]
    )
    rotated = np.einsum("abi,tib->tia", rotation, first)
    np.testing.assert_allclose(rotated, shifted, atol=1e-12)


def test_offset_may_be_traced_in_both():
    table = jnp.arange(33.0).reshape(11, 3)
    steps = jax.jit(
        lambda t: (sinusoids(1, 6, t)[0], learned_positions(table, 1, t)[0])
    )
    for time in range(11):
        encodings = steps(time)
        np.testing.assert_allclose(encodings[0], sinusoids(11, 6)[time], atol=1e-6)
        np.testing.assert_array_equal(encodings[1], table[time])


def test_learned_positions_are_the_rows_of_the_table():
    table = jnp.arange(33.0).reshape(11, 3)
    np.testing.assert_array_equal(learned_positions(table, 5), table[:5])
    np.testing.assert_array_equal(learned_positions(table, 5, 6), table[6:])
    np.testing.assert_array_equal(learned_positions(table, 11), table)
    used = jax.grad(lambda t: learned_positions(t, 2, 3).sum())(table)
    np.testing.assert_array_equal(used[:, 0], [0] * 3 + [1] * 2 + [0] * 6)


@pytest.mark.parametrize("length, offset", [(12, 0), (5, 7), (1, 11), (1, -1)])
def test_positions_beyond_the_table_are_refused(length, offset):
    message = (
        f"^offset is {offset} and length is {length}: must fit a table of 11 positions$"
    )
    with pytest.raises(ValueError, match=message):
        learned_positions(jnp.zeros((11, 3)), length, offset)


@pytest.mark.parametrize("offset", [0, 13])
def test_rotary_equals_the_rotation_matrices_of_the_paper(x64, draw, offset):
    x = draw(2, 3, 5, 6)
    actual = rotary(x, offset + jnp.arange(5))
    for m in range(5):
        matrix = np.zeros((6, 6))  # Su et al., eq. 15
        for i in range(3):
            angle = (offset + m) / 10000 ** (2 * i / 6)
            c, s = math.cos(angle), math.sin(angle)
            matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, -s], [s, c]]
        np.testing.assert_allclose(actual[..., m, :], x[..., m, :] @ matrix.T)


def test_rotary_scores_depend_only_on_distances(x64, draw):
    query, key = draw(2, 5, 8), draw(2, 5, 8)

    def scores(shift):
        position = shift + jnp.arange(5)
        return rotary(query, position) @ rotary(key, position).mT

    np.testing.assert_allclose(scores(0), scores(37), atol=1e-10)
    assert np.abs(scores(0) - query @ key.mT).max() > 0.1
    np.testing.assert_allclose(  # lengths do not change
        jnp.linalg.norm(rotary(query, 37.0), axis=-1), jnp.linalg.norm(query, axis=-1)
    )


def test_rotary_refuses_an_odd_width(draw):
    with pytest.raises(ValueError, match=r"^x \(2, 5\) must have an even width$"):
        rotary(draw(2, 5), jnp.arange(2))
