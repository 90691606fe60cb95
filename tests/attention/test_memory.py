"""The memory access of the NTM, in its plain and in its fast form."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import quick_jit

from attention import memory as plain
from attention.fast import memory as fast
from attention.memory import content_weights, sharpen, shift

BATCH, HEADS, SLOTS, WIDTH, TAPS = 2, 3, 7, 5, 3


def on_transposed(function):
    """Wraps a fast function to take memories [..., N, M]."""
    return lambda *, memory, **arguments: function(memory=memory.mT, **arguments)


WRAPPED = types.SimpleNamespace(
    address=on_transposed(fast.address),
    read=on_transposed(fast.read),
    write=lambda **arguments: on_transposed(fast.write)(**arguments).mT,
)


@pytest.fixture
def inputs(draw):
    """Memory, previous weights and head parameters of a batch."""
    return {
        "memory": draw(BATCH, SLOTS, WIDTH),
        "previous": jax.nn.softmax(draw(BATCH, HEADS, SLOTS)),
        "key": draw(BATCH, HEADS, WIDTH),
        "strength": jax.nn.softplus(draw(BATCH, HEADS)),
        "gate": jax.nn.sigmoid(draw(BATCH, HEADS)),
        "shifts": jax.nn.softmax(draw(BATCH, HEADS, TAPS)),
        "sharpening": 1 + jax.nn.softplus(draw(BATCH, HEADS)),
    }


def loop_address(memory, previous, key, strength, gate, shifts, sharpening):
    """Equations 5 to 9, for one head."""
    cosines = [
        key @ slot / (np.linalg.norm(key) * np.linalg.norm(slot)) for slot in memory
    ]
    content = np.exp(strength * np.asarray(cosines))
    blended = gate * content / content.sum() + (1 - gate) * previous
    moved = np.zeros(SLOTS)
    for i in range(SLOTS):
        for j in range(SLOTS):
            for tap, by in enumerate((-1, 0, 1)):
                if (i - j) % SLOTS == by % SLOTS:
                    moved[i] += blended[j] * shifts[tap]
    return moved**sharpening / (moved**sharpening).sum()


def test_addressing_equals_a_loop_of_the_printed_equations(x64, inputs):
    weights = plain.address(**inputs)
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    for b in range(BATCH):
        for h in range(HEADS):
            head = {n: x[b] if n == "memory" else x[b, h] for n, x in arrays.items()}
            np.testing.assert_allclose(weights[b, h], loop_address(**head), atol=1e-12)


def test_reading_and_writing_equal_loops_where_all_heads_erase_first(x64, draw):
    memory, add = draw(BATCH, SLOTS, WIDTH), draw(BATCH, HEADS, WIDTH)
    weights = jax.nn.softmax(draw(BATCH, HEADS, SLOTS))
    erase = jax.nn.sigmoid(draw(BATCH, HEADS, WIDTH))
    arguments = {"memory": memory, "weights": weights}
    written = plain.write(**arguments, erase=erase, add=add)
    vectors = plain.read(**arguments)
    for b in range(BATCH):
        slots = np.array(memory[b])
        for h in range(HEADS):
            expected = sum(weights[b, h, i] * slot for i, slot in enumerate(memory[b]))
            np.testing.assert_allclose(vectors[b, h], expected, atol=1e-12)
            for i in range(SLOTS):
                slots[i] *= 1 - weights[b, h, i] * erase[b, h]
        for h in range(HEADS):
            for i in range(SLOTS):
                slots[i] += weights[b, h, i] * add[b, h]
        np.testing.assert_allclose(written[b], slots, atol=1e-12)


@pytest.mark.parametrize("taps", [1, 3, 5, 7])
def test_a_one_hot_shift_rotates_the_weights(inputs, taps):
    weights = inputs["previous"]
    for tap in range(taps):
        shifts = jnp.zeros((BATCH, HEADS, taps)).at[..., tap].set(1)
        rolled = np.roll(weights, tap - taps // 2, axis=-1)
        np.testing.assert_array_equal(shift(weights, shifts), rolled)


@pytest.mark.parametrize("taps", [2, 9])
def test_an_even_number_of_shifts_or_more_than_the_slots_is_refused(inputs, taps):
    with pytest.raises(
        ValueError, match=f"number of shifts is {taps}: must be odd and at most 7, "
    ):
        plain.address(**inputs | {"shifts": jnp.ones((BATCH, HEADS, taps))})


def test_a_gate_of_0_without_a_shift_keeps_the_weights(inputs):
    ones = jnp.ones((BATCH, HEADS))
    no_shift = jnp.zeros((BATCH, HEADS, TAPS)).at[..., 1].set(1)
    weights = plain.address(
        **inputs | {"gate": 0 * ones, "shifts": no_shift, "sharpening": ones}
    )
    np.testing.assert_allclose(weights, inputs["previous"], atol=1e-6)


def test_a_high_strength_selects_the_slot_of_the_highest_cosine(inputs):
    key, memory = inputs["key"], inputs["memory"]
    weights = content_weights(key, memory, jnp.full((BATCH, HEADS), 1e4))
    slots = memory / jnp.linalg.norm(memory, axis=-1, keepdims=True)
    nearest = jnp.einsum("bhm,bnm->bhn", key, slots).argmax(-1)
    np.testing.assert_allclose(weights, jax.nn.one_hot(nearest, SLOTS), atol=1e-4)


def test_a_weight_of_0_stays_0_when_it_is_sharpened(draw):
    weights = jax.nn.softmax(draw(BATCH, HEADS, SLOTS)).at[..., 2].set(0)
    weights = weights / weights.sum(-1, keepdims=True)
    sharpened = sharpen(weights, jnp.full((BATCH, HEADS), 3.0))
    np.testing.assert_array_equal(sharpened[..., 2], 0)
    expected = weights**3 / jnp.sum(weights**3, -1, keepdims=True)
    np.testing.assert_allclose(sharpened, expected, atol=1e-6)


def test_one_hot_weights_overwrite_their_slot_and_no_other(draw):
    memory, value = draw(BATCH, SLOTS, WIDTH), draw(BATCH, 1, WIDTH)
    certain = jnp.broadcast_to(jax.nn.one_hot(4, SLOTS), (BATCH, 1, SLOTS))
    arguments = {"memory": memory, "weights": certain, "add": value}
    written = plain.write(**arguments, erase=jnp.ones_like(value))
    np.testing.assert_array_equal(written, memory.at[:, 4].set(value[:, 0]))
    np.testing.assert_array_equal(plain.read(weights=certain, memory=written), value)
    added = plain.write(**arguments, erase=jnp.zeros_like(value))
    np.testing.assert_allclose(added, memory.at[:, 4].add(value[:, 0]), atol=1e-6)


@pytest.mark.parametrize("form", [plain, WRAPPED], ids=["plain", "fast"])
def test_one_hot_weights_and_vectors_of_zeros_have_finite_gradients(form, inputs, draw):
    certain = jnp.broadcast_to(jax.nn.one_hot(2, SLOTS), (BATCH, HEADS, SLOTS))
    memory = inputs["memory"].at[:, 3].set(0)
    addressing = inputs | {"memory": memory, "key": inputs["key"].at[:, 1].set(0)}
    addressing |= {"previous": certain, "gate": jnp.zeros((BATCH, HEADS))}
    addressing["shifts"] = jnp.zeros((BATCH, HEADS, TAPS)).at[..., 1].set(1)
    writing = {name: draw(BATCH, HEADS, WIDTH) for name in ("erase", "add")}
    writing |= {"memory": memory, "weights": certain}
    for function, arguments in (form.address, addressing), (form.write, writing):
        gradients = quick_jit(
            jax.grad(lambda x, f=function: jnp.sum(jnp.sin(f(**x))))  # nonlinear
        )(arguments)
        for name, gradient in gradients.items():
            assert np.isfinite(gradient).all(), name


def test_the_elements_of_a_batch_are_independent(inputs):
    batched = jax.jit(lambda arguments: plain.address(**arguments))(inputs)
    mapped = jax.vmap(lambda arguments: plain.address(**arguments))(inputs)
    np.testing.assert_allclose(batched, mapped, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "writers"),
    [("address", 0), ("read", 2), ("write", 1), ("write", 3)]
    + [("steps", 1), ("steps", 3)],
)
def test_the_fast_form_has_the_values_and_gradients_of_the_plain_one(
    x64, inputs, draw, name, writers
):
    """Also over two steps, in which some heads read and the others write."""
    memory = {"memory": inputs["memory"]}
    weights = memory | {"weights": jax.nn.softmax(draw(BATCH, writers, SLOTS))}
    vectors = {"erase": jax.nn.sigmoid(draw(BATCH, writers, WIDTH))}
    vectors["add"] = draw(BATCH, writers, WIDTH)
    arguments = {"address": inputs, "read": weights, "write": weights | vectors}
    arguments = (arguments | {"steps": inputs | vectors})[name]

    def steps(form):
        def run(*, memory, previous, erase, add, **addressing):
            weights, reads = previous, []
            for _ in range(2):
                weights = form.address(memory=memory, previous=weights, **addressing)
                readers, writing = jnp.split(weights, [HEADS - writers], axis=-2)
                reads.append(form.read(weights=readers, memory=memory).ravel())
                memory = form.write(
                    memory=memory, weights=writing, erase=erase, add=add
                )
            reads.append(form.read(weights=weights, memory=memory).ravel())
            return jnp.concatenate([*reads, weights.ravel()])

        return run

    def function(form):
        return steps(form) if name == "steps" else getattr(form, name)

    value = quick_jit(function(plain))(**arguments)
    actual = quick_jit(function(WRAPPED))(**arguments)
    np.testing.assert_allclose(actual, value, atol=1e-12)
    direction = draw(*value.shape)

    def gradients(function):
        loss = jax.grad(lambda x: jnp.vdot(direction, function(**x)))
        return quick_jit(loss)(arguments)

    written_out, automatic = gradients(function(WRAPPED)), gradients(function(plain))
    for key in arguments:
        np.testing.assert_allclose(
            written_out[key], automatic[key], atol=1e-10, err_msg=key
        )


def test_sharpening_lowers_the_entropy(inputs):
    def entropy(sharpening):
        weights = sharpen(inputs["previous"], jnp.full((BATCH, HEADS), sharpening))
        return -jnp.sum(weights * jnp.log(weights), axis=-1)

    entropies = [entropy(sharpening) for sharpening in (1.0, 2.0, 4.0)]
    assert (entropies[0] > entropies[1]).all() and (entropies[1] > entropies[2]).all()
