"""The fast memory access equals the equations of `attention.memory`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import quick_jit

from attention import memory as plain
from attention.fast import memory as fast

BATCH, HEADS, SLOTS, WIDTH, TAPS = 2, 3, 7, 5, 3


@pytest.fixture
def head_parameters(draw):
    return {
        "key": draw(BATCH, HEADS, WIDTH),
        "strength": jax.nn.softplus(draw(BATCH, HEADS)),
        "gate": jax.nn.sigmoid(draw(BATCH, HEADS)),
        "shifts": jax.nn.softmax(draw(BATCH, HEADS, TAPS)),
        "sharpening": 1 + jax.nn.softplus(draw(BATCH, HEADS)),
    }


@pytest.fixture
def addressing(draw, head_parameters):
    return head_parameters | {
        "memory": draw(BATCH, SLOTS, WIDTH),
        "previous": jax.nn.softmax(draw(BATCH, HEADS, SLOTS)),
    }


@pytest.fixture(params=[1, 2, 3])
def writing(draw, request):
    return {
        "memory": draw(BATCH, SLOTS, WIDTH),
        "weights": jax.nn.softmax(draw(BATCH, request.param, SLOTS)),
        "erase": jax.nn.sigmoid(draw(BATCH, request.param, WIDTH)),
        "add": draw(BATCH, request.param, WIDTH),
    }


def on_transposed(function):
    """Wraps a fast function to take and return memories [..., N, M]."""

    def call(*, memory, **arguments):
        memory = fast.Memory(jnp.swapaxes(memory, -1, -2))
        result = function(memory=memory, **arguments)
        if isinstance(result, fast.Memory):
            return jnp.swapaxes(result.transposed, -1, -2)
        return result

    return call


def check_value_and_gradient(function, expected, arguments, draw):
    value = quick_jit(expected)(**arguments)
    np.testing.assert_allclose(quick_jit(function)(**arguments), value, atol=1e-12)
    direction = draw(*value.shape)

    def gradients(function):
        def along(arguments):
            return jnp.vdot(direction, function(**arguments))

        return quick_jit(jax.grad(along))(arguments)

    written_out, automatic = gradients(function), gradients(expected)
    for name in arguments:
        np.testing.assert_allclose(
            written_out[name], automatic[name], atol=1e-10, err_msg=name
        )


def test_address_equals_the_plain_form(x64, addressing, draw):
    check_value_and_gradient(
        on_transposed(fast.address), plain.address, addressing, draw
    )


def test_read_equals_the_plain_form(x64, writing, draw):
    arguments = {name: writing[name] for name in ("weights", "memory")}
    check_value_and_gradient(on_transposed(fast.read), plain.read, arguments, draw)


def test_write_equals_the_plain_form(x64, writing, draw):
    check_value_and_gradient(on_transposed(fast.write), plain.write, writing, draw)


@pytest.mark.parametrize("writers", [1, 2])
def test_steps_equal_the_plain_form(x64, addressing, draw, writers):
    """Two steps in which some heads read and the others write."""
    arguments = addressing | {
        "erase": jax.nn.sigmoid(draw(BATCH, writers, WIDTH)),
        "add": draw(BATCH, writers, WIDTH),
    }

    def steps(functions):
        def run(*, memory, previous, erase, add, **head_parameters):
            weights, reads = previous, []
            for _ in range(2):
                weights = functions.address(memory, weights, **head_parameters)
                readers, writers = jnp.split(weights, [HEADS - len(erase[0])], axis=-2)
                reads.append(functions.read(readers, memory).ravel())
                memory = functions.write(memory, writers, erase, add)
            last = functions.read(weights, memory).ravel()
            return jnp.concatenate([*reads, last, weights.ravel()])

        return run

    check_value_and_gradient(on_transposed(steps(fast)), steps(plain), arguments, draw)


@pytest.mark.parametrize("taps", [2, 9])
def test_an_even_number_of_shifts_or_more_than_the_slots_is_refused(addressing, taps):
    arguments = addressing | {"shifts": jnp.ones((BATCH, HEADS, taps))}
    with pytest.raises(
        ValueError, match=f"number of shifts is {taps}: must be odd and at most 7, "
    ):
        on_transposed(fast.address)(**arguments)


def test_gradients_are_finite_where_a_slot_or_a_key_is_zero(addressing, writing):
    zeros = addressing | {"memory": addressing["memory"].at[:, 3].set(0)}
    zeros |= {"key": zeros["key"].at[:, 1].set(0)}
    addressed = quick_jit(
        jax.grad(lambda x: jnp.sum(on_transposed(fast.address)(**x) ** 2))
    )
    zeros_writing = writing | {"memory": zeros["memory"]}
    written = quick_jit(jax.grad(lambda x: on_transposed(fast.write)(**x).sum()))
    for gradients in (addressed(zeros), written(zeros_writing)):
        for name, gradient in gradients.items():
            assert np.isfinite(gradient).all(), name
