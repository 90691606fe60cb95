"""Tests of the estimated memory of a training step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import transformer_nmt
from errors import UserError
from training import memory, parallel

# Fields of the model, vocabulary size and shape of the batch: rows, source, target.
SIZES = {
    "narrow": (dict(d_model=64, d_ff=256), 1000, (16, 31, 29)),
    "dropout": (dict(d_model=64, d_ff=256, dropout=0.1), 1000, (16, 31, 29)),
    "post": (
        dict(d_model=128, d_ff=512, norm="post", positions="sinusoidal", dropout=0.1),
        4000,
        (16, 32, 32),
    ),
    "long": (dict(d_model=128, d_ff=256, positions="rotary"), 500, (2, 128, 128)),
    "short": (dict(d_model=128, d_ff=512), 2000, (64, 16, 16)),
}


# With few rows and long sequences, XLA has more arrays of scores than the estimate.
TOLERANCES = {"long": 0.15}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_the_estimate_is_within_a_tenth_of_the_compilers(name, quick_compilation):
    fields, vocabulary, (rows, source, target) = SIZES[name]
    config = transformer_nmt.get_config("smoke")
    config.model.update(dict(encoder_layers=2, decoder_layers=2) | fields)
    config.data.vocab_size = vocabulary
    mesh = ConfigDict({"data": 1, "fsdp": 1, "tensor": 1})
    layout = parallel.Layout(mesh, "jit")
    objective, rng = config.task(config).objective, jax.random.key(0)
    like = layout.abstract(objective.init, rng)
    batch = {
        "source": jax.ShapeDtypeStruct((rows, source), np.int32),
        "target": jax.ShapeDtypeStruct((rows, target), np.int32),
    }
    estimate = layout.estimate(objective.step, like, batch, rng)
    step = layout.compile(objective.step, like).lower(like, batch, rng).compile()
    analysis = step.memory_analysis()
    actual = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    actual += analysis.temp_size_in_bytes - analysis.alias_size_in_bytes
    assert abs(estimate / actual - 1) < TOLERANCES.get(name, 0.1)


def test_a_product_needs_its_factors_and_its_result():
    def product(x, y):
        return jnp.sum(x @ y)

    x, y = jnp.zeros((3, 5)), jnp.zeros((5, 7))
    jaxpr = jax.make_jaxpr(product)(x, y)
    assert memory.step_bytes(jaxpr) == 4 * (3 * 5 + 5 * 7 + 3 * 7)
    halves = [(1, 1), (1, 7)]  # each of seven devices has a column
    assert memory.step_bytes(jaxpr, halves) == 4 * (3 * 5 + 5 + 3)


def test_only_the_branch_of_this_platform_counts():
    def square(x):
        return (x @ x.T) @ x

    def step(x):
        return jax.lax.platform_dependent(x, cpu=jnp.cos, default=square)

    x = jnp.zeros((7, 3))
    jaxpr = jax.make_jaxpr(step)(x)
    expected = jax.make_jaxpr(jnp.cos)(x)
    assert memory.step_bytes(jaxpr) == memory.step_bytes(expected)


def test_a_step_that_does_not_fit_is_refused():
    memory.check(2**20, available=2**20)
    with pytest.raises(UserError) as error:
        memory.check(3 * 2**20, available=2**20)
    assert str(error.value) == (
        "a training step needs 3 MiB of memory on each device: must be at most 1 MiB; "
        "reduce sizes of config.data or config.model, or use more devices "
        "(config.mesh)"
    )
