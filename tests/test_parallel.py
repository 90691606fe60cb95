"""One device or many, jit, fsdp or pmap: the same gradients and parameters."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import toy
from ml_collections import ConfigDict

from configs import luong_nmt, sagan, transformer_nmt
from errors import UserError
from tasks.adversarial import Adversarial, Assets
from tasks.translation import Translation
from training import checkpoints, loop, parallel

ROOT = Path(__file__).parent.parent

# Sizes that 8 divides only where they are meant to be cut: width 16, not inputs 3.
LAYOUTS = {
    "one": ("jit", 1, 1),
    "data": ("jit", 8, 1),
    "fsdp": ("jit", 1, 8),
    "both": ("jit", 2, 4),
    "pmap": ("pmap", 8, 1),
    "cores": ("cores", 8, 1),
}


def config(parallel, data, fsdp):
    made = toy.get_config()
    made.data.batch_size = (16,)
    made.model.dropout = 0.0  # each device of pmap draws its own
    made.parallel, made.mesh = parallel, ConfigDict({"data": data, "fsdp": fsdp})
    return made


class Descends(toy.Toy):
    """Plain gradient descent: Adam would hide a gradient that is too large."""

    def __init__(self, config, assets=None, *, axis_name=None):
        super().__init__(config, assets, axis_name=axis_name)
        self.objective.optimizer = optax.sgd(0.1)


def place(name):
    """The layout of this name; "one" is one of the eight devices."""
    made = config(*LAYOUTS[name])
    if name == "one":
        mesh = jax.make_mesh(
            (1, 1),
            ("data", "fsdp"),
            axis_types=(jax.sharding.AxisType.Auto,) * 2,
            devices=jax.devices()[:1],
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parallel, "make_mesh", lambda _: mesh)
            return parallel.Layout(made.mesh, made.parallel)
    return parallel.Layout(made.mesh, made.parallel)


def layout(name):
    made = place(name)
    return made, Descends(config(*LAYOUTS[name]), axis_name=made.axis_name)


def steps(name, count):
    """Parameters after 0, 1, ... steps, and the metrics of each."""
    place, task = layout(name)
    rng = jax.random.key(0)
    like = place.abstract(task.objective.init, rng)
    state = place.init(task.objective.init, rng, like)
    step, source = place.compile(task.objective.step, like), task.train_data()
    params, sums = [jax.tree.map(np.array, state.params)], []
    for i in range(count):
        state, metrics = step(state, place.put(source[i]), rng)
        params.append(jax.tree.map(np.array, state.params))
        sums.append(jax.tree.map(np.array, metrics))
    return params, sums, state


def close(left, right):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), left, right)


def on_eight_devices(test):
    """Runs a test's body in a process that has eight devices."""
    if jax.device_count() == 8:
        return True
    flags = "--xla_force_host_platform_device_count=8"
    flags += " --xla_backend_optimization_level=0"  # compiles faster
    done = subprocess.run(
        # No marker is left out.
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", f"{__file__}::{test}"],
        # Without NPROC, many steps in flight on such devices deadlock.
        env={**os.environ, "NPROC": "16", "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return False


def test_every_layout_gives_the_parameters_of_one_device():
    if not on_eight_devices("test_every_layout_gives_the_parameters_of_one_device"):
        return
    params, sums, _ = steps("one", 5)
    for name in ("data", "fsdp", "both", "pmap", "cores"):
        other, other_sums, state = steps(name, 5)
        jax.tree.map(np.testing.assert_array_equal, other[0], params[0])
        close(other, params)
        close(other_sums, sums)
        share = {"fsdp": 2, "both": 4}.get(name, 16)  # of the 16 columns
        assert state.params["in"].addressable_shards[0].data.shape == (3, share)


def test_raw_gradients_of_every_layout_are_those_of_one_device():
    if not on_eight_devices(
        "test_raw_gradients_of_every_layout_are_those_of_one_device"
    ):
        return
    from training.state import gradients

    def raw(name, accumulate):
        place, task = layout(name)

        def keep(state, batch, rng):
            grads, sums = gradients(
                task.loss, state.params, batch, rng, accumulate, place.axis_name
            )
            return state.replace(params=grads), sums

        rng = jax.random.key(0)
        like = place.abstract(task.objective.init, rng)
        state = place.init(task.objective.init, rng, like)
        step = place.compile(keep, like)
        return step(state, place.put(task.train_data()[0]), rng)[0].params

    expected = raw("one", 1)
    for name, accumulate in (("data", 1), ("fsdp", 1), ("both", 2), ("pmap", 2)):
        close(raw(name, accumulate), expected)


class Translates(Translation):
    """Descends plainly, in steps long enough for small gradients to show."""

    def __init__(self, config, assets=None, axis_name=None):
        super().__init__(config, assets, axis_name=axis_name)
        self.objective.optimizer = optax.sgd(10.0)


def the_transformer():
    made = transformer_nmt.get_config("smoke")
    made.model.encoder_layers, made.model.positions = 2, "relative"
    assert made.data.pack
    return made


def local_attention():
    made = luong_nmt.get_config("smoke")
    made.model.alignment = "local_p"
    return made


def hard_attention():
    made = luong_nmt.get_config("smoke")
    made.model.alignment, made.loss.reward = "hard", 1.0
    return made


MODELS = {
    "transformer": (the_transformer, ["data", "fsdp", "both", "pmap"]),
    "local": (local_attention, ["both", "pmap"]),
    "hard": (hard_attention, ["both"]),  # under pmap each device draws its own
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_translator_has_the_same_gradients_in_every_layout(model, tmp_path):
    if not on_eight_devices(
        f"test_a_translator_has_the_same_gradients_in_every_layout[{model}]"
    ):
        return
    config, layouts = MODELS[model]
    made = config()
    made.model.dropout = 0.0  # each device of pmap draws its own
    made.task = Translates
    assets = Translates.prepare(made, tmp_path, training=True)
    batch = assets.batches[0]
    assert len(batch["source"]) % 8 == 0
    rng = jax.random.key(0)

    def after_a_step(name):
        where = place(name)
        objective = Translates(made, assets, where.axis_name).objective
        like = where.abstract(objective.init, rng)
        state = where.init(objective.init, rng, like)
        before = jax.tree.map(np.array, learned(state))
        step = where.compile(objective.step, like)
        state, metrics = step(state, where.put(batch), rng)
        return before, *jax.tree.map(np.array, (learned(state), metrics))

    def learned(state):
        return {"params": state.params, "extra": state.extra}

    before, expected, sums = after_a_step("one")
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, expected)
    assert min(jax.tree.leaves(moved)) > 1e-5  # every parameter has a gradient
    for name in layouts:
        _, found, other_sums = after_a_step(name)
        apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), found, expected)
        for part, whole in zip(*map(jax.tree.leaves, (apart, moved)), strict=True):
            assert part < 0.01 * whole
        close(found, expected)
        close(other_sums, sums)


class Generates(Adversarial):
    """Each row is a class of its own, which alone says what noise it is made from."""

    def __init__(self, config, axis_name=None):
        rows = config.data.batch_size
        assets = Assets(tuple(map(str, range(rows))))
        super().__init__(config, assets, axis_name=axis_name)
        self.objective.optimizers = dict.fromkeys(self.models, optax.sgd(0.1))
        noise = jax.random.normal(jax.random.key(1), (rows, config.latent_size))
        self.objective.sample = lambda rng, label: noise[label]

    def train_data(self):
        labels = np.arange(self.config.data.batch_size, dtype=np.int32)
        return [batch | {"label": labels} for batch in [super().train_data()[0]]]


@pytest.mark.slow
def test_both_networks_of_a_gan_learn_the_same_in_every_layout():
    if not on_eight_devices(
        "test_both_networks_of_a_gan_learn_the_same_in_every_layout"
    ):
        return
    made = sagan.get_config("smoke")
    made.data.batch_size = 16
    batch, rng = Generates(made).train_data()[0], jax.random.key(0)

    def after_a_step(name):
        where = place(name)
        objective = Generates(made, where.axis_name).objective
        like = where.abstract(objective.init, rng)
        state = where.init(objective.init, rng, like)
        before = jax.tree.map(np.array, learned(state))
        step = where.compile(objective.step, like)
        state, metrics = step(state, where.put(batch), rng)
        return before, *jax.tree.map(np.array, (learned(state), metrics))

    def learned(state):
        return state.params, state.extra["variables"]

    before, expected, sums = after_a_step("one")
    assert expected[1]["generator"]["batch_stats"]
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, expected)
    assert np.median(jax.tree.leaves(moved)) > 1e-4
    for name in ("both", "pmap"):
        _, found, other_sums = after_a_step(name)
        close(found, expected)
        close(other_sums, sums)


def test_a_checkpoint_of_eight_devices_goes_on_on_one_and_the_other_way(tmp_path):
    if jax.device_count() == 1:
        made = config("jit", 1, 1)
        made.train_steps = 4
        loop.train(made, tmp_path / "fsdp")  # the other process takes 4 more
        shutil.copytree(tmp_path / "fsdp", tmp_path / "pmap")
        os.environ["CHECKPOINTS"] = str(tmp_path)
        on_eight_devices(
            "test_a_checkpoint_of_eight_devices_goes_on_on_one_and_the_other_way"
        )
        straight = config("jit", 1, 1)
        loop.train(straight, tmp_path / "one")
        like = jax.eval_shape(toy.Toy(straight).objective.init, jax.random.key(0))
        expected = checkpoints.restore(tmp_path / "one", "last", like)
        for name in ("fsdp", "pmap"):
            assert checkpoints.find(tmp_path / name, "last") == 8
            loop.train(straight, tmp_path / name)  # and 4 here again
            state = checkpoints.restore(tmp_path / name, "last", like)
            assert int(state.step) == 12
            close(state.params, expected.params)
        return
    for name in ("fsdp", "pmap"):
        made = config(*LAYOUTS[name])
        made.train_steps = 8
        loop.train(made, Path(os.environ["CHECKPOINTS"]) / name)


@pytest.mark.parametrize(
    ("told", "devices"),
    [({}, 4), ({"JAX_NUM_CPU_DEVICES": "3"}, 3), ({"cores": "False"}, 1)],
)
def test_cores_become_devices_unless_their_number_is_told(told, devices):
    program = (
        "import os; from training import runtime; runtime._cpus = lambda: 7; "
        f"runtime.start(cores={told.pop('cores', 'True')}); "
        "import jax; print(jax.device_count())"
    )
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env | {"JAX_PLATFORMS": "cpu"} | told,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout.strip() == str(devices), done.stderr


@pytest.mark.parametrize(
    ("flags", "others"),
    [("", 0), ("--xla_cpu_experimental_ynn_fusion_type=individual_convolution", 1)],
)
def test_convolutions_take_the_faster_library_unless_flags_say_which(flags, others):
    program = (
        "from training import runtime; runtime.start(); "
        "import jax, jax.numpy as jnp; from ops.convolution import convolve; "
        "x, kernel = jnp.ones((32, 17, 17, 64)), jnp.ones((2, 2, 64, 32)); "
        "step = jax.jit(convolve, static_argnums=2).lower(x, kernel, 'VALID'); "
        "print(step.compile().as_text().count('__ynn_fusion'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout.strip() == str(others), done.stderr


@pytest.mark.parametrize(
    "mesh, way, message",
    [
        ((3, 1), "jit", "data=3 times fsdp=1 does not make the 1 devices"),
        ((-1, -1), "jit", "data=-1 times fsdp=-1"),
        ((0, 1), "jit", "data=0"),
        ((-1, 1), "xmap", "config.parallel=xmap is unknown: take jit, pmap or cores"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(mesh, way, message):
    with pytest.raises(UserError, match=message):
        parallel.Layout(ConfigDict({"data": mesh[0], "fsdp": mesh[1]}), way)


def test_rows_that_do_not_divide_are_refused(monkeypatch):
    place = parallel.Layout(ConfigDict({"data": -1, "fsdp": 1}), "jit")

    class Eight:
        size = 8

    monkeypatch.setattr(place, "mesh", Eight())
    with pytest.raises(UserError, match="12 rows does not divide over 8 devices"):
        place.put({"x": np.zeros((12, 3))})
