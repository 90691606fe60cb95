"""Optimizers, schedules and clipping by name, and groups of the config for them."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from ml_collections import ConfigDict

from configs import _optimizer
from errors import UserError
from training import checkpoints, configuration, loop
from training.optimizers import OPTIMIZERS, make_optimizer, make_schedule

ROOT = Path(__file__).parent.parent
CONFIGS = sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem[0] != "_")
GROUPS = "optimizer", "generator", "discriminator"
TARGET = {
    "matrix": jnp.linspace(-2.0, 3.0, 15).reshape(3, 5),
    "vector": jnp.linspace(0.5, -4.0, 7),
}


def config(group=None, *, train_steps=29, **changes):
    """A config with a group called `optimizer`; by default Adam with some decay."""
    group = group or _optimizer.adam(0.01, warmup=3, decay_steps=29)
    group.update(changes)
    return ConfigDict({"optimizer": group, "train_steps": train_steps})


def descend(optimizer, steps=7):
    """The parameters after some steps towards TARGET, from ones."""
    params = jax.tree.map(jnp.ones_like, TARGET)
    state = optimizer.init(params)
    for _ in range(steps):
        gradients = jax.tree.map(lambda p, t: jnp.sinh(p - t), params, TARGET)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return params


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def clipped(gradients, clip, clip_by):
    """The gradients as the rule of an optimizer sees them."""
    group = _optimizer.sgd(1.0, clip=clip, clip_by=clip_by)
    optimizer = make_optimizer(config(group))
    updates, _ = optimizer.update(gradients, optimizer.init(gradients), gradients)
    return jax.tree.map(lambda u: -np.asarray(u), updates)


# --- schedules


def test_noam_is_equation_3_of_the_paper():
    made = config(schedule="noam", warmup=7)
    rate = make_schedule(made, width=11)
    for step in (1, 2, 7, 8, 100):
        expected = 0.01 * 11**-0.5 * min(step**-0.5, step * 7**-1.5)
        np.testing.assert_allclose(rate(step - 1), expected, rtol=1e-6)


def test_schedules_rise_to_the_learning_rate_in_the_warmup():
    constant = make_schedule(config(decay_steps=23, train_steps=23))
    np.testing.assert_allclose([constant(i) for i in (0, 2, 50)], [1 / 300, 0.01, 0.01])
    made = config(schedule="warmup_cosine", decay_steps=23, train_steps=23)
    cosine = make_schedule(made)
    rates = [cosine(i) for i in (0, 2, 12, 22)]
    np.testing.assert_allclose(rates, [1 / 300, 0.01, 0.005, 0.0], atol=1e-8)


def test_a_constant_rate_without_warmup_is_that_of_the_first_step_on():
    rate = make_schedule(config(warmup=0))
    np.testing.assert_array_equal([rate(i) for i in (0, 1, 99)], np.float32(0.01))


def test_the_halving_of_luong_et_al_begins_after_five_epochs():
    epoch = 7  # steps
    group = _optimizer.sgd(
        1.0,
        schedule="step_decay",
        decay_begin=5 * epoch,
        decay_every=epoch,
        decay_factor=0.5,
    )
    rate = make_schedule(config(group))
    expected, current = [], 1.0
    for number in range(10):
        if number >= 5:
            current /= 2
        expected += [current] * epoch
    np.testing.assert_array_equal([rate(i) for i in range(10 * epoch)], expected)


def test_the_rates_of_the_papers_are_halved_as_often_as_there():
    for name, peak, epochs, halvings in (
        ("luong_nmt", 1.0, 12, 4),
        ("seq2seq_nmt", 0.7, 7.5, 5),
    ):
        made = importlib.import_module(f"configs.{name}").get_config("paper")
        rate, steps = make_schedule(made), made.train_steps
        assert rate(0) == pytest.approx(peak)
        assert rate(steps - 1) == pytest.approx(peak / 2**halvings)
        every = steps / epochs * (1 if name == "luong_nmt" else 0.5)
        assert every == made.optimizer.decay_every


@pytest.mark.parametrize(("begin", "every"), [(0, 3), (2, 5), (5, 2)])
def test_step_decay_begins_where_it_is_told(begin, every):
    group = _optimizer.sgd(
        0.3,
        schedule="step_decay",
        decay_begin=begin,
        decay_every=every,
        decay_factor=0.8,
    )
    rate, expected = make_schedule(config(group)), 0.3
    for count in range(17):
        if count >= begin and (count - begin) % every == 0:
            expected *= 0.8
        np.testing.assert_allclose(rate(count), expected, rtol=1e-6)


def test_an_exponential_decay_equals_step_decay_once_every_period():
    fields = {"decay_begin": 5, "decay_every": 3, "decay_factor": 0.8}
    group = _optimizer.sgd(0.3, schedule="exponential_decay", **fields)
    rate = make_schedule(config(group))
    for count in (0, 4, 5, 6, 8, 23):
        expected = 0.3 * 0.8 ** (max(count - 5, 0) / 3)
        np.testing.assert_allclose(rate(count), expected, rtol=1e-6)
    step = make_schedule(config(_optimizer.sgd(0.3, schedule="step_decay", **fields)))
    for count in (8, 11, 20):
        np.testing.assert_allclose(step(count), rate(count) * 0.8, rtol=1e-6)


# --- optimizers


def test_adam_is_that_of_optax_bit_for_bit():
    made = config(_optimizer.adam(0.03, b1=0.8, b2=0.95, eps=1e-7))
    expected = optax.adam(optax.constant_schedule(0.03), 0.8, 0.95, 1e-7)
    equal(descend(make_optimizer(made)), descend(expected))


def test_adamw_decays_matrices_alone():
    made = config(_optimizer.adamw(0.03, weight_decay=0.1))
    matrices = {"matrix": True, "vector": False}
    expected = optax.adamw(
        optax.constant_schedule(0.03), weight_decay=0.1, mask=matrices
    )
    equal(descend(make_optimizer(made)), descend(expected))
    # The two names differ in what their groups say, not in what the fields do.
    made.optimizer.name = "adam"
    equal(descend(make_optimizer(made)), descend(expected))


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_sgd_adds_up_its_velocity(momentum):
    made = config(_optimizer.sgd(0.02, momentum=momentum))
    params = jax.tree.map(lambda t: np.ones(t.shape), TARGET)
    velocity = jax.tree.map(lambda t: np.zeros(t.shape), TARGET)
    for _ in range(7):
        for name, target in TARGET.items():
            gradient = np.sinh(params[name] - target)
            velocity[name] = momentum * velocity[name] + gradient
            params[name] = params[name] - 0.02 * velocity[name]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        descend(make_optimizer(made)),
        params,
    )
    expected = optax.sgd(optax.constant_schedule(0.02), momentum or None)
    equal(descend(make_optimizer(made)), descend(expected))


def test_rmsprop_is_that_of_graves():
    made = config(_optimizer.rmsprop(0.01))
    params = jax.tree.map(lambda t: np.ones(t.shape), TARGET)
    squares, means, change = (
        jax.tree.map(lambda t: np.zeros(t.shape), TARGET) for _ in range(3)
    )
    for _ in range(7):
        for name, target in TARGET.items():
            g = np.sinh(params[name] - target)
            squares[name] = 0.95 * squares[name] + 0.05 * g**2
            means[name] = 0.95 * means[name] + 0.05 * g
            deviation = np.sqrt(squares[name] - means[name] ** 2 + 1e-4)
            change[name] = 0.9 * change[name] - 0.01 * g / deviation
            params[name] = params[name] + change[name]
    # The variance is a difference of squares, in float32 here.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4),
        descend(make_optimizer(made)),
        params,
    )


def test_rmsprop_without_centre_and_momentum_is_that_of_optax():
    group = _optimizer.rmsprop(0.01, decay=0.9, eps=1e-8, centered=False, momentum=0.0)
    expected = optax.rmsprop(optax.constant_schedule(0.01), decay=0.9, eps=1e-8)
    equal(descend(make_optimizer(config(group))), descend(expected))


def test_adadelta_is_that_of_zeiler():
    made = config(_optimizer.adadelta())
    params = jax.tree.map(lambda t: np.ones(t.shape), TARGET)
    squares, updates = (
        jax.tree.map(lambda t: np.zeros(t.shape), TARGET) for _ in range(2)
    )
    for _ in range(7):
        for name, target in TARGET.items():
            g = np.sinh(params[name] - target)
            squares[name] = 0.95 * squares[name] + 0.05 * g**2
            update = -np.sqrt((updates[name] + 1e-6) / (squares[name] + 1e-6)) * g
            updates[name] = 0.95 * updates[name] + 0.05 * update**2
            params[name] = params[name] + update
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        descend(make_optimizer(made)),
        params,
    )
    expected = optax.adadelta(optax.constant_schedule(1.0), rho=0.95, eps=1e-6)
    equal(descend(make_optimizer(made)), descend(expected))


def test_adafactor_is_that_of_optax():
    group = _optimizer.adafactor(0.1, decay_rate=0.7, clipping_threshold=0.5)
    expected = optax.adafactor(
        optax.constant_schedule(0.1), decay_rate=0.7, clipping_threshold=0.5
    )
    equal(descend(make_optimizer(config(group))), descend(expected))


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_state_of_adam_has_the_structure_of_older_checkpoints(clip, decay):
    """Other parts, or in another order, and old runs could not be restored."""
    parts = [optax.clip_by_global_norm(clip)] if clip else []
    parts.append(optax.scale_by_adam())
    if decay:
        matrices = {"matrix": True, "vector": False}
        parts.append(optax.add_decayed_weights(decay, matrices))
    parts.append(optax.scale_by_learning_rate(optax.constant_schedule(0.1)))
    made = make_optimizer(config(clip=clip, weight_decay=decay))
    structure = jax.tree.structure(optax.chain(*parts).init(TARGET))
    assert jax.tree.structure(made.init(TARGET)) == structure


GROUPS_BY_NAME = {
    "adam": lambda: _optimizer.adam(0.01),
    "adamw": lambda: _optimizer.adamw(0.01, weight_decay=0.1),
    "sgd": lambda: _optimizer.sgd(0.02, momentum=0.5),
    "rmsprop": lambda: _optimizer.rmsprop(0.003),
    "adadelta": lambda: _optimizer.adadelta(scale=30.0),
    "adafactor": lambda: _optimizer.adafactor(0.05),
}


def toy_config(name):
    made = toy.get_config()
    made.optimizer = GROUPS_BY_NAME[name]()
    made.optimizer.accumulate = 2
    assert made.optimizer.name == name
    return made


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_trains_the_toy(name):
    task = toy.Toy(toy_config(name))
    rng = jax.random.key(0)
    state, step = task.objective.init(rng), jax.jit(task.objective.step)
    losses, data = [], task.train_data()
    for number in range(0, 24, 2):  # of one shape
        state, metrics = step(state, data[number], jax.random.fold_in(rng, number))
        losses.append(metrics["loss"][0] / metrics["loss"][1])
    assert np.mean(losses[-4:]) < np.mean(losses[:4])


def test_a_checkpoint_holds_the_state_of_another_optimizer_than_adam(tmp_path):
    made = toy_config("adafactor")
    made.train_steps = made.eval_every = made.save_every = 3
    loop.train(made, tmp_path)
    like = jax.eval_shape(toy.Toy(made).objective.init, jax.random.key(0))
    state = checkpoints.restore(tmp_path, "last", like)
    assert int(state.step) == 3
    statistics = state.opt_state[0][0]
    assert int(statistics.count) == 3 and (statistics.v["bias"] > 0).all()


# --- scale and clipping


def test_clipping_by_norm_bounds_the_norm_of_all_gradients():
    seen = clipped(TARGET, 0.5, "norm")
    norm = np.sqrt(sum((np.asarray(g) ** 2).sum() for g in TARGET.values()))
    for name, gradient in TARGET.items():
        np.testing.assert_allclose(seen[name], gradient * 0.5 / norm, rtol=1e-5)
    equal(clipped(TARGET, 100.0, "norm"), TARGET)


def test_clipping_by_value_bounds_each_number():
    seen = clipped(TARGET, 1.5, "value")
    for name, gradient in TARGET.items():
        expected = [min(max(float(x), -1.5), 1.5) for x in gradient.ravel()]
        np.testing.assert_array_equal(seen[name].ravel(), expected)


def test_clipping_by_matrix_bounds_the_norm_of_each_parameter():
    bound = 6.5  # between the norms of the two
    seen = clipped(TARGET, bound, "matrix")
    for name, gradient in TARGET.items():
        norm = np.sqrt((np.asarray(gradient) ** 2).sum())
        expected = gradient * min(1.0, bound / norm)
        np.testing.assert_allclose(seen[name], expected, rtol=1e-6)
    zeros = jax.tree.map(jnp.zeros_like, TARGET)
    equal(clipped(zeros, bound, "matrix"), zeros)


def test_clipping_by_matrix_with_a_single_parameter_is_clipping_by_norm():
    gradients = {"matrix": TARGET["matrix"]}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
        clipped(gradients, 0.5, "matrix"),
        clipped(gradients, 0.5, "norm"),
    )


def test_gradients_are_scaled_before_they_are_clipped():
    group = _optimizer.sgd(1.0, scale=3.0, clip=2.0, clip_by="value")
    optimizer = make_optimizer(config(group))
    gradients = jnp.asarray([0.1, 0.5, -1.0])
    updates, _ = optimizer.update(gradients, optimizer.init(gradients), gradients)
    np.testing.assert_allclose(updates, [-0.3, -1.5, 2.0], rtol=1e-6)


def test_sgd_with_a_scale_is_sgd_with_a_higher_rate():
    scaled = make_optimizer(config(_optimizer.sgd(0.002, scale=10.0)))
    plain = make_optimizer(config(_optimizer.sgd(0.02)))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        descend(scaled),
        descend(plain),
    )


# --- groups of the config


def variants():
    for name in CONFIGS:
        module = importlib.import_module(f"configs.{name}")
        for variant in module.VARIANTS:
            yield f"{name}:{variant}", module.get_config(variant)


def test_every_field_of_an_optimizer_is_needed():
    seen = set()
    for _, made in variants():
        width = made.model.d_model if "d_model" in made.model else None
        for name in GROUPS:
            if name not in made:
                continue
            group = made[name]
            if "decay_steps" in group:  # for a flag that changes the schedule, at least
                group.schedule, group.decay_steps = "warmup_cosine", 10**7
            make_optimizer(made, width=width, name=name)
            for field in set(group) - {"accumulate"}:
                less = made.copy_and_resolve_references()
                del less[name][field]
                with pytest.raises(UserError, match=rf"config\.{name}\.{field}\b"):
                    make_optimizer(less, width=width, name=name)
            seen.add(group.name)
    assert seen >= {"adam", "sgd", "rmsprop", "adadelta"}


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
        *[(f"ntm_{task}", "paper", "rmsprop") for task in ("copy", "recall", "sort")],
        *[(f"ntm_{task}", "paper", "rmsprop") for task in ("ngrams", "repeat_copy")],
        *[(f"pointer_{task}", "paper", "sgd") for task in ("hull", "tsp", "delaunay")],
    ],
)
def test_a_paper_variant_has_the_optimizer_of_the_paper(name, variant, optimizer):
    made = importlib.import_module(f"configs.{name}").get_config(variant)
    groups = [made[group] for group in GROUPS if group in made]
    assert [group.name for group in groups] == [optimizer] * len(groups)


def test_every_paper_variant_is_among_them():
    mark = test_a_paper_variant_has_the_optimizer_of_the_paper.pytestmark[0]
    listed = {f"{name}:{variant}" for name, variant, _ in mark.args[1]}
    assert {label for label, _ in variants() if label.endswith("paper")} <= listed


def test_the_table_of_optimizers_has_a_function_for_each():
    for name in OPTIMIZERS:
        assert callable(getattr(_optimizer, name))


# --- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"schedule": "nome"},
            "^config.optimizer.schedule=nome is unknown: take noam, constant, "
            "warmup_cosine, step_decay or exponential_decay$",
        ),
        (
            {"schedule": "noam", "warmup": 0},
            r"^config.optimizer.schedule=noam needs a model's width \(got 11\) and "
            r"config.optimizer.warmup of at least 1 \(got 0\)$",
        ),
        (
            {"schedule": "warmup_cosine", "decay_steps": 3},
            "^config.optimizer.decay_steps=3 must be greater than "
            "config.optimizer.warmup=3$",
        ),
        (
            {"schedule": "warmup_cosine", "decay_steps": 28},
            "^config.train_steps is 29, but the learning rate is 0 from step 28 on: "
            "config.optimizer.decay_steps must be at least as many$",
        ),
        (
            {"name": "adm"},
            "^config.optimizer.name=adm is unknown: take adam, adamw, sgd, rmsprop, "
            "adadelta or adafactor$",
        ),
        (
            {"clip_by": "norms"},
            "^config.optimizer.clip_by=norms is unknown: take norm, value or matrix$",
        ),
        (
            {"name": "rmsprop"},
            "^config.optimizer.name=rmsprop needs config.optimizer.decay, "
            "config.optimizer.centered, config.optimizer.momentum: no flag adds a "
            "field; make the whole group in a variant of the config, by a function of "
            "configs/_optimizer.py$",
        ),
        (
            {"schedule": "step_decay"},
            "^config.optimizer.schedule=step_decay needs config.optimizer.decay_begin, "
            "config.optimizer.decay_every, config.optimizer.decay_factor: no flag",
        ),
        ({"b1": 1.0}, "^config.optimizer.b1 is 1.0: must be at least 0 and below 1$"),
        ({"eps": 0.0}, "^config.optimizer.eps is 0.0: must be above 0$"),
        ({"clip": -0.5}, "^config.optimizer.clip is -0.5: must be at least 0$"),
        ({"scale": 0.0}, "^config.optimizer.scale is 0.0: must be above 0$"),
        (
            {"learning_rate": -0.1},
            "^config.optimizer.learning_rate is -0.1: must be at least 0$",
        ),
    ],
)
def test_an_optimizer_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        make_optimizer(config(**changes), width=11)


def test_each_group_is_held_against_the_steps_of_training():
    sagan = importlib.import_module("configs.sagan").get_config()
    sagan.generator.schedule = "warmup_cosine"
    sagan.generator.decay_steps = 5000
    with pytest.raises(UserError, match="config.train_steps is 6000, .* 5000 on: conf"):
        make_optimizer(sagan, name="generator")
    make_optimizer(sagan, name="discriminator")


def test_flags_change_an_optimizer_where_its_group_has_the_fields():
    flags = "optimizer.name=adamw", "optimizer.weight_decay=0.1"
    made = configuration.read(str(ROOT / "tests/toy.py"), flags)
    state = toy.Toy(made).objective.init(jax.random.key(0)).opt_state
    assert len(state) == 4  # clip, Adam, decay, learning rate
    for flags, name in (
        (("optimizer.name=sgd",), "momentum"),
        (("optimizer.schedule=step_decay",), "decay_begin"),
    ):
        made = configuration.read(str(ROOT / "tests/toy.py"), flags)
        with pytest.raises(UserError, match=f"needs config.optimizer.{name}"):
            toy.Toy(made)
