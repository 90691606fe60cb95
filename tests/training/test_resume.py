"""Tests that a run stopped at any point ends with the same parameters."""

import json
import os
import shutil
import signal

import faults
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from states import assert_equal, last_state

from base import spread
from base.errors import UserError
from configs import (
    las_digits,
    lstmn_language,
    lstmn_sentences,
    lstmn_text,
    luong_nmt,
    memory_network_qa,
    sagan,
    transformer_nmt,
)
from tasks.images.task import Adversarial
from tasks.language.agreement import Agreement
from tasks.language.text_modeling import TextModeling
from tasks.questions.task import QuestionAnswering
from tasks.sentences.task import SentenceClassification
from tasks.speech.task import Listening
from tasks.translation.task import Translation
from training import checkpoints, loop, trained
from training.optimizers import SCHEDULES, make_schedule


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run of the toy that was never stopped."""
    workdir = tmp_path_factory.mktemp("toy") / "straight"
    loop.train(toy.get_config(), workdir)
    return workdir


def test_stopping_at_any_step_leaves_parameters_bit_identical(straight, tmp_path):
    config = toy.get_config()
    for steps in (1, 5, 11, 12):
        config.train_steps = steps
        assert loop.train(config, tmp_path) == 0
    assert_equal(last_state(tmp_path, config), last_state(straight, config))


def test_a_longer_schedule_counts_from_the_step_at_which_the_run_goes_on(tmp_path):
    def config(steps):
        config = toy.get_config()
        config.optimizer.schedule = "warmup_cosine"
        config.train_steps = config.optimizer.decay_steps = steps
        return config

    def rates(config):
        return [float(make_schedule(config)(step)) for step in range(18)]

    parts = tmp_path / "parts"
    loop.train(config(12), parts)
    assert loop.train(config(18), parts) == 0
    assert len(json.loads((parts / "config.json").read_text())["extended"]) == 1
    assert trained.load(parts).evaluate("validation").scores
    # The same run, with both schedules in one.
    both = [*rates(config(12))[:12], *rates(config(18))[12:]]
    assert both[11] == 0 < both[12]
    straight = config(18)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            SCHEDULES,
            "warmup_cosine",
            lambda rate, *, warmup, decay_steps: lambda count: jnp.array(both)[count],
        )
        loop.train(straight, tmp_path / "straight")
    # The compiler rounds a rate that it computes differently from a constant.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
        last_state(parts, straight).params,
        last_state(tmp_path / "straight", straight).params,
    )
    with pytest.raises(UserError, match="optimizer.decay_steps: 18 there, 12 now"):
        loop.train(config(12), parts)


@pytest.mark.slow
def test_a_gan_with_two_schedules_is_trained_longer(tmp_path):
    def config(steps):
        config = sagan.get_config("smoke")
        config.task, config.train_steps = without_scores(Adversarial), steps
        config.save_every = config.eval_every = 2
        for group in (config.generator, config.discriminator):
            group.schedule, group.decay_steps = "warmup_cosine", steps
        return config

    loop.train(config(2), tmp_path)
    assert loop.train(config(4), tmp_path) == 0
    last_state(tmp_path, config(4))
    (before,) = json.loads((tmp_path / "config.json").read_text())["extended"]
    ends = "discriminator.decay_steps=2", "generator.decay_steps=2"
    assert before == {"step": 2, "before": ["train_steps=2", *ends]}


class Stopped(toy.Toy):
    """A task that gets a stop signal while it creates its seventh batch."""

    requested = False

    def train_data(self):
        source = super().train_data()

        class Stops:
            def __getitem__(self, index):
                if index == 6 and not Stopped.requested:
                    Stopped.requested = True
                    os.kill(os.getpid(), signal.SIGTERM)
                return source[index]

        return Stops()


def test_a_signal_saves_the_step_and_the_same_command_resumes(tmp_path, capsys):
    config = toy.get_config()
    config.save_every = config.eval_every = 1000
    loop.train(config, tmp_path / "straight")
    config.task = Stopped
    assert loop.train(config, tmp_path / "stopped") == 128 + signal.SIGTERM
    step = checkpoints.find(tmp_path / "stopped", "last")
    assert 1 <= step <= 7
    with checkpoints.Checkpoints(tmp_path / "stopped") as saved:
        assert saved.planned() == []
    output = capsys.readouterr().err
    assert f"stopped, saved at step {step}: the same command resumes" in output
    assert loop.train(config, tmp_path / "stopped") == 0
    assert_equal(
        last_state(tmp_path / "stopped", config),
        last_state(tmp_path / "straight", config),
    )
    # A row of training is the mean since the row before, also across the stop.
    rows = faults.untimed_rows(tmp_path / "stopped")
    assert [r["step"] for r in rows if r["split"] == "train"] == [5, 10, 12]
    assert rows == faults.untimed_rows(tmp_path / "straight")


class Interrupted(toy.Toy):
    """A task that gets a stop signal in the second part of an evaluation."""

    at = None  # number of the evaluation

    def score(self, state, evaluation):
        type(self).at -= 1

        def part(number):
            assert type(self).at > 0 or number < 2
            if type(self).at == 0 and number == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return super(Interrupted, self).score(state, evaluation)["error"]

        parts = spread.each(part, range(3))
        return {"error": parts[0]}


@pytest.mark.parametrize("number", [1, 2, 3])  # the last one is after the last step
def test_a_signal_ends_an_evaluation_and_saves_the_state(
    number, straight, tmp_path, monkeypatch
):
    stopped, config = tmp_path / "stopped", toy.get_config()
    config.task = Interrupted
    monkeypatch.setattr(Interrupted, "at", number)
    assert loop.train(config, stopped) == 128 + signal.SIGTERM
    step = number * config.eval_every
    assert checkpoints.find(stopped, "last") == step
    with checkpoints.Checkpoints(stopped) as saved:
        assert saved.damage(step) == "" and step not in saved.planned()
    monkeypatch.setattr(Interrupted, "at", 10)
    assert loop.train(config, stopped) == 0
    assert_equal(last_state(stopped, config), last_state(straight, config))
    assert faults.untimed_rows(stopped) == faults.untimed_rows(straight)
    with (
        checkpoints.Checkpoints(straight) as expected,
        checkpoints.Checkpoints(stopped) as actual,
    ):
        assert actual.planned() == actual.steps() == expected.steps()
        assert actual.best() == expected.best()
    assert not [*(stopped / "checkpoints").glob(".*")]


@pytest.mark.parametrize("complete", [False, True])
def test_a_kill_while_a_checkpoint_is_replaced_keeps_it(tmp_path, complete):
    config = toy.get_config()
    state = toy.Toy(config).objective.init(jax.random.key(0))
    with checkpoints.Checkpoints(tmp_path, keep=3) as saved:
        saved.save(7, state, planned=False)
    folder, removed = (tmp_path / "checkpoints" / n for n in ("7", ".removed/7"))
    shutil.copytree(folder, removed)
    if not complete:
        shutil.rmtree(folder)
    with checkpoints.Checkpoints(tmp_path, keep=3) as saved:
        assert saved.steps() == [7] and saved.damage(7) == ""
        assert not removed.exists()
        saved.save(7, state)
        saved.wait()
        assert saved.planned() == [7]


def without_scores(task):
    """The task without scores and figures."""
    changed = {
        "examples": lambda self, split, *, full=True: {},
        "score": lambda self, state, evaluation: {self.metric[0]: 0.0},
        "drawn": lambda self, split: {},
        "figures": lambda self, state, evaluation, folder: [],
    }
    return type(task.__name__, (task,), changed)


def last_states(config, folder, removed, resumed):
    """Returns the last states of a run, and of its copy resumed from a step."""
    straight, parts = folder / "straight", folder / "parts"
    loop.train(config, straight)
    shutil.copytree(straight, parts)
    for step in removed:
        shutil.rmtree(parts / "checkpoints" / str(step))
    assert checkpoints.find(parts, "last") == resumed
    loop.train(config, parts)
    return last_state(straight, config), last_state(parts, config)


@pytest.mark.slow
def test_a_stopped_gan_ends_with_the_same_state(tmp_path):
    config = sagan.get_config("smoke")
    config.task = without_scores(Adversarial)
    config.train_steps = 4
    config.save_every = config.eval_every = config.checkpoints.keep = 2
    straight, parts = last_states(config, tmp_path, removed=[4], resumed=2)
    assert jax.tree.leaves(straight.extra["variables"]["generator"]["batch_stats"])
    assert_equal(straight, parts)


def test_a_memory_network_stopped_in_its_linear_start_ends_with_the_same_state(
    tmp_path,
):
    config = memory_network_qa.get_config("smoke")
    config.task = without_scores(QuestionAnswering)
    config.train_steps, config.checkpoints.keep = 8, 4
    config.data.time_noise = 0.5
    straight, parts = last_states(config, tmp_path, removed=[8, 6, 4], resumed=2)
    checkpoint = checkpoints.restore(
        tmp_path / "parts", 2, jax.eval_shape(lambda: parts)
    )
    assert checkpoint.extra["linear"].all() and not parts.extra["linear"].any()
    assert_equal(straight, parts)


@pytest.mark.parametrize(
    "module", [pytest.param(transformer_nmt, marks=pytest.mark.slow), luong_nmt]
)
def test_a_stopped_translator_ends_with_the_same_state(module, tmp_path):
    config = module.get_config("smoke")
    config.task = without_scores(Translation)
    config.train_steps = config.eval_every = 11
    config.save_every, config.optimizer.accumulate = 4, 2
    if module is luong_nmt:
        config.model.alignment = "hard"  # has draws and a baseline
    assert_equal(*last_states(config, tmp_path, removed=[11, 8], resumed=4))


@pytest.mark.parametrize(
    ("module", "task"),
    [
        (las_digits, Listening),  # also samples characters
        (lstmn_language, Agreement),
        (lstmn_sentences, SentenceClassification),
        (lstmn_text, TextModeling),  # carries the state of the text
    ],
)
def test_a_run_with_dropout_stopped_early_ends_with_the_same_state(
    module, task, tmp_path
):
    config = module.get_config("smoke")
    config.task, config.model.dropout = without_scores(task), 0.5
    config.train_steps = config.eval_every = 5
    config.save_every, config.checkpoints.keep = 3, 2
    assert_equal(*last_states(config, tmp_path, removed=[5], resumed=3))


STEPS = 71
FIELDS = {"train_steps": STEPS, "save_every": 5, "eval_every": 20, "log_every": 7}


def kill_at(event, number, workdir):
    """Kills a run at a batch or during the save of a step."""
    flags = [f"--config.{name}={value}" for name, value in FIELDS.items()]
    flags += ["--config=tests/toy.py", "--tune_memory=false", f"--workdir={workdir}"]
    marker = workdir.parent / f"{event}_{number}"
    faults.kill(faults.halted(event, number, marker, *flags))


def test_kill_9_while_training_or_saving_leaves_parameters_identical(tmp_path, capsys):
    config = toy.get_config()
    config.update(FIELDS)
    loop.train(config, tmp_path / "straight")
    folder = tmp_path / "killed" / "checkpoints"

    def complete():
        return [int(p.name) for p in folder.glob("*") if p.name.isdecimal()]

    kill_at("batch", 29, tmp_path / "killed")
    assert 15 <= max(complete()) <= 25  # an earlier step, since saves take a while
    kill_at("save", 40, tmp_path / "killed")
    assert max(complete()) == 35
    assert any(folder.glob("40.*tmp*"))  # the incomplete checkpoint
    assert loop.train(config, tmp_path / "killed") == 0
    assert f"resuming from step 35 of {STEPS}" in capsys.readouterr().err
    assert not list(folder.glob("*tmp*"))
    assert_equal(
        last_state(tmp_path / "killed", config),
        last_state(tmp_path / "straight", config),
    )
    rows = faults.untimed_rows(tmp_path / "killed")
    steps = [r["step"] for r in rows if r["split"] == "train"]
    assert steps == [*range(7, STEPS, 7), STEPS]
    assert rows == faults.untimed_rows(tmp_path / "straight")
