"""Tests of optimizers, schedules, clipping, and their config groups."""

import collections
import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from ml_collections import ConfigDict
from states import assert_equal

from base.errors import UserError
from training import checkpoints, configuration, loop, optimizers
from training.optimizers import (
    make_optimizer,
    make_schedule,
    warnings,
)

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem[0] != "_")
GROUPS = "optimizer", "generator", "discriminator"
TARGET = {
    "matrix": jnp.linspace(-2.0, 3.0, 15).reshape(3, 5),
    "vector": jnp.linspace(0.5, -4.0, 7),
}
MATRICES = {"matrix": True, "vector": False}


def make_config(group=None, *, train_steps=29, **changes):
    """Returns a config with a group `optimizer`; Adam by default."""
    group = group or optimizers.adam(0.01, warmup=3, decay_steps=29)
    group.update(changes)
    model = {"d_model": 11}
    return ConfigDict({"optimizer": group, "train_steps": train_steps, "model": model})


def descend(optimizer, steps=7):
    """Returns the parameters after `steps` steps from ones towards TARGET."""
    params = jax.tree.map(jnp.ones_like, TARGET)
    state = optimizer.init(params)
    for _ in range(steps):
        gradients = jax.tree.map(lambda p, t: jnp.sinh(p - t), params, TARGET)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return params


# --- schedules


def test_noam_is_equation_3_of_the_paper():
    config = make_config(schedule="noam", warmup=7)
    rate = make_schedule(config)
    for step in (1, 2, 7, 8, 100):
        expected = 0.01 * 11**-0.5 * min(step**-0.5, step * 7**-1.5)
        np.testing.assert_allclose(rate(step - 1), expected, rtol=1e-6)


def test_schedules_rise_to_the_learning_rate_in_the_warmup():
    constant = make_schedule(make_config(decay_steps=23, train_steps=23))
    np.testing.assert_allclose([constant(i) for i in (0, 2, 50)], [1 / 300, 0.01, 0.01])
    config = make_config(schedule="warmup_cosine", decay_steps=23, train_steps=23)
    cosine = make_schedule(config)
    rates = [cosine(i) for i in (0, 2, 12, 22)]
    np.testing.assert_allclose(rates, [1 / 300, 0.01, 0.005, 0.0], atol=1e-8)


def test_a_constant_rate_without_warmup_is_constant_from_the_first_step():
    rate = make_schedule(make_config(warmup=0))
    np.testing.assert_array_equal([rate(i) for i in (0, 1, 99)], np.float32(0.01))


def test_paper_variants_halve_the_rate_as_often_as_the_papers():
    for name, peak, epochs, halvings in (
        ("luong_nmt", 1.0, 12, 4),
        ("seq2seq_nmt", 0.7, 7.5, 5),
    ):
        config = importlib.import_module(f"configs.{name}").get_config("paper")
        rate, steps = make_schedule(config), config.train_steps
        assert rate(0) == pytest.approx(peak)
        assert rate(steps - 1) == pytest.approx(peak / 2**halvings)
        every = steps / epochs * (1 if name == "luong_nmt" else 0.5)
        assert every == config.optimizer.decay_every


@pytest.mark.parametrize(("begin", "every"), [(0, 3), (2, 5), (5, 2)])
def test_step_decay_begins_at_decay_begin(begin, every):
    group = optimizers.sgd(
        0.3,
        schedule="step_decay",
        decay_begin=begin,
        decay_every=every,
        decay_factor=0.8,
    )
    rate, expected = make_schedule(make_config(group)), 0.3
    for count in range(17):
        if count >= begin and (count - begin) % every == 0:
            expected *= 0.8
        np.testing.assert_allclose(rate(count), expected, rtol=1e-6)


def test_an_exponential_decay_equals_step_decay_once_every_period():
    fields = {"decay_begin": 5, "decay_every": 3, "decay_factor": 0.8}
    group = optimizers.sgd(0.3, schedule="exponential_decay", **fields)
    rate = make_schedule(make_config(group))
    for count in (0, 4, 5, 6, 8, 23):
        expected = 0.3 * 0.8 ** (max(count - 5, 0) / 3)
        np.testing.assert_allclose(rate(count), expected, rtol=1e-6)
    step = make_schedule(
        make_config(optimizers.sgd(0.3, schedule="step_decay", **fields))
    )
    for count in (8, 11, 20):
        np.testing.assert_allclose(step(count), rate(count) * 0.8, rtol=1e-6)


# --- optimizers


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (
            optimizers.adam(0.03, b1=0.8, b2=0.95, eps=1e-7),
            optax.adam(0.03, 0.8, 0.95, 1e-7),
        ),
        (
            optimizers.adamw(0.03, weight_decay=0.1),
            optax.adamw(0.03, weight_decay=0.1, mask=MATRICES),
        ),
        (
            optimizers.adam(0.03, weight_decay=0.1),
            optax.adamw(0.03, weight_decay=0.1, mask=MATRICES),
        ),
        (
            optimizers.rmsprop(0.01, decay=0.9, eps=1e-8, centered=False, momentum=0.0),
            optax.rmsprop(0.01, decay=0.9, eps=1e-8),
        ),
        (
            optimizers.adafactor(0.1, decay_rate=0.7, clipping_threshold=0.5),
            optax.adafactor(0.1, decay_rate=0.7, clipping_threshold=0.5),
        ),
        (
            optimizers.sgd(0.02, clip=0.5),
            optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.02)),
        ),
        (
            optimizers.sgd(0.02, scale=3.0, clip=1.5, clip_by="value"),
            optax.chain(optax.scale(3.0), optax.clip(1.5), optax.sgd(0.02)),
        ),
    ],
)
def test_an_optimizer_equals_that_of_optax(group, expected):
    assert_equal(descend(make_optimizer(make_config(group))), descend(expected))


def sgd(momentum):
    """Gradient descent with a velocity: the change by state and gradient."""

    def change(state, gradient):
        state["velocity"] = momentum * state["velocity"] + gradient
        return -0.02 * state["velocity"]

    return change


def graves(state, g):
    """Graves (2013), eqs. 38 to 45."""
    state["square"] = 0.95 * state["square"] + 0.05 * g**2
    state["mean"] = 0.95 * state["mean"] + 0.05 * g
    deviation = np.sqrt(state["square"] - state["mean"] ** 2 + 1e-4)
    state["change"] = 0.9 * state["change"] - 0.01 * g / deviation
    return state["change"]


def zeiler(state, g):
    """Zeiler (2012), algorithm 1."""
    state["square"] = 0.95 * state["square"] + 0.05 * g**2
    ratio = (state["update"] + 1e-6) / (state["square"] + 1e-6)
    change = -np.sqrt(ratio) * g
    state["update"] = 0.95 * state["update"] + 0.05 * change**2
    return change


@pytest.mark.parametrize(
    ("group", "change", "tolerance"),
    [
        (optimizers.sgd(0.02), sgd(0.0), 1e-5),
        (optimizers.sgd(0.02, momentum=0.7), sgd(0.7), 1e-5),
        # The variance is a difference of squares, here in float32.
        (optimizers.rmsprop(0.01), graves, 1e-4),
        (optimizers.adadelta(), zeiler, 1e-5),
    ],
)
def test_an_optimizer_equals_a_loop_of_its_paper(group, change, tolerance):
    expected = {}
    for name, target in TARGET.items():
        parameter, state = np.ones(target.shape), collections.defaultdict(float)
        for _ in range(7):
            parameter = parameter + change(state, np.sinh(parameter - target))
        expected[name] = parameter
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance),
        descend(make_optimizer(make_config(group))),
        expected,
    )


def test_muon_orthogonalises_the_momentum_of_a_matrix():
    group = optimizers.muon(0.01, beta=0.9, iterations=7)
    optimizer = make_optimizer(make_config(group))
    momentum, params = np.zeros((3, 5)), TARGET
    state = optimizer.init(params)
    for step in range(1, 4):
        gradient = np.random.default_rng(step).normal(size=(3, 5))
        gradients = {"matrix": jnp.asarray(gradient), "vector": TARGET["vector"]}
        updates, state = optimizer.update(gradients, state, params)
        momentum = 0.9 * momentum + 0.1 * gradient
        left, _, right = np.linalg.svd(0.9 * momentum + 0.1 * gradient)  # Nesterov
        orthogonal = left @ right[:3]
        # The iteration ends near 1 for every singular value, not at 1.
        direction = -np.asarray(updates["matrix"]) / (0.01 * 0.2 * 5**0.5)
        values = np.linalg.svd(direction, compute_uv=False)
        assert (values > 0.6).all() and (values < 1.3).all()
        cosine = (direction * orthogonal).sum() / np.linalg.norm(direction) / 3**0.5
        assert cosine > 0.97


def test_muon_leaves_vectors_and_tables_to_adam():
    params = {
        "embedding": jnp.ones((7, 3)),
        "source_positions": jnp.ones((5, 3)),
        "layer": {"output": jnp.ones((7, 3)), "relative_key": jnp.ones((2, 5, 3))},
        "bias": jnp.ones(4),
    }
    gradients = jax.tree.map(
        lambda p: jnp.linspace(-1, 2, p.size).reshape(p.shape), params
    )
    muon = make_optimizer(make_config(optimizers.muon(0.01)))
    adam = optax.nadam(0.01)  # with Nesterov momentum
    ours, _ = muon.update(gradients, muon.init(params), params)
    expected, _ = adam.update(gradients, adam.init(params), params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, expected
    )


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_state_of_adam_has_the_structure_of_older_checkpoints(clip, decay):
    """With another structure, old runs could not be restored."""
    parts = [optax.clip_by_global_norm(clip)] if clip else []
    parts.append(optax.scale_by_adam())
    if decay:
        parts.append(optax.add_decayed_weights(decay, MATRICES))
    parts.append(optax.scale_by_learning_rate(optax.constant_schedule(0.1)))
    optimizer = make_optimizer(make_config(clip=clip, weight_decay=decay))
    structure = jax.tree.structure(optax.chain(*parts).init(TARGET))
    assert jax.tree.structure(optimizer.init(TARGET)) == structure


def test_a_checkpoint_holds_the_state_of_adafactor(tmp_path):
    config = toy.get_config()
    config.optimizer = optimizers.adafactor(0.05)
    config.optimizer.accumulate = 2
    config.train_steps = config.eval_every = config.save_every = 3
    loop.train(config, tmp_path)
    like = jax.eval_shape(toy.Toy(config).objective.init, jax.random.key(0))
    state = checkpoints.restore(tmp_path, "last", like)
    assert int(state.step) == 3
    statistics = state.opt_state[0][0]
    assert int(statistics.count) == 3 and (statistics.v["bias"] > 0).all()


def test_clipping_by_matrix_bounds_the_norm_of_each_parameter():
    bound = 6.5  # between the norms of the two
    group = optimizers.sgd(1.0, clip=bound, clip_by="matrix")
    optimizer = make_optimizer(make_config(group))
    actual, _ = optimizer.update(TARGET, optimizer.init(TARGET), TARGET)
    for name, gradient in TARGET.items():
        norm = np.sqrt((np.asarray(gradient) ** 2).sum())
        expected = -gradient * min(1.0, bound / norm)
        np.testing.assert_allclose(actual[name], expected, rtol=1e-6)
    zeros = jax.tree.map(jnp.zeros_like, TARGET)
    assert_equal(optimizer.update(zeros, optimizer.init(TARGET), TARGET)[0], zeros)


# --- groups of the config


def variants():
    for name in CONFIGS:
        module = importlib.import_module(f"configs.{name}")
        for variant in module.VARIANTS:
            yield f"{name}:{variant}", module.get_config(variant)


def test_every_field_of_an_optimizer_is_needed():
    names = set()
    for _, config in variants():
        for name in GROUPS:
            if name not in config:
                continue
            group = config[name]
            if "decay_steps" in group:  # read by this schedule only
                group.schedule, group.decay_steps = "warmup_cosine", 10**7
            make_optimizer(config, name=name)
            for field in set(group) - {"accumulate"}:
                less = config.copy_and_resolve_references()
                del less[name][field]
                with pytest.raises(UserError, match=rf"config\.{name}\.{field}\b"):
                    make_optimizer(less, name=name)
            names.add(group.name)
    assert names >= {"adam", "sgd", "rmsprop", "adadelta"}


@pytest.mark.parametrize(
    ("name", "variant", "optimizer"),
    [
        ("bahdanau_nmt", "paper", "adadelta"),
        ("luong_nmt", "paper", "sgd"),
        ("seq2seq_nmt", "paper", "sgd"),
        ("seq2seq_nmt", "cho_paper", "adadelta"),
        ("transformer_nmt", "base", "adam"),
        ("captioning", "coco", "adam"),
        ("sagan", "imagenet128", "adam"),
        ("snail_fewshot", "paper", "adam"),
        *[(f"ntm_{task}", "paper", "rmsprop") for task in ("copy", "recall", "sort")],
        *[(f"ntm_{task}", "paper", "rmsprop") for task in ("ngrams", "repeat_copy")],
        *[(f"pointer_{task}", "paper", "sgd") for task in ("hull", "tsp", "delaunay")],
    ],
)
def test_a_paper_variant_has_the_optimizer_of_the_paper(name, variant, optimizer):
    config = importlib.import_module(f"configs.{name}").get_config(variant)
    groups = [config[group] for group in GROUPS if group in config]
    assert [group.name for group in groups] == [optimizer] * len(groups)


def test_every_paper_variant_is_listed():
    mark = test_a_paper_variant_has_the_optimizer_of_the_paper.pytestmark[0]
    listed = {f"{name}:{variant}" for name, variant, _ in mark.args[1]}
    assert {label for label, _ in variants() if label.endswith("paper")} <= listed


# --- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"schedule": "noam", "warmup": 0},
            "^config.optimizer.warmup is 0: must be at least 1 for "
            "config.optimizer.schedule=noam$",
        ),
        (
            {"schedule": "warmup_cosine", "decay_steps": 3},
            "^config.optimizer.decay_steps is 3: must be greater than "
            "config.optimizer.warmup=3$",
        ),
        (
            {"schedule": "warmup_cosine", "decay_steps": 28},
            "^config.optimizer.decay_steps is 28, where the learning rate reaches 0: "
            "must be at least config.train_steps=29; give --config.train_steps=29 "
            "--config.optimizer.decay_steps=29 together$",
        ),
        (
            {"name": "rmsprop"},
            "^config.optimizer.name=rmsprop needs config.optimizer.decay, "
            "config.optimizer.centered, config.optimizer.momentum: a flag cannot add a "
            "field; set the whole group in a variant of the config with a function of "
            "training/optimizers.py$",
        ),
        (
            {"schedule": "step_decay"},
            "^config.optimizer.schedule=step_decay needs config.optimizer.decay_begin, "
            "config.optimizer.decay_every, config.optimizer.decay_factor: a flag",
        ),
        ({"b3": 0.5}, "^config.optimizer.b3 is unknown: remove it$"),
    ],
)
def test_an_invalid_optimizer_is_rejected(changes, message):
    with pytest.raises(UserError, match=message):
        config = make_config(**changes)
        optimizers.check(config)
        make_optimizer(config)


@pytest.mark.parametrize("discriminator", ["constant", "warmup_cosine"])
def test_the_schedule_of_each_group_must_last_for_all_steps(discriminator):
    sagan = importlib.import_module("configs.sagan").get_config()
    sagan.generator.schedule = "warmup_cosine"
    sagan.discriminator.schedule = discriminator
    sagan.generator.decay_steps = sagan.discriminator.decay_steps = 5000
    flags = "--config.generator.decay_steps=6000 "
    if discriminator == "warmup_cosine":
        flags = f"--config.discriminator.decay_steps=6000 {flags}"
    message = (
        "^config.generator.decay_steps is 5000, where the learning rate reaches 0: "
        "must be at least config.train_steps=6000; give --config.train_steps=6000 "
        f"{flags}together$"
    )
    with pytest.raises(UserError, match=message):
        make_optimizer(sagan, name="generator")
    sagan.generator.decay_steps = 6000
    if discriminator == "constant":
        make_optimizer(sagan, name="discriminator")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schedule": "warmup_cosine", "decay_steps": 31}, "decay_steps is 31"),
        ({"schedule": "warmup_cosine", "decay_steps": 29}, None),
        ({"schedule": "constant", "warmup": 31, "decay_steps": 31}, "warmup is 31"),
        ({"schedule": "constant", "warmup": 29, "decay_steps": 31}, None),
    ],
)
def test_a_schedule_longer_than_the_run_is_warned_about(changes, field):
    lines = warnings(make_config(**changes))
    if field is None:
        assert lines == []
    else:
        (line,) = lines
        assert f"config.optimizer.{field}, which is more than config.train_st" in line


def test_flags_change_an_optimizer_only_among_the_fields_of_its_group():
    flags = "optimizer.name=adamw", "optimizer.weight_decay=0.1"
    config = configuration.read(str(ROOT / "tests/toy.py"), flags)
    state = toy.Toy(config).objective.init(jax.random.key(0)).opt_state
    assert len(state) == 4  # clip, Adam, decay, learning rate
    for flags, name in (
        (("optimizer.name=sgd",), "momentum"),
        (("optimizer.schedule=step_decay",), "decay_begin"),
    ):
        config = configuration.read(str(ROOT / "tests/toy.py"), flags)
        with pytest.raises(UserError, match=f"needs config.optimizer.{name}"):
            toy.Toy(config)
