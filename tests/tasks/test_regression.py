"""Kernel regression as a task: data, learned width, metrics, predictions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from states import task_of

from base.errors import UserError
from configs.kernel_regression import VARIANTS, get_config
from tasks.regression.data import curve
from training import evaluate, loop, trained
from training.task import NoOptions, Prediction, Stacked

FIXED = ("average", "gaussian", "boxcar", "triangular", "epanechnikov")


def make(variant="", **fields):
    """A task of a variant; `group__field` sets a field of a config's group."""
    return task_of(get_config(variant), **fields)


def scores(task, state, split="test"):
    return evaluate.evaluate(task, state, split, NoOptions()).scores


def run_of(task, state):
    return trained.Run(task.config, task, state, "last")


def batch(task):
    return jax.tree.map(jnp.asarray, task.train_data()[0])


@functools.cache
def fitted(variant="", **fields):
    """A task, its state after the variant's training, and the losses [steps]."""
    task = make(variant, **fields)
    points, rng = batch(task), jax.random.key(1)

    def step(state, _):
        state, metrics = task.objective.step(state, points, rng)
        return state, metrics["loss"][0] / metrics["loss"][1]

    state = task.objective.init(jax.random.key(0))
    steps = task.config.train_steps
    return task, *jax.jit(lambda s: jax.lax.scan(step, s, length=steps))(state)


def read(task, state, x):
    return task.answers(state, Stacked(np.asarray(x, np.float32))).arrays


def grid(task, split):
    return task.examples(split)[split].arrays


def left_out_error(task, width):
    """Mean squared error of estimating each point from the others."""
    x, y = np.float64(task.x), np.float64(task.y)
    errors = []
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        kernel = np.exp(-((x[i] - x[others]) ** 2) / (2 * width**2))
        errors.append((kernel @ y[others] / kernel.sum() - y[i]) ** 2)
    return np.mean(errors)


def test_points_are_sorted_noisy_points_of_the_curve_and_depend_on_the_seed():
    task = make(data__points=4001, data__length=3.0)
    x, y = task.x, task.y
    assert x.shape == y.shape == (4001,)
    assert (np.diff(x) >= 0).all() and x.min() >= 0 and x.max() < 3
    np.testing.assert_allclose(x.mean(), 1.5, atol=0.1)  # sampling error
    noise = y - curve(x)
    np.testing.assert_allclose([noise.mean(), noise.std()], [0, 1], atol=0.1)
    np.testing.assert_array_equal(x, make(data__points=4001, data__length=3.0).x)
    assert (make(seed=1).x != make().x).all()
    exact = make(data__noise=0.0)
    np.testing.assert_allclose(exact.y, 2 * np.sin(exact.x) + exact.x, atol=1e-5)


def test_the_test_grid_lies_halfway_between_the_validation_grid():
    task = make()
    validation, test = grid(task, "validation"), grid(task, "test")
    np.testing.assert_allclose(validation, np.arange(50) / 10, atol=1e-6)
    midpoints = (validation[1:] + validation[:-1]) / 2
    np.testing.assert_allclose(test[:-1], midpoints, atol=1e-6)


def test_attention_has_a_third_of_the_error_of_the_average():
    average = make("average")
    state = average.objective.init(jax.random.key(0))
    error = scores(average, state)["mse"]
    truth = curve(grid(average, "test"))
    np.testing.assert_allclose(error, np.mean((average.y.mean() - truth) ** 2), 1e-5)
    task, state, _ = fitted()
    assert scores(task, state)["mse"] < error / 3
    for name in ("gaussian", "boxcar", "triangular", "epanechnikov"):
        task = make(name)
        state = task.objective.init(jax.random.key(0))
        assert scores(task, state)["mse"] < error / 3


def test_the_learned_width_minimises_the_leave_one_out_error():
    task, state, losses = fitted()
    width = scores(task, state, "validation")["width"]
    widths = np.geomspace(0.05, 5, 401)
    errors = [left_out_error(task, w) for w in widths]
    np.testing.assert_allclose(width, widths[np.argmin(errors)], rtol=0.02)  # step
    np.testing.assert_allclose(losses[-1], min(errors), rtol=1e-4)
    assert width < task.config.model.width / 2  # far from the initial width


def test_without_leave_one_out_it_becomes_the_nearest_neighbour():
    task, state, losses = fitted("no_leave_one_out")
    results = scores(task, state)
    assert results["width"] < np.diff(task.x).min()
    assert losses[-1] < 1e-3
    np.testing.assert_allclose(read(task, state, task.x).context[:, 0], task.y, 0.1)
    x = grid(task, "test")
    nearest = task.y[np.abs(x[:, None] - task.x).argmin(1)]
    expected = np.mean((nearest - curve(x)) ** 2)
    np.testing.assert_allclose(results["mse"], expected, rtol=1e-3)
    task, state, _ = fitted()
    assert results["mse"] > 3 * scores(task, state)["mse"]


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_leave_one_out_masks_a_point_itself_only_in_training(leave_one_out):
    task = make(model__leave_one_out=leave_one_out)
    params = task.objective.init(jax.random.key(0)).params
    points = batch(task)
    inputs = task.inputs(points["x"]) | {"own_key": points["own_key"]}
    apply = functools.partial(task.model.apply, {"params": params}, inputs)
    diagonal = np.diagonal(apply(train=True).weights)
    assert (diagonal == 0).all() if leave_one_out else (diagonal > 0).all()
    np.testing.assert_allclose(apply(train=True).weights.sum(-1), 1, atol=1e-6)
    assert (np.diagonal(apply(train=False).weights) > 0).all()


def test_the_gradient_is_the_sum_over_any_partition_of_the_points():
    task = make()
    params = task.objective.init(jax.random.key(0)).params
    points = batch(task)
    gradient = jax.jit(jax.grad(lambda p, b: task.loss(p, b, None, None)[0]))
    whole = gradient(params, points)["log_width"]
    order = np.random.default_rng(0).permutation(40)
    parts = [order[:13], order[13:]]
    gradients = [gradient(params, {n: x[i] for n, x in points.items()}) for i in parts]
    total = sum(g["log_width"] for g in gradients)
    np.testing.assert_allclose(total, whole, rtol=1e-4)


@pytest.mark.parametrize("variant", FIXED)
def test_a_fixed_width_does_not_change_in_training(variant):
    task = make(variant)
    state = task.objective.init(jax.random.key(0))
    gradients = jax.grad(lambda p: task.loss(p, batch(task), None, None)[0])
    assert gradients(state.params) == {"log_width": 0}
    width = task.model.apply({"params": state.params}, method="current_width")
    np.testing.assert_allclose(width, task.config.model.width, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["triangular", "epanechnikov"])
def test_other_smooth_kernels_learn_their_width(kernel):
    _, state, losses = fitted(model__kernel=kernel, model__width=0.3)
    assert np.exp(state.params["log_width"]) > 0.6
    assert losses[-1] < losses[0]


def test_a_run_without_learned_parameters_is_trained_saved_and_loaded(tmp_path):
    config = get_config("boxcar")
    config.train_steps, config.evaluation.checkpoint = 3, "average"
    assert loop.train(config, tmp_path) == 0
    run = trained.load(tmp_path)
    assert (run.checkpoint, int(run.state.step)) == ("average", 3)
    evaluation = run.evaluate()
    assert evaluation.scores["width"] == 1
    with pytest.raises(UserError, match="^split is 'tset': must be validation or test"):
        run.evaluate("tset")
    paths = evaluate.draw(run.task, run.state, evaluation, tmp_path / "drawn")
    expected = {f"{kind}_test.png" for kind in ("fit", "attention")}
    assert {path.name for path in paths} == expected
    assert set(paths) == set((tmp_path / "drawn").iterdir())
    for path in paths:
        with Image.open(path) as image:
            assert min(image.size) > 100


def test_each_line_has_a_prediction(tmp_path):
    task, state, _ = fitted()
    run = run_of(task, state)
    predictions = run.predict(["2.5", "", " -1e3 ", "0"], figures=tmp_path)
    values, weights = read(task, state, [2.5, -1e3, 0])
    assert len(predictions) == 4 and not any(best.others for best in predictions)
    assert predictions[1] == Prediction("", 0.0)
    texts = [predictions[i].text for i in (0, 2, 3)]
    values = values[:, 0]
    np.testing.assert_allclose([float(t) for t in texts], values, rtol=1e-5)
    # -1000 is far to the left: all weight is on the first point.
    assert predictions[2].score == 1
    np.testing.assert_allclose(float(texts[1]), task.y[0], rtol=1e-5)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"attention_{line:04d}.png" for line in (1, 3, 4)]
    assert run.predict(["", " "]) == [Prediction("", 0.0), Prediction("", 0.0)]
    for i, expected in zip((0, 2, 3), weights, strict=True):
        (attention,) = predictions[i].attention
        assert attention.weights.shape == (1, 1, len(attention.keys)) == (1, 1, 40)
        np.testing.assert_allclose(attention.weights[0, 0], expected, atol=1e-6)
    assert not run.predict(["0"], attention=False)[0].attention


def test_a_query_without_neighbours_is_warned_about(capsys, tmp_path):
    task = make("boxcar")
    state = task.objective.init(jax.random.key(0))
    _, far = run_of(task, state).predict(["1", "7.5"], figures=tmp_path)
    assert (far.text, far.score) == ("0", 0.0)
    assert not far.attention[0].weights.any()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["attention_0001.png", "attention_0002.png"]
    warning = capsys.readouterr().err
    assert warning.startswith("warning: line 2 is too far from every training point")
    assert warning.count("\n") == 1


@pytest.mark.parametrize("text", ["two", "1 2", "nan", "inf", "1e39", "x" * 99])
def test_a_line_that_is_not_a_number_is_refused(text):
    task, state, _ = fitted()
    with pytest.raises(UserError, match=f"line 3: '{text[:40]}' must be a finite"):
        run_of(task, state).predict(["1", "", text])


def test_a_single_string_is_refused_and_a_run_has_a_short_repr():
    task, state, _ = fitted()
    run = run_of(task, state)
    with pytest.raises(UserError, match=r"give a list, \['2\.5'\]"):
        run.predict("2.5")
    assert len(repr(run)) < 200


def test_every_fixed_variant_is_tested():
    fixed = {name for name in VARIANTS if not get_config(name).model.learned}
    assert fixed == set(FIXED)
