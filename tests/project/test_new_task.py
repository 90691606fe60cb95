"""A new task, from two files: training, resuming, evaluation, prediction, figures.

The files of `bag_of_words/` are added to an otherwise unchanged copy of the project.
"""

import json
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import smoke

NEW = smoke.ROOT / "tests/bag_of_words"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the new files."""
    folder = tmp_path_factory.mktemp("project")
    smoke.copy_project(folder)
    shutil.copy(NEW / "task.py", folder / "tasks" / "bag_of_words.py")
    shutil.copy(NEW / "config.py", folder / "configs" / "bag_of_words.py")
    return folder


def call(project, *command, stdin=""):
    process = smoke.call(*command, stdin=stdin, folder=project)
    assert process.returncode == 0, process.stderr
    return process.stdout


def train(project, workdir, *overrides):
    config = "--config=configs/bag_of_words.py", "--tune_memory=false"
    call(project, "train.py", *config, f"--workdir={workdir}", *overrides)


def last_state(workdir):
    with ocp.CheckpointManager(
        workdir / "checkpoints", item_handlers=ocp.StandardCheckpointHandler()
    ) as manager:
        return manager.restore(manager.latest_step())


@pytest.fixture(scope="module")
def workdir(project):
    train(project, "runs/straight")
    return project / "runs" / "straight"


def test_it_is_short():
    assert sum(len(p.read_text().splitlines()) for p in NEW.glob("*.py")) < 160


def test_it_resumes_bit_for_bit_with_its_own_state(project, workdir):
    train(project, "runs/parts", "--config.train_steps=25")
    train(project, "runs/parts")
    straight, parts = last_state(workdir), last_state(project / "runs" / "parts")
    assert straight["extra"]["mean"].any() and straight["extra"]["best"] > 50

    assert jax.tree.structure(straight) == jax.tree.structure(parts)
    jax.tree.map(np.testing.assert_array_equal, straight, parts)


def test_it_is_evaluated_with_a_table_and_figures(project, workdir):
    command = "eval.py", "--workdir=runs/straight", "--tune_memory=false"
    printed = json.loads(call(project, *command))
    assert printed == json.loads((workdir / "eval_test.json").read_text())
    assert printed["accuracy"] > 70
    assert len((workdir / "correct_test.tsv").read_text().splitlines()) == 501
    assert (workdir / "figures" / "test" / "weights_test.png").exists()
    assert (workdir / "figures" / "step_40" / "weights_validation.png").exists()


def test_it_predicts_and_draws_and_its_options_are_flags(project, workdir):
    # Both are odd, one with a probability of less than 1/2.
    command = "predict.py", "--workdir=runs/straight", "--threshold=0"
    printed = call(project, *command, "--figures=drawn", stdin="w1 w3 w5\n\nw0 w2\n")
    assert printed == "odd\n\nodd\n"
    names = sorted(path.name for path in (project / "drawn").iterdir())
    assert names == ["words_0001.png", "words_0003.png"]
