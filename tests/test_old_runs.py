"""Tests that run directories of commit f4ff7b6 resume, evaluate and predict.

`old_runs/*.tar.gz` are runs of the smoke variants as that commit trained and evaluated
them and predicted with them. Each has two of its checkpoints; the run of SAGAN has one,
and no predictions.
"""

import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import jax
import numpy as np
import pytest
from smoke import FULL_COMPILATION, call

from training import checkpoints, configuration, loop, trained
from training.task import create

RUNS = Path(__file__).parent / "old_runs"
# By run: the step to resume from, the last step, input lines, options of predict.py.
CASES = {
    "transformer_nmt": (20, 30, ["twenty-one", "seven"], {"n_best": "3"}),
    "ntm_copy": (4, 6, ["10110100 01101001", "00000001"], {}),
    "captioning": (4, 6, ["docs/figures/scene.png"], {"n_best": "2"}),
}
NEEDS_NETWORK = {"captioning"}  # for the drawings


# Old to new names of metrics in eval_test.json.
RENAMED_METRICS = {"pictures": "images"}


def names(network_too):
    mark = pytest.mark.network if network_too else ()
    return [
        pytest.param(name, marks=mark if name in NEEDS_NETWORK else ())
        for name in CASES
    ]


@pytest.fixture
def workdir(request, tmp_path):
    """A copy of the run called `name`, a parameter of the test."""
    name = request.getfixturevalue("name")
    with tarfile.open(RUNS / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / name


@pytest.mark.slow
@pytest.mark.parametrize("name", names(network_too=True))
def test_an_old_run_resumes_to_its_last_state(name, workdir):
    resumed, last, *_ = CASES[name]
    config = configuration.load(workdir)
    task = create(config, workdir, training=False)
    like = jax.eval_shape(task.objective.init, jax.random.key(0))
    expected = checkpoints.restore(workdir, last, like)
    shutil.rmtree(workdir / "checkpoints" / str(last))
    assert checkpoints.find(workdir, "last") == resumed
    with config.unlocked():
        config.parallel = "jit"
    assert loop.train(config, workdir) == 0
    state = checkpoints.restore(workdir, last, like)
    assert int(state.step) == last
    # 1e-4: the compiled programs differ in the order of sums.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        state.params,
        expected.params,
    )


@pytest.mark.parametrize("name", [*names(network_too=True), "sagan"])
def test_an_old_run_keeps_its_scores(name, workdir):
    recorded = json.loads((workdir / "eval_test.json").read_text("utf-8"))
    expected = {RENAMED_METRICS.get(key, key): x for key, x in recorded.items()}
    run = trained.load(workdir)
    report = {"split": "test", "checkpoint": run.checkpoint}
    report |= {"step": int(run.state.step), **run.evaluate("test").scores}
    assert report.keys() - expected.keys() <= {"bleu_low", "bleu_high"}  # added since
    assert expected.keys() <= report.keys()
    for key, value in expected.items():
        if isinstance(value, float):
            assert report[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
        elif key == "by_length":  # later runs also have intervals
            assert report[key].keys() == value.keys()
            for group, numbers in value.items():
                assert report[key][group].items() >= numbers.items(), group
        else:
            assert report[key] == value, key


@pytest.mark.parametrize("name", names(network_too=False))
def test_an_old_run_keeps_its_predictions(name, workdir):
    *_, lines, flags = CASES[name]
    process = call(
        "predict.py",
        f"--workdir={workdir}",
        *(f"--{option}={value}" for option, value in flags.items()),
        stdin="".join(f"{line}\n" for line in lines),
        env=os.environ | FULL_COMPILATION,  # all printed digits but the last
    )
    assert process.returncode == 0, process.stderr
    expected = (workdir / "predictions.txt").read_text("utf-8")
    texts, scores = fields(process.stdout)
    expected_texts, expected_scores = fields(expected)
    assert texts == expected_texts
    # The CPU of the old run rounds differently: by one in the last digit.
    np.testing.assert_allclose(scores, expected_scores, rtol=0, atol=1.01e-4)


def fields(predictions):
    """The texts of predictions, and the numbers with four decimals in them."""
    pattern = r"-?\d+\.\d{4}\b"
    scores = [float(x) for x in re.findall(pattern, predictions)]
    return re.sub(pattern, "SCORE", predictions), scores
