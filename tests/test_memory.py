import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import quick_jit

from attention.memory import (
    address,
    content_weights,
    interpolate,
    read,
    sharpen,
    shift,
    write,
)

BATCH, HEADS, ROWS, WIDTH, TAPS = 2, 3, 7, 5, 3


@pytest.fixture
def inputs(draw):
    """What two sequences' heads emit, and what they looked at before."""
    return {
        "memory": draw(BATCH, ROWS, WIDTH),
        "previous": jax.nn.softmax(draw(BATCH, HEADS, ROWS)),
        "key": draw(BATCH, HEADS, WIDTH),
        "strength": jax.nn.softplus(draw(BATCH, HEADS)),
        "gate": jax.nn.sigmoid(draw(BATCH, HEADS)),
        "shifts": jax.nn.softmax(draw(BATCH, HEADS, TAPS)),
        "sharpening": 1 + jax.nn.softplus(draw(BATCH, HEADS)),
    }


def loop_address(memory, previous, key, strength, gate, shifts, sharpening):
    """Equations 5 to 9 as printed, for one head."""
    cosines = [
        key @ row / (np.linalg.norm(key) * np.linalg.norm(row)) for row in memory
    ]
    content = np.exp(strength * np.asarray(cosines))
    blended = gate * content / content.sum() + (1 - gate) * previous
    moved = np.zeros(ROWS)
    for i in range(ROWS):
        for j in range(ROWS):
            for tap, by in enumerate((-1, 0, 1)):
                if (i - j) % ROWS == by % ROWS:
                    moved[i] += blended[j] * shifts[tap]
    return moved**sharpening / (moved**sharpening).sum()


def test_addressing_equals_a_loop_of_the_printed_equations(x64, inputs):
    found = address(**inputs)
    given = {name: np.asarray(value) for name, value in inputs.items()}
    for b in range(BATCH):
        for h in range(HEADS):
            own = {n: x[b] if n == "memory" else x[b, h] for n, x in given.items()}
            np.testing.assert_allclose(found[b, h], loop_address(**own), atol=1e-12)


def test_reading_and_writing_equal_loops_in_which_all_heads_erase_first(x64, draw):
    memory, add = draw(BATCH, ROWS, WIDTH), draw(BATCH, HEADS, WIDTH)
    weights = jax.nn.softmax(draw(BATCH, HEADS, ROWS))
    erase = jax.nn.sigmoid(draw(BATCH, HEADS, WIDTH))
    found, seen = write(memory, weights, erase, add), read(weights, memory)
    for b in range(BATCH):
        rows = np.array(memory[b])
        for h in range(HEADS):
            mean = sum(weights[b, h, i] * rows_i for i, rows_i in enumerate(memory[b]))
            np.testing.assert_allclose(seen[b, h], mean, atol=1e-12)
            for i in range(ROWS):
                rows[i] *= 1 - weights[b, h, i] * erase[b, h]
        for h in range(HEADS):
            for i in range(ROWS):
                rows[i] += weights[b, h, i] * add[b, h]
        np.testing.assert_allclose(found[b], rows, atol=1e-12)


def test_weights_stay_on_the_simplex_after_every_stage(inputs):
    content = content_weights(inputs["key"], inputs["memory"], inputs["strength"])
    blended = interpolate(content, inputs["previous"], inputs["gate"])
    moved = shift(blended, inputs["shifts"])
    for weights in (content, blended, moved, sharpen(moved, inputs["sharpening"])):
        assert weights.shape == (BATCH, HEADS, ROWS) and (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("taps", [1, 3, 5, 7])
def test_a_certain_shift_rolls_and_wraps(inputs, taps):
    weights = inputs["previous"]
    for tap in range(taps):
        shifts = jnp.zeros((BATCH, HEADS, taps)).at[..., tap].set(1)
        rolled = np.roll(weights, tap - taps // 2, axis=-1)
        np.testing.assert_array_equal(shift(weights, shifts), rolled)


@pytest.mark.parametrize("taps", [2, 4, 9])
def test_shifts_without_a_centre_or_beyond_the_memory_are_refused(inputs, taps):
    with pytest.raises(ValueError, match=f"{taps} shifts: must be an odd number of at"):
        shift(inputs["previous"], jnp.ones((BATCH, HEADS, taps)))


def test_a_closed_gate_that_stays_keeps_the_weights(inputs):
    ones = jnp.ones((BATCH, HEADS))
    stay = jnp.zeros((BATCH, HEADS, TAPS)).at[..., 1].set(1)
    found = address(**inputs | {"gate": 0 * ones, "shifts": stay, "sharpening": ones})
    np.testing.assert_allclose(found, inputs["previous"], atol=1e-6)


def test_a_high_strength_finds_the_row_of_the_highest_cosine(inputs):
    key, memory = inputs["key"], inputs["memory"]
    found = content_weights(key, memory, jnp.full((BATCH, HEADS), 1e4))
    rows = memory / jnp.linalg.norm(memory, axis=-1, keepdims=True)
    nearest = jnp.einsum("bhm,bnm->bhn", key, rows).argmax(-1)
    np.testing.assert_allclose(found, jax.nn.one_hot(nearest, ROWS), atol=1e-4)


def test_a_higher_power_lowers_the_entropy(inputs):
    def entropy(sharpening):
        weights = sharpen(inputs["previous"], jnp.full((BATCH, HEADS), sharpening))
        return -jnp.sum(weights * jnp.log(weights), axis=-1)

    entropies = [entropy(sharpening) for sharpening in (1.0, 2.0, 4.0)]
    assert (entropies[0] > entropies[1]).all() and (entropies[1] > entropies[2]).all()


def test_a_row_is_overwritten_where_a_head_is_certain_and_the_others_are_not(draw):
    memory, value = draw(BATCH, ROWS, WIDTH), draw(BATCH, 1, WIDTH)
    certain = jnp.broadcast_to(jax.nn.one_hot(4, ROWS), (BATCH, 1, ROWS))
    written = write(memory, certain, jnp.ones_like(value), value)
    np.testing.assert_array_equal(written, memory.at[:, 4].set(value[:, 0]))
    np.testing.assert_array_equal(read(certain, written), value)
    kept = write(memory, certain, jnp.zeros_like(value), value)
    np.testing.assert_allclose(kept, memory.at[:, 4].add(value[:, 0]), atol=1e-6)


def test_certain_weights_and_rows_of_zeros_have_finite_gradients(inputs):
    certain = jnp.broadcast_to(jax.nn.one_hot(2, ROWS), (BATCH, HEADS, ROWS))
    given = inputs | {"memory": inputs["memory"].at[:, 3].set(0)}
    given |= {"previous": certain, "gate": jnp.zeros((BATCH, HEADS))}
    given["shifts"] = jnp.zeros((BATCH, HEADS, TAPS)).at[..., 1].set(1)
    total = lambda given: jnp.sum(jnp.sin(address(**given)))  # noqa: E731
    gradients = quick_jit(jax.grad(total))(given)
    for name, gradient in gradients.items():
        assert np.isfinite(gradient).all(), name


def test_the_elements_of_a_batch_are_independent(inputs):
    found = jax.jit(lambda given: address(**given))(inputs)
    alone = jax.vmap(lambda given: address(**given))(inputs)
    np.testing.assert_allclose(found, alone, atol=1e-6)
    other = inputs | {"memory": inputs["memory"].at[1].set(0)}
    np.testing.assert_array_equal(address(**other)[0], address(**inputs)[0])
