"""Tests of the estimated memory of a training step."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from base.errors import UserError
from configs import transformer_nmt
from training import memory, parallel, sharding

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


# Axes of the mesh: data, fsdp, tensor.
MESHES = [(8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2), (2, 1, 4)]
# With few rows of short sequences, parameters take most of the memory, and XLA has more
# copies of their gradients at a time than the estimate.
TOLERANCES = {
    ("short", (8, 1, 1)): 0.19,
    ("short", (1, 8, 1)): 0.14,
    ("short", (2, 2, 2)): 0.12,
    ("short", (2, 1, 4)): 0.12,
    ("narrow", (2, 1, 4)): 0.12,
    ("dropout", (2, 1, 4)): 0.12,
}


def check(name, mesh):
    """Checks the estimate of a step on a mesh against XLA's analysis."""
    fields, vocabulary, (rows, source, target) = SIZES[name]
    config = transformer_nmt.get_config("smoke")
    config.model.update(dict(encoder_layers=2, decoder_layers=2) | fields)
    config.data.vocab_size = vocabulary
    axes = dict(zip(("data", "fsdp", "tensor"), mesh, strict=True))
    layout = parallel.Layout(ConfigDict(axes), "jit")
    objective, rng = config.task(config).objective, jax.random.key(0)
    like = layout.abstract(objective.init, rng, sharding.rules_of(config))
    shards = mesh[0] * mesh[1]
    rows = rows if rows >= 8 * shards else rows * shards
    batch = {
        name: jax.ShapeDtypeStruct(
            (rows, length), np.int32, sharding=layout.batch_sharding
        )
        for name, length in (("source", source), ("target", target))
    }
    estimate = layout.estimate(objective.step, like, batch, rng)
    step = layout.jitted(objective.step, like).lower(like, batch, rng).compile()
    analysis = step.memory_analysis()
    actual = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    actual += analysis.temp_size_in_bytes - analysis.alias_size_in_bytes
    error = estimate / actual - 1
    assert abs(error) < TOLERANCES.get((name, mesh), 0.1), (name, mesh, error)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_the_estimate_is_within_a_tenth_of_the_compilers(name, quick_compilation):
    check(name, (1, 1, 1))


def meshes_and_sizes():
    """Meshes, with one size each in CI and the other sizes in `make test-jobs`."""
    for mesh, name in zip(MESHES, SIZES, strict=True):
        label, others = "_".join(map(str, mesh)), [x for x in SIZES if x != name]
        yield pytest.param(mesh, [name], id=f"{label}_{name}", marks=pytest.mark.slow)
        yield pytest.param(mesh, others, id=f"{label}_others", marks=pytest.mark.jobs)


@pytest.mark.parametrize(("mesh", "names"), list(meshes_and_sizes()))
def test_on_eight_devices_too_it_is_near_that_of_the_compiler(
    mesh, names, request, quick_compilation
):
    if jax.device_count() == 8:
        for name in names:
            check(name, mesh)
        return
    flags = "--xla_force_host_platform_device_count=8"
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "", request.node.nodeid],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        cwd=request.config.rootpath,
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_pieces_of_an_array_stay_contiguous_in_a_reshape():
    for old, cuts, new, expected in (
        ((77, 30), (1, 15), (77, 5, 6), (1, 5, 3)),
        ((77, 5, 6), (1, 5, 3), (77, 30), (1, 15)),
        ((77, 5, 6), (1, 5, 1), (7, 11, 30), (1, 1, 5)),
        ((3, 5, 8), (1, 1, 4), (15, 8), (1, 4)),
        ((4, 6), (1, 3), (24,), (1,)),  # not contiguous
        ((1, 6), (1, 3), (6, 1), (3, 1)),
        ((0, 6), (1, 3), (6, 0), (1, 1)),
        ((), (), (1,), (1,)),
    ):
        assert memory._reshaped(old, cuts, new) == expected


@pytest.mark.parametrize(
    ("function", "cuts", "expected"),
    [
        (lambda x: jnp.stack([x, x], 1), (2, 3, 5), (2, 1, 3, 5)),
        (lambda x: jnp.unstack(x, axis=1)[0], (2, 1, 5), (2, 5)),
        (lambda x: jnp.squeeze(x, 1), (2, 1, 5), (2, 5)),
        (lambda x: jnp.reshape(x, (4, 15)), (2, 1, 1), (2, 1)),
    ],
)
def test_axes_keep_their_cuts_when_others_come_or_go(function, cuts, expected):
    x = jnp.zeros((4, 3, 5) if cuts[1] > 1 else (4, 1, 15))
    jaxpr = jax.make_jaxpr(function)(x)
    (equation,) = [e for e in jaxpr.eqns if e.outvars[0] is jaxpr.jaxpr.outvars[0]]
    operands = [memory._Value(v.aval, cuts) for v in equation.invars]
    operation = memory._Operation(equation.primitive.name, operands, equation)
    assert memory._cuts(operation, equation.outvars[0].aval) == expected


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
