"""A run that was stopped anywhere ends with the parameters of one that was not."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import toy

from configs import luong_nmt, sagan, transformer_nmt
from tasks.adversarial import Adversarial
from tasks.translation import Translation
from training import checkpoints, loop
from training.log import read_rows
from training.task import create

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.usefixtures("quick_compilation")


def final(workdir, made):
    task = create(made, workdir, training=False)
    like = jax.eval_shape(task.objective.init, jax.random.key(0))
    state = checkpoints.restore(workdir, "last", like)
    assert int(state.step) == made.train_steps
    return state


def same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_stopping_at_any_step_changes_no_bit(tmp_path):
    straight = toy.get_config()
    loop.train(straight, tmp_path / "straight")
    for steps in (1, 5, 11, 12):
        part = toy.get_config()
        part.train_steps = steps
        assert loop.train(part, tmp_path / "parts") == 0
    same(final(tmp_path / "parts", straight), final(tmp_path / "straight", straight))


class Stopped(toy.Toy):
    """Is asked to stop while its seventh batch is made."""

    asked = False

    def train_data(self):
        source = super().train_data()

        class Stops:
            def __getitem__(self, index):
                if index == 6 and not Stopped.asked:
                    Stopped.asked = True
                    os.kill(os.getpid(), signal.SIGTERM)
                return source[index]

        return Stops()


def test_a_signal_saves_at_the_step_and_the_same_command_goes_on(tmp_path, capsys):
    made = toy.get_config()
    made.save_every = made.eval_every = 1000
    loop.train(made, tmp_path / "straight")
    made.task = Stopped
    assert loop.train(made, tmp_path / "stopped") == 128 + signal.SIGTERM
    step = checkpoints.find(tmp_path / "stopped", "last")
    assert 1 <= step <= 7
    with checkpoints.Checkpoints(tmp_path / "stopped") as kept:
        assert kept.planned() == []
    told = capsys.readouterr().err
    assert f"stopped, saved at step {step}: the same command goes on" in told
    assert loop.train(made, tmp_path / "stopped") == 0
    same(final(tmp_path / "stopped", made), final(tmp_path / "straight", made))
    rows = read_rows(tmp_path / "stopped" / "metrics.jsonl")
    assert [r["step"] for r in rows if r["split"] == "train"] == [5, 10, 12]


def test_a_stop_does_not_change_the_mean_of_the_last_checkpoints(tmp_path):
    made = toy.get_config()
    state = toy.Toy(made).objective.init(jax.random.key(0))
    like = jax.eval_shape(lambda: state)

    def mean(folder, steps):
        with checkpoints.Checkpoints(tmp_path / folder, keep=3) as kept:
            for step, planned in steps:
                params = jax.tree.map(lambda x, s=step: x + s, state.params)
                kept.save(step, state.replace(params=params), planned=planned)
            kept.wait()
            planned = kept.planned()
        return planned, checkpoints.average(tmp_path / folder, 3, like)

    on_time = [(step, True) for step in (2, 4, 6, 8)]
    planned, straight = mean("straight", on_time)
    assert planned == [4, 6, 8]
    stopped, found = mean("stopped", [*on_time[:3], (7, False), on_time[3]])
    assert stopped == planned
    same(found, straight)
    assert checkpoints.find(tmp_path / "stopped", "last") == 8
    # A run that nobody resumed yet still has it.
    assert mean("now", [*on_time[:3], (7, False)])[0] == [2, 4, 6]
    assert checkpoints.find(tmp_path / "now", "last") == 7


class Trains:
    """A task whose scores and figures are left out."""

    def validate(self, state):
        return {self.metric[0]: 0.0}

    def figures(self, state, evaluation, folder):
        return []


class Translates(Trains, Translation):
    pass


class Plays(Trains, Adversarial):
    pass


def ends(made, folder, lost, left):
    """Last states of a run, and of one that goes on from step `left`."""
    straight, parts = folder / "straight", folder / "parts"
    loop.train(made, straight)
    shutil.copytree(straight, parts)
    for step in lost:
        shutil.rmtree(parts / "checkpoints" / str(step))
    assert checkpoints.find(parts, "last") == left
    loop.train(made, parts)
    return final(straight, made), final(parts, made)


@pytest.mark.slow
def test_two_networks_that_were_stopped_end_as_two_that_were_not(tmp_path):
    made = sagan.get_config("smoke")
    made.task = Plays
    made.train_steps = 4
    made.save_every = made.eval_every = made.checkpoints.keep = 2
    straight, parts = ends(made, tmp_path, lost=[4], left=2)
    assert jax.tree.leaves(straight.extra["variables"]["generator"]["batch_stats"])
    same(straight, parts)


@pytest.mark.parametrize(
    "config", [pytest.param(transformer_nmt, marks=pytest.mark.slow), luong_nmt]
)
def test_a_translator_that_was_stopped_ends_as_one_that_was_not(config, tmp_path):
    made = config.get_config("smoke")
    made.task = Translates
    made.train_steps = made.eval_every = 11
    made.save_every, made.optimizer.accumulate = 4, 2
    if config is luong_nmt:
        made.model.alignment = "hard"  # draws, and keeps a baseline
        made.data.max_shapes = 1
    same(*ends(made, tmp_path, lost=[11, 8], left=4))


STEPS = 71
FLAGS = [
    *("--config=tests/toy.py", "--tune_memory=false"),
    *(f"--config.train_steps={STEPS}", "--config.save_every=5"),
    *("--config.eval_every=20", "--config.log_every=7"),
]


def start(*command):
    return subprocess.Popen(
        [sys.executable, *command, *FLAGS],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_where_it_halts(event, number, workdir):
    """kill -9 of a run that has come to a batch or into the save of a step."""
    marker = workdir.parent / f"{event}_{number}"
    process = start(
        "tests/halting.py", event, str(number), marker, f"--workdir={workdir}"
    )
    while not marker.exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.kill()
    process.communicate()


def test_kill_9_in_training_and_in_a_save_changes_no_bit(tmp_path):
    straight = start("train.py", f"--workdir={tmp_path / 'straight'}")
    _, told = straight.communicate()
    assert straight.returncode == 0, told
    folder = tmp_path / "killed" / "checkpoints"

    def complete():
        return [int(p.name) for p in folder.glob("*") if p.name.isdecimal()]

    kill_where_it_halts("batch", 29, tmp_path / "killed")
    assert 15 <= max(complete()) <= 25  # of a step before, as saves take a while
    for number in (40, 55):
        kill_where_it_halts("save", number, tmp_path / "killed")
        assert max(complete()) == number - 5
        assert any(folder.glob(f"{number}.*tmp*"))  # half a checkpoint is left behind
    last = start("train.py", f"--workdir={tmp_path / 'killed'}")
    _, told = last.communicate()
    assert last.returncode == 0, told
    assert f"going on from step 50 of {STEPS}" in told
    assert not list(folder.glob("*tmp*"))
    made = toy.get_config()
    made.train_steps = STEPS
    same(final(tmp_path / "killed", made), final(tmp_path / "straight", made))
    rows = read_rows(tmp_path / "killed" / "metrics.jsonl")
    steps = [r["step"] for r in rows if r["split"] == "train"]
    assert steps == [*range(7, STEPS, 7), STEPS]
