"""Adding and multiplying: the generator, the protocols, scores and predictions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from states import stepped, task_of

from configs.ff_attention import VARIANTS, get_config
from tasks.adding import data as adding
from training import evaluate, trained
from training.task import Evaluation, NoOptions, Prediction, Stacked

FIELDS = {"length": 101, "min_length": 23, "buckets": 5, "batch_size": 7, "seed": 0}


def make(variant="", **fields):
    return task_of(get_config(variant), **fields)


def read(task, state, inputs):
    """Estimate and weights of a sequence without a mask."""
    estimates, (record,) = task.outputs(state, {"inputs": inputs[None]}, True)
    return estimates, record.weights[0, 0]


def errors_of(task, state, batch):
    return task.answers(state, Stacked(batch)).arrays[0] - batch["target"]


def predict(task, state, lines, **options):
    return trained.Run(task.config, task, state, "last").predict(lines, **options)


@functools.cache
def small(variant="", **fields):
    """A small task and its initial state."""
    length = 61 if "variable" in variant else 23
    fields = {
        "model__hidden": 11,
        "data__length": length,
        "data__batch_size": 16,
    } | fields
    task = make(variant, **fields)
    return task, jax.jit(task.objective.init)(jax.random.key(0))


def many_sequences(operation, batch_size=20_011, length=31):
    lengths = np.full(batch_size, length)
    return adding.sequences(operation, np.random.default_rng(0), lengths, length)


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("protocol", adding.PROTOCOLS)
@pytest.mark.parametrize("operation", adding.OPERATIONS)
def test_sequences_have_the_markers_and_target_of_the_problem(operation, protocol):
    source = adding.batches(operation, protocol, **FIELDS)
    for index in range(29):
        batch = source[index]
        assert {x.dtype for n, x in batch.items() if n != "mask"} == {np.dtype("f4")}
        width = batch["inputs"].shape[1]
        for row, ((numbers, markers), target) in enumerate(
            zip(batch["inputs"].swapaxes(1, 2), batch["target"], strict=True)
        ):
            steps = [t for t in range(width) if markers[t] == -1]
            assert len(steps) == 2 and steps[0] == 0
            length = steps[1] + 1
            marked = [t for t in range(width) if markers[t] == 1]
            assert len(marked) == 2
            assert any(t <= 9 for t in marked) and marked[1] <= length / 2 - 2
            assert np.count_nonzero(markers) == 4
            assert not numbers[length:].any() and numbers[:length].all()
            a, b = (float(numbers[t]) for t in marked)
            expected = 0.5 + (a + b) / 4 if operation == "add" else a * b
            assert target == pytest.approx(expected, abs=1e-6)
            if protocol == "variable":
                assert batch["mask"][row].sum() == length
                assert batch["mask"][row, :length].all() and 23 <= length <= 101
            else:
                assert "mask" not in batch
                assert width == 112 and 101 <= length < 112  # 1.1 T0, rounded up


@pytest.mark.parametrize("length", [adding.MIN_LENGTH, 31])
def test_the_two_marked_steps_are_drawn_as_in_the_paper(length):
    markers = many_sequences("add", length=length)["inputs"][..., 1]
    counts = (markers == 1).sum(0)
    steps = range(1, length // 2 - 1)
    expected = np.zeros(length)
    for first in range(1, 10):
        expected[first] += 1 / 9
        for second in steps:
            if second != first:
                expected[second] += 1 / 9 / (len(steps) - 1)
    np.testing.assert_allclose(expected.sum(), 2)
    deviation = np.sqrt(len(markers) * expected)
    assert (abs(counts - len(markers) * expected) <= 4 * deviation).all()


@pytest.mark.parametrize(
    ("operation", "variance", "chances"),
    [
        ("add", 1 / 24, {0.5: 0.1536}),  # P(|X1 + X2| < 0.16)
        ("multiply", 7 / 144, {0.04: 0.282, 0.25: 0.111}),
    ],
)
def test_a_constant_has_the_accuracy_of_chance(operation, variance, chances):
    target = np.float64(many_sequences(operation)["target"])
    mean = 0.5 if operation == "add" else 0.25
    squares = (target - mean) ** 2
    error = 4 / np.sqrt(len(target))
    assert abs(target.mean() - mean) < error * np.sqrt(variance)
    assert abs(squares.mean() - variance) < error * squares.std()
    for constant, chance in chances.items():
        share = np.mean(abs(target - constant) < 0.04)
        assert abs(share - chance) < error * np.sqrt(chance)


@pytest.mark.parametrize("protocol", adding.PROTOCOLS)
def test_held_out_sequences_never_change_and_are_not_in_training(protocol):
    lengths = {"length": 101, "min_length": 23}
    test = adding.held_out("add", protocol, "test", **lengths)
    assert same(test, adding.held_out("add", protocol, "test", **lengths))
    validation = adding.held_out("add", protocol, "validation", **lengths)
    of_length = adding.held_out_at("add", protocol, "test", 97)
    source = adding.batches("add", protocol, **FIELDS)
    sets = [test, validation, of_length, *(source[i] for i in range(9))]
    targets = np.concatenate([batch["target"] for batch in sets])
    # Two sums of float32 numbers are rarely equal.
    assert len(np.unique(targets)) > 0.99 * len(targets)
    assert len(test["target"]) == 1000


def test_the_variable_test_split_has_ten_sequences_of_each_of_100_lengths():
    batch = adding.held_out("add", "variable", "test", length=1000, min_length=50)
    lengths, counts = np.unique(batch["mask"].sum(1), return_counts=True)
    assert (counts == 10).all() and len(lengths) == 100
    assert (lengths[0], lengths[-1]) == (50, 1000)
    assert set(np.diff(lengths)) == {9, 10}
    batch = adding.held_out_at("multiply", "variable", "test", 53)
    assert batch["inputs"].shape == (1000, 53, 2)
    assert (batch["inputs"][:, -1, 1] == -1).all()


@pytest.mark.parametrize("variant", ["", "variable"])
def test_scores_equal_those_of_each_sequence_alone(variant):
    task, state = small(variant)
    batch = task.examples("test")["test"].arrays
    errors = errors_of(task, state, batch)
    for i in range(0, 1000, 401):
        inputs = batch["inputs"][i]
        if variant:  # without its padding
            inputs = inputs[batch["mask"][i]]
        estimates, _ = read(task, state, inputs)
        error = estimates[0] - batch["target"][i]
        np.testing.assert_allclose(errors[i], error, atol=1e-5)
    scores = evaluate.evaluate(task, state, "test", NoOptions()).scores
    np.testing.assert_allclose(scores["mse"], np.mean(errors**2), rtol=1e-5)
    np.testing.assert_allclose(scores["accuracy"], 100 * np.mean(abs(errors) < 0.04))


def test_a_constant_network_has_the_scores_of_chance():
    task, state = small("multiply", evaluation__lengths=(23,))
    params = jax.tree.map(jnp.zeros_like, state.params)
    params["output_bias"] = jnp.full(1, 0.25)
    state = state.replace(params=params)
    scores = evaluate.evaluate(task, state, "test", NoOptions()).scores
    assert scores["accuracy_23"] == scores["accuracy"]  # T0 is 23
    target = task.examples("test")["test"].arrays["target"]
    expected = 100 * np.mean((target > 0.21) & (target < 0.29))
    np.testing.assert_allclose(scores["accuracy"], expected, atol=0.11)  # rounding
    np.testing.assert_allclose(scores["mse"], np.mean((target - 0.25) ** 2), rtol=1e-5)


def test_an_evaluation_has_scores_and_a_chart_by_length(tmp_path):
    task, state = small("variable", evaluation__lengths=(31,))
    evaluation = evaluate.evaluate(task, state, "test", NoOptions())
    scores = evaluation.scores
    batch = task.examples("test")["test"].arrays
    expected = {"accuracy_31": adding.held_out_at("add", "variable", "test", 31)}
    for first in range(0, 1000, 200):  # sorted by length
        group = {name: x[first : first + 200] for name, x in batch.items()}
        low, *_, high = group["mask"].sum(1)
        expected[f"accuracy_{low}_{high}"] = group
    for name, group in expected.items():
        assert scores[name] == adding.accuracy(errors_of(task, state, group))
    assert scores.keys() == {*expected, "accuracy", "mse"} and len(expected) == 6
    during_training = evaluate.evaluate(task, state, "test").scores
    assert during_training == {name: scores[name] for name in ("accuracy", "mse")}
    paths = evaluate.draw(task, state, evaluation, tmp_path)
    assert set(paths) == set(tmp_path.iterdir())
    names = {"estimates_test.png"}
    names |= {f"attention_{number}_test.png" for number in (1, 2, 3)}
    assert {path.name for path in paths} == names | {"accuracy_test.png"}
    examples = evaluate.draw(task, state, Evaluation("test"), tmp_path / "examples")
    assert {path.name for path in examples} == names
    for path in paths:
        with Image.open(path) as image:
            assert min(image.size) > 100


def test_the_network_overfits_one_batch():
    task, state = small(optimizer__learning_rate=0.01)
    batch = task.train_data()[0]
    _, metrics = stepped(task, state, [batch] * 1000)
    loss, count = metrics["loss"]
    assert loss / count < 0.003 * np.var(batch["target"])


@pytest.mark.parametrize("variant", ["", "variable"])
def test_a_prediction_is_the_estimate_of_its_line(variant, tmp_path, capsys):
    task, state = small(variant)
    lines = ["0.5,-1 -0.25,1 1e-1,0 0.3,1 0,-1", "", " 0.5,-1 0.5,1  0.25,1 0,-1 "]
    predictions = predict(task, state, lines, figures=None if variant else tmp_path)
    inputs = np.array([[0.5, -1], [-0.25, 1], [0.1, 0], [0.3, 1], [0, -1]], np.float32)
    if not variant:  # as in training, where T0 is 23
        inputs = np.pad(inputs, [(0, 26 - 5), (0, 0)])
    estimates, weights = read(task, state, inputs)
    assert len(predictions) == 3 and not any(best.others for best in predictions)
    assert predictions[1] == Prediction("", 0.0)
    estimate = float(predictions[0].text)
    np.testing.assert_allclose(estimate, estimates[0], atol=6e-5)  # four decimals
    np.testing.assert_allclose(predictions[0].score, weights.max(), rtol=1e-5)
    (attention,) = predictions[0].attention
    np.testing.assert_allclose(attention.weights[0], weights[:, :5], atol=1e-6)
    assert attention.keys == ["0.5", "-0.25", "0.1", "0.3", "0"]  # no padding
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"attention_{line:04d}.png" for line in (1, 3) if not variant]
    lengths = "50 to 61" if variant else "23 to 25"
    trained_on = f"the model was trained on sequences of {lengths}"
    warnings = capsys.readouterr().err.splitlines()
    assert warnings[0] == f"warning: line 1 has 5 steps: {trained_on}"
    assert len(warnings) == 2
    predict(
        task, state, ["0,-1 1,1 1,1 " + "0,0 " * (20 + 27 * bool(variant)) + "0,-1"]
    )
    assert not capsys.readouterr().err


def test_variants_combine_the_parts_of_their_names():
    assert len(VARIANTS) == 10
    for name in set(VARIANTS) - {"smoke"}:
        config, words = get_config(name), name.split("_")
        operation = "multiply" if "multiply" in words else "add"
        protocol = "variable" if "variable" in words else "fixed"
        pooling = "mean" if "mean" in words else "attention"
        assert config.data.operation == operation
        assert config.data.protocol == protocol
        assert config.model.pooling == pooling
