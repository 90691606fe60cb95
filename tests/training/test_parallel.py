"""Tests that every layout over devices gives the same gradients and parameters."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import jax
import jobs
import numpy as np
import optax
import pytest
import smoke
import toy
from ml_collections import ConfigDict

from base.devices import data_axis
from base.errors import UserError
from configs import luong_nmt, sagan, transformer_nmt
from tasks.images.task import Adversarial, Assets
from tasks.translation.task import Translation
from training import checkpoints, loop, parallel, sharding, sharding_table
from training.optimizers import adam
from training.task import create

# 8 divides only the sizes that are to be sharded: width 16, not inputs 3.
LAYOUTS = {
    "one": ("jit", 1, 1, 1),
    "data": ("jit", 8, 1, 1),
    "fsdp": ("jit", 1, 8, 1),
    "both": ("jit", 2, 4, 1),
    "tensor": ("jit", 4, 1, 2),
    "all": ("jit", 2, 2, 2),
    "pmap": ("pmap", 8, 1, 1),
    "cores": ("cores", 8, 1, 1),
}


def make_mesh(*sizes):
    return ConfigDict(dict(zip(("data", "fsdp", "tensor"), sizes, strict=True)))


def make_config(parallel, *sizes):
    config = toy.get_config()
    config.data.batch_size = (16,)
    config.model.dropout = 0.0  # under pmap each device draws separately
    config.parallel, config.mesh = parallel, make_mesh(*sizes)
    return config


class Descends(toy.Toy):
    """Plain gradient descent; Adam would hide a scaled gradient."""

    def __init__(self, config, assets=None):
        super().__init__(config, assets)
        self.objective.optimizer = optax.sgd(0.1)


def make_layout(name):
    """Returns the layout of a name; "one" uses one of the eight devices."""
    config = make_config(*LAYOUTS[name])
    if name == "one":
        mesh = jax.make_mesh(
            (1, 1, 1),
            ("data", "fsdp", "tensor"),
            axis_types=(jax.sharding.AxisType.Auto,) * 3,
            devices=jax.devices()[:1],
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parallel, "make_mesh", lambda _: mesh)
            return parallel.Layout(config.mesh, config.parallel)
    return parallel.Layout(config.mesh, config.parallel)


def run_steps(name, count, accumulate=1):
    """Returns the parameters after 0 to `count` steps, the metrics and the state.

    With several devices, the program sums gradients.
    """
    layout, config = make_layout(name), make_config(*LAYOUTS[name])
    config.optimizer.accumulate = accumulate
    task = Descends(config)
    rng = jax.random.key(0)
    like = layout.abstract(task.objective.init, rng)
    state = layout.init(task.objective.init, rng, like)
    source, step = task.train_data(), layout.jitted(task.objective.step, like)
    program = step.lower(state, layout.shard_batch(source[0]), rng).compile()
    params, sums = [jax.tree.map(np.array, state.params)], []
    for i in range(count):
        state, metrics = program(state, layout.shard_batch(source[i]), rng)
        params.append(jax.tree.map(np.array, state.params))
        sums.append(jax.tree.map(np.array, metrics))
    reductions = sharding_table.collectives(program.as_text()).get("all-reduce")
    assert bool(reductions) == (name != "one")
    return params, sums, state


def close(left, right):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), left, right)


def run_with_eight_devices():
    """Runs the current test again, in a process with eight devices."""
    test, _, _ = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")
    process = subprocess.run(
        # -m "": whatever its markers.
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", test],
        env=jobs.environment(8),
        capture_output=True,
        text=True,
        cwd=smoke.ROOT,
    )
    assert process.returncode == 0, process.stdout + process.stderr


def after_a_step(name, objective, rules, batch, learned):
    """Parameters before and after a step in a layout, and the metrics."""
    layout, rng = make_layout(name), jax.random.key(0)
    like = layout.abstract(objective.init, rng, rules)
    state = layout.init(objective.init, rng, like)
    before = jax.tree.map(np.array, learned(state))
    step = layout.jitted(objective.step, like)
    state, metrics = step(state, layout.shard_batch(batch), rng)
    return before, *jax.tree.map(np.array, (learned(state), metrics))


def on_eight_devices(test):
    """Decorator for tests that need eight devices."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        if jax.device_count() == 8:
            test(*args, **kwargs)
        else:
            run_with_eight_devices()

    return run


@on_eight_devices
def test_every_layout_gives_the_parameters_of_one_device():
    params, sums, _ = run_steps("one", 5)
    for name in ("data", "fsdp", "both", "tensor", "all", "pmap", "cores"):
        accumulate = 2 if name in ("both", "all", "pmap") else 1
        other, other_sums, state = run_steps(name, 5, accumulate)
        jax.tree.map(np.testing.assert_array_equal, other[0], params[0])
        close(other, params)
        close(other_sums, sums)
        columns = {"fsdp": 2, "both": 4, "all": 8}.get(name, 16)  # of 16
        assert state.params["in"].addressable_shards[0].data.shape == (3, columns)


class Translates(Translation):
    """Gradient descent with steps long enough for small gradients to show."""

    def __init__(self, config, assets=None):
        super().__init__(config, assets)
        self.objective.optimizer = optax.sgd(10.0)


def transformer_config():
    config = transformer_nmt.get_config("smoke")
    config.model.encoder_layers, config.model.positions = 2, "relative"
    assert config.data.pack
    return config


def local_config():
    config = luong_nmt.get_config("smoke")
    config.model.alignment = "local_p"
    return config


def hard_config():
    config = luong_nmt.get_config("smoke")
    config.model.alignment, config.loss.reward = "hard", 1.0
    return config


MODELS = {
    "transformer": (
        transformer_config,
        ["data", "fsdp", "both", "tensor", "all", "pmap"],
    ),
    "local": (local_config, ["both", "tensor", "all", "pmap"]),
    "hard": (hard_config, ["all"]),  # under pmap each device draws separately
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@on_eight_devices
def test_a_translator_has_the_same_gradients_in_every_layout(model, tmp_path):
    model_config, layouts = MODELS[model]
    config = model_config()
    config.model.dropout = 0.0  # under pmap each device draws separately
    config.task = Translates
    assets = Translates.prepare(config, tmp_path, training=True)
    batch, rules = assets.batches[0], sharding.rules_of(config)
    assert len(batch["source"]) % 8 == 0

    def learned(state):
        return {"params": state.params, "extra": state.extra}

    given = Translates(config, assets).objective, rules, batch, learned
    before, expected, sums = after_a_step("one", *given)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, expected)
    assert min(jax.tree.leaves(moved)) > 1e-5  # every parameter has a gradient
    for name in layouts:
        _, actual, other_sums = after_a_step(name, *given)
        error = jax.tree.map(lambda a, b: np.abs(a - b).max(), actual, expected)
        for part, whole in zip(*map(jax.tree.leaves, (error, moved)), strict=True):
            assert part < 0.01 * whole
        close(actual, expected)
        close(other_sums, sums)


class Generates(Adversarial):
    """Each example has its own class, which determines its noise."""

    def __init__(self, config):
        batch_size = config.data.batch_size
        assets = Assets(tuple(map(str, range(batch_size))))
        super().__init__(config, assets)
        self.objective.optimizers = dict.fromkeys(self.models, optax.sgd(0.1))
        noise = jax.random.normal(jax.random.key(1), (batch_size, config.latent_size))
        self.objective.sample = lambda rng, label: noise[label]

    def train_data(self):
        labels = np.arange(self.config.data.batch_size, dtype=np.int32)
        return [batch | {"label": labels} for batch in [super().train_data()[0]]]


@pytest.mark.slow
@on_eight_devices
def test_both_networks_of_a_gan_learn_the_same_in_every_layout():
    config = sagan.get_config("smoke")
    config.data.batch_size = 16
    task = Generates(config)
    batch, rules = task.train_data()[0], sharding.rules_of(config)

    def learned(state):
        return state.params, state.extra["variables"]

    given = task.objective, rules, batch, learned
    before, expected, sums = after_a_step("one", *given)
    assert expected[1]["generator"]["batch_stats"]
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, expected)
    assert np.median(jax.tree.leaves(moved)) > 1e-4
    for name in ("both", "all", "pmap"):
        _, actual, other_sums = after_a_step(name, *given)
        close(actual, expected)
        close(other_sums, sums)


def compiled_step(config, name):
    """The compiled step of a layout, and the parameters."""
    with tempfile.TemporaryDirectory() as folder:
        task = create(config, Path(folder), training=True)
    layout = make_layout(name)
    rng, rules = jax.random.key(0), sharding.rules_of(config)
    like = layout.abstract(task.objective.init, rng, rules)
    shapes = {"source": (16, 11), "target": (16, 13)}
    batch = {
        name: jax.ShapeDtypeStruct(shape, np.int32, sharding=layout.batch_sharding)
        for name, shape in shapes.items()
    }
    step = layout.jitted(task.objective.step, like).lower(like, batch, rng)
    return step.compile(), like.params


@pytest.mark.slow
@on_eight_devices
def test_a_transformer_step_communicates_as_its_mesh_says():
    # Adam updates each part of a parameter by itself; Muon collects whole matrices.
    config = transformer_nmt.get_config("smoke")
    config.optimizer = adam(0.003)
    config.optimizer.accumulate = 1

    def communicates(name):
        step, params = compiled_step(config, name)
        counts = sharding_table.collectives(step.as_text())
        return {kind: n for kind, (n, _) in counts.items()}, params

    assert communicates("data")[0] == {"all-reduce": 1}  # the gradients
    counts, params = communicates("fsdp")
    cut = [x for x in jax.tree.leaves(params) if "fsdp" in x.sharding.spec]
    # Each parameter is collected once. On a CPU, XLA compiles no reduce-scatter: the
    # gradients are summed by one all-reduce, of which each device takes its part.
    assert len(cut) > 30 and counts == {"all-gather": len(cut), "all-reduce": 1}
    counts, _ = communicates("tensor")
    # Two each for the encoder's block, three each for the decoder's with its
    # cross-attention, forward and backward (12); the embeddings of source and target;
    # maximum, normaliser and target of the softmax; logits, gradients. XLA merges four.
    assert set(counts) == {"all-reduce"} and 12 <= counts["all-reduce"] <= 19
    counts, params = communicates("all")
    cut = [x for x in jax.tree.leaves(params) if "fsdp" in x.sharding.spec]
    assert counts["all-gather"] == len(cut) and set(counts) == {
        "all-gather",
        "all-reduce",
    }


@pytest.mark.slow
@on_eight_devices
def test_a_block_sums_over_the_tensor_axis_twice_in_each_direction():
    config = transformer_nmt.get_config("smoke")

    def sums(layers):
        """Activations [B, T, C] that are summed; XLA may merge several sums."""
        config.model.encoder_layers = layers
        step, _ = compiled_step(config, "tensor")
        lines = [x for x in step.as_text().splitlines() if " all-reduce(" in x]
        results = [line.partition(" all-reduce(")[0] for line in lines]
        return sum(line.count("[4,11,32]") for line in results)

    assert sums(3) - sums(2) == 4


def test_a_checkpoint_of_eight_devices_resumes_on_one_and_vice_versa(tmp_path):
    names = "fsdp", "all", "pmap"
    if jax.device_count() == 1:
        config = make_config("jit", 1, 1, 1)
        config.train_steps = 4
        loop.train(config, tmp_path / "fsdp")  # the other process runs 4 more
        for name in names[1:]:
            shutil.copytree(tmp_path / "fsdp", tmp_path / name)
        os.environ["CHECKPOINTS"] = str(tmp_path)
        run_with_eight_devices()
        straight = make_config("jit", 1, 1, 1)
        loop.train(straight, tmp_path / "one")
        like = jax.eval_shape(toy.Toy(straight).objective.init, jax.random.key(0))
        expected = checkpoints.restore(tmp_path / "one", "last", like)
        for name in names:
            assert checkpoints.find(tmp_path / name, "last") == 8
            loop.train(straight, tmp_path / name)  # and the last 4
            state = checkpoints.restore(tmp_path / name, "last", like)
            assert int(state.step) == 12
            close(state.params, expected.params)
        return
    for name in names:
        config = make_config(*LAYOUTS[name])
        config.train_steps = 8
        loop.train(config, Path(os.environ["CHECKPOINTS"]) / name)


@pytest.mark.parametrize(
    ("settings", "devices"),
    [({}, 4), ({"JAX_NUM_CPU_DEVICES": "3"}, 3)],
)
def test_cores_become_devices_unless_their_number_is_set(settings, devices):
    program = (
        "import os; from training import runtime; runtime._cpus = lambda: 7; "
        "runtime.start(cores=True); import jax; print(jax.device_count())"
    )
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    env |= {"JAX_PLATFORMS": "cpu"} | settings
    process = smoke.call("-c", program, env=env)
    assert process.stdout.strip() == str(devices), process.stderr


@pytest.mark.parametrize(
    ("flags", "others"),
    [("", 0), ("--xla_cpu_experimental_ynn_fusion_type=individual_convolution", 1)],
)
def test_convolutions_use_the_faster_library_unless_flags_choose(flags, others):
    program = (
        "from training import runtime; runtime.start(); "
        "import jax, jax.numpy as jnp; "
        "from attention.fast.convolution import convolve; "
        "x, kernel = jnp.ones((32, 17, 17, 64)), jnp.ones((2, 2, 64, 32)); "
        "step = jax.jit(convolve, static_argnums=2).lower(x, kernel, 'VALID'); "
        "print(jax.device_count(), step.compile().as_text().count('__ynn_fusion'))"
    )
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    process = smoke.call("-c", program, env=env)
    assert process.stdout.strip() == f"1 {others}", process.stderr


@pytest.mark.parametrize(
    "mesh, message",
    [
        ((3, 1, 1), "data=3, fsdp=1, tensor=1: the product must be 1, the nu"),
        ((-1, -1, 1), "is data=-1, fsdp=-1, tensor=1: the product must be 1"),
        ((0, 1, 1), "config.mesh is data=0, fsdp=1, tensor=1: the product must"),
        ((-1, 1, 2), "is data=-1, fsdp=1, tensor=2: the product must be 1"),
        ((-1, 1, -1), "is data=-1, fsdp=1, tensor=-1: the product must be 1"),
    ],
)
def test_an_impossible_layout_is_rejected(mesh, message):
    with pytest.raises(UserError, match=message):
        parallel.Layout(make_mesh(*mesh), "jit")


def test_a_batch_that_does_not_divide_over_devices_is_rejected(monkeypatch):
    layout = parallel.Layout(make_mesh(-1, 1, 1), "jit")
    monkeypatch.setattr(layout, "_count", 8)
    with pytest.raises(
        UserError, match="the batch size is 12: must be a multiple of the 8 dev"
    ):
        layout.shard_batch({"x": np.zeros((12, 3))})


@on_eight_devices
def test_under_pmap_each_device_and_step_has_its_own_noise():
    draws = {}
    for name in ("one", "pmap"):
        layout = make_layout(name)
        rng = jax.random.key(0)
        like = layout.abstract(lambda _: State(jax.numpy.zeros((), int)), rng)
        state = layout.init(lambda _: State(jax.numpy.zeros((), int)), rng, like)

        def step(state, batch, rng):
            noise = jax.random.bits(rng, (3,))
            if axis := data_axis():
                noise = jax.lax.all_gather(noise, axis)
            return State(state.step + 1), noise

        compiled, rows = layout.jitted(step, like), []
        for _ in range(2):
            state, noise = compiled(state, layout.shard_batch(np.zeros((8, 1))), rng)
            rows.extend(np.asarray(noise).reshape(-1, 3).tolist())
        draws[name] = set(map(tuple, rows))
    assert len(draws["one"]) == 2 and len(draws["pmap"]) == 2 * 8


class State(NamedTuple):
    step: jax.Array
