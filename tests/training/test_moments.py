"""Moments of a training: steps, files, and the page that has them."""

import shlex

import in_process
import numpy as np
import pytest

from base.errors import UserError
from explorer import examples
from figures.attention import AttentionMap, Places, grid
from training import moments
from training.task import Prediction


@pytest.mark.parametrize("total", [100, 101, 3400, 1_000_000])
def test_moments_are_few_and_dense_at_first(total):
    steps = sorted(moments.steps(total, 20))
    assert steps[0] == 1 and steps[-1] == total and len(steps) <= 20
    gaps = np.diff(steps)
    assert (np.diff(gaps) >= -1).all()  # apart from rounding, gaps grow
    assert len(steps) > 15


def test_a_short_training_and_a_count_of_0_have_no_moments():
    assert moments.steps(99, 20) == moments.steps(3400, 0) == set()


def test_a_moment_is_read_as_it_was_written(tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3))
    image = np.arange(7 * 5 * 3, dtype=np.uint8).reshape(7, 5, 3)
    places = Places(grid(2, 3), image, chosen=np.array([2, 0, 1]))
    given = AttentionMap(
        "cross",
        weights,
        ["ä", "b", "c"],
        list("uvwxyz"),
        position=np.array([[0.5, 1, 2]]),
        layer=1,
        titles=("target", "source"),
        places=places,
    )
    predictions = [Prediction("Zürich", -1.5, (given,), caption="a caption")]
    moments.write(tmp_path, 7, predictions)
    moments.write(tmp_path, 12, [Prediction("", 0.0)])
    by_step = moments.read(tmp_path)
    assert list(by_step) == [7, 12]
    (prediction,) = by_step[7]
    assert prediction[:2] == ("Zürich", -1.5) and prediction.caption == "a caption"
    (restored,) = prediction.attention
    np.testing.assert_allclose(restored.weights, weights, atol=0.5 / 255 + 1e-6)
    assert (restored.name, restored.layer) == ("cross", 1)
    assert restored.titles == ("target", "source")
    assert (restored.queries, restored.keys) == (["ä", "b", "c"], list("uvwxyz"))
    np.testing.assert_array_equal(restored.position, given.position)
    np.testing.assert_array_equal(restored.places.image, image)
    np.testing.assert_array_equal(restored.places.boxes, places.boxes)
    np.testing.assert_array_equal(restored.places.chosen, [2, 0, 1])
    assert restored.places.queries is None
    # One place a step: its weights are not rounded.
    assert not restored.note and not restored.rounded
    moments.write(tmp_path, 7, [Prediction("", 0.0, (given._replace(places=None),))])
    (restored,) = moments.read(tmp_path)[7][0].attention
    assert "rounded to" in restored.note and restored.rounded


def test_a_damaged_moment_is_named(tmp_path):
    path = moments.write(tmp_path, 7, [Prediction("a", 0.0)])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match=r"moments/7 cannot be read"):
        moments.read(tmp_path)


def test_a_run_keeps_moments_and_the_page_has_them_beside_the_checkpoints(
    tmp_path, monkeypatch, capsys
):
    workdir = tmp_path / "run"
    command = [
        "train.py",
        "--config=configs/ff_attention.py:smoke",
        f"--workdir={workdir}",
        "--tune_memory=false",
        "--config.train_steps=100",
        "--config.optimizer.decay_steps=100",
        "--config.eval_every=100",
        "--config.save_every=50",
    ]
    result = in_process.call(*command, "--config.moments=3")
    assert result.status == 0, result.errors
    by_step = moments.read(workdir)
    assert list(by_step) == [1, 10, 100]
    assert all(len(each) == moments.EXAMPLES for each in by_step.values())
    reads = []
    monkeypatch.setattr(moments, "read", lambda path: reads.append(path) or by_step)
    content = examples.of_split([workdir], "all", "test", 4)
    assert reads == [workdir]
    assert list(by_step) == [1, 10, 100]
    assert {"1", "10", "100"} <= set(content.steps)
    assert len(content.examples) == 4
    assert "4 examples of the validation split" in capsys.readouterr().err
    command = [
        examples.PYTHON,
        "explore.py",
        f"--workdir={workdir}",
        "--checkpoints=all",
    ]
    command += ["--split=validation", "--examples=4", "--out=example.html"]
    assert content.examples[3].command == shlex.join(command)
    first = content.examples[0].answers[0][0]
    assert first.attention[0].weights.shape == by_step[1][0].attention[0].weights.shape
