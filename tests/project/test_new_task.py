"""A new task, from two files: training, resuming, evaluation, prediction, figures.

The files of `bag_of_words/` are added to an otherwise unchanged copy of the project.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

ROOT = Path(__file__).parents[2]
NEW = Path(__file__).parents[1] / "bag_of_words"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with the new files."""
    folder = tmp_path_factory.mktemp("project")
    for path in ROOT.iterdir():
        if path.suffix == ".py":
            shutil.copy(path, folder)
        elif (path / "__init__.py").exists() and path.name != "tests":
            ignored = shutil.ignore_patterns("__pycache__", "*.json")
            shutil.copytree(path, folder / path.name, ignore=ignored)
    shutil.copy(NEW / "task.py", folder / "tasks" / "bag_of_words.py")
    shutil.copy(NEW / "config.py", folder / "configs" / "bag_of_words.py")
    return folder


def call(project, *command, stdin=""):
    process = subprocess.run(
        [sys.executable, *command],
        cwd=project,
        input=stdin,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        encoding="utf-8",
    )
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

    def flat(tree, prefix=""):
        if isinstance(tree, dict | list | tuple):
            items = tree.items() if isinstance(tree, dict) else enumerate(tree)
            for name, value in items:
                yield from flat(value, f"{prefix}/{name}")
        elif tree is not None:
            yield prefix, tree

    straight, parts = dict(flat(straight)), dict(flat(parts))
    assert straight.keys() == parts.keys()
    for name, value in straight.items():
        np.testing.assert_array_equal(value, parts[name], err_msg=name)


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
