"""Saving and reading checkpoints of a small state, and how errors are reported."""

import errno
import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from base.errors import UserError
from training import checkpoints
from training.checkpoints import Checkpoints
from training.state import TrainState


def state_at(step, extra=None):
    params = {"w": jnp.full((2, 3), step, jnp.bfloat16), "b": jnp.full(5, float(step))}
    return TrainState(jnp.asarray(step), params, {"m": jnp.full(7, -step)}, extra)


def like(state):
    return jax.eval_shape(lambda: state)


def assert_equal(actual, expected):
    jax.tree.map(np.testing.assert_array_equal, actual, expected)
    assert jax.tree.structure(actual) == jax.tree.structure(expected)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run with checkpoints at 3, 4 and 5; the best is 4, then 3."""
    workdir = tmp_path_factory.mktemp("written") / "run"
    with Checkpoints(workdir, keep=7) as saved:
        for step, score in ((3, 0.5), (4, 0.75), (5, 0.25)):
            saved.save(step, state_at(step), score)
    return workdir


@pytest.fixture
def workdir(written, tmp_path):
    """A copy of the run."""
    return shutil.copytree(written, tmp_path / "run")


@pytest.mark.parametrize(
    ("which", "step"), [("last", 5), ("best", 4), ("3", 3), (4, 4)]
)
def test_a_checkpoint_is_found_by_name_or_step(workdir, which, step):
    assert checkpoints.find(workdir, which) == step
    restored = checkpoints.restore(workdir, which, like(state_at(0)))
    assert_equal(restored, state_at(step))
    checkpoints.require(workdir)


def test_reading_creates_no_folder(tmp_path):
    with Checkpoints(tmp_path) as saved:
        assert saved.steps() == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("which", ["7", "-3", "first", 11])
def test_a_checkpoint_that_does_not_exist_is_named(workdir, which):
    message = (
        rf"{workdir} has no checkpoint {which}: take last, best, average, or one of "
        r"\[3, 4, 5\]$"
    )
    with pytest.raises(UserError, match=message):
        checkpoints.find(workdir, which)


def test_a_mean_is_of_intact_parameters_alone_and_keeps_their_types(workdir, capsys):
    mean = checkpoints.average(workdir, 3, like(state_at(0)))
    expected = state_at(5)
    mean_params = jax.tree.map(lambda x: jnp.full_like(x, 4), expected.params)
    assert_equal(mean, expected.replace(params=mean_params))
    assert mean.params["w"].dtype == jnp.bfloat16
    single = checkpoints.average(workdir, 1, like(state_at(0)))
    assert_equal(single, expected)
    assert not capsys.readouterr().err
    (workdir / "checkpoints/3/metrics/metrics").unlink()
    mean = checkpoints.average(workdir, 3, like(state_at(0)))
    np.testing.assert_array_equal(mean.params["b"], 4.5)
    line = capsys.readouterr().err
    assert line.endswith("metrics/metrics is missing: step 5 is used instead\n")


def test_stops_and_scores_that_are_not_numbers_are_recorded_as_such(tmp_path):
    with Checkpoints(tmp_path, keep=7) as saved:
        saved.save(1, state_at(1), float("nan"), planned=False)
        saved.save(2, state_at(2), 0.5, sums={"loss": [3.0, 2.0]})
        saved.wait()
        assert (saved.planned(), saved.best()) == ([2], 2)
        assert (saved.sums(1), saved.sums(2)) == ({}, {"loss": [3.0, 2.0]})


def test_the_last_planned_the_best_and_the_newest_two_are_kept(tmp_path):
    scores = {2: 0.75, 3: 0.75, 5: 0.5, 6: 0.25, 7: None, 8: None, 10: 0.1}
    with Checkpoints(tmp_path, keep=2) as saved:
        for step, score in scores.items():
            saved.save(step, state_at(step), score)
        saved.wait()
        assert saved.steps() == [3, 8, 10]
        for step in (11, 12):
            saved.save(step, state_at(step), planned=False)
        saved.wait()
        assert saved.steps() == [3, 8, 10, 11, 12]
        assert saved.planned() == [3, 8, 10]
    assert {path.name for path in saved.path.iterdir()} == {"3", "8", "10", "11", "12"}


def test_a_mean_is_of_planned_checkpoints_of_the_second_half(tmp_path):
    def mean(*steps, stops=()):
        with Checkpoints(tmp_path / str(steps), keep=9) as saved:
            for step in steps:
                saved.save(step, state_at(step), planned=step not in stops)
        like_state = like(state_at(0))
        mean = checkpoints.average(tmp_path / str(steps), 3, like_state)
        return int(mean.step), float(mean.params["b"][0])

    assert mean(4, 5, 8) == (8, 6.5)  # 4 is in the first half
    assert mean(7, 8, 9, 10, 12, 13, stops=(12, 13)) == (10, 9.0)
    assert mean(3, 5, stops=(3, 5)) == (5, 4.0)


def test_damage_is_named_and_an_intact_checkpoint_is_used(workdir, capsys):
    (workdir / "checkpoints/4/metrics/metrics").write_text("{}")
    assert checkpoints.find(workdir, "last") == 5
    assert not capsys.readouterr().err
    assert checkpoints.find(workdir, "best") == 3  # the next best of the intact ones
    assert capsys.readouterr().err == (
        f"warning: {workdir}/checkpoints/4 is damaged: metrics/metrics differs from "
        "SHA256SUMS: step 5 is used instead\n"
    )
    (workdir / "checkpoints/5/SHA256SUMS").write_text("")
    assert checkpoints.find(workdir, "last") == 3
    errors = capsys.readouterr().err
    assert "5 is damaged: SHA256SUMS is damaged: step 3 is used" in errors
    assert errors.count("\n") == 2
    (workdir / "checkpoints/3/SHA256SUMS").unlink()
    with pytest.raises(UserError, match=r"no intact checkpoint \(5 .*; 4 .*; 3 is dam"):
        checkpoints.find(workdir, "last")


def test_what_cannot_be_read_is_no_damage(workdir, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", "state")

    monkeypatch.setattr(checkpoints.manifest, "check", denied)
    with pytest.raises(UserError, match="^state: Permission denied$"):
        checkpoints.find(workdir, "last")


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("replace", errno.EXDEV),  # another file system
        ("replace", errno.EACCES),  # of another user
        ("mkdir", errno.EROFS),
    ],
)
def test_a_damaged_checkpoint_that_cannot_leave_the_folder_is_renamed(
    call, number, workdir, monkeypatch, capsys
):
    original = getattr(Path, call)

    def fail(path, *arguments, **keywords):
        if any("damaged" in Path(x).parts for x in (path, *arguments)):
            raise OSError(number, os.strerror(number), str(path))
        return original(path, *arguments, **keywords)

    (workdir / "checkpoints/5/SHA256SUMS").unlink()
    monkeypatch.setattr(Path, call, fail)
    with Checkpoints(workdir, keep=7) as saved:
        assert saved.steps() == [3, 4]
        assert (saved.path / ".damaged_5" / "metrics").is_dir()
    renamed = f"5 is damaged: SHA256SUMS is missing: moved to {saved.path}/.damaged_5, "
    assert renamed in capsys.readouterr().err


def test_a_damaged_checkpoint_that_cannot_be_renamed_is_named(
    workdir, monkeypatch, capsys
):
    def fail(path, *_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    (workdir / "checkpoints/5/SHA256SUMS").unlink()
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UserError, match="5 is not intact and cannot be moved: Operat"):
        Checkpoints(workdir, keep=7)
    assert not capsys.readouterr().err


FULL = os.strerror(errno.ENOSPC)


def chained():
    try:
        raise OSError(errno.ENOSPC, FULL)
    except OSError as error:
        failure = RuntimeError("while writing")
        failure.__cause__ = error
        return failure


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (chained(), FULL),
        (ValueError(f"UNKNOWN: Error: {FULL} [tensorstore]"), FULL),
        (ValueError(f"{os.strerror(errno.EDQUOT)}: a"), os.strerror(errno.EDQUOT)),
        (ValueError(" two\n  lines "), "two lines"),
        (ValueError("7" * 211), "7" * 200),
    ],
)
def test_a_save_that_fails_names_its_first_cause_in_one_line(
    workdir, monkeypatch, error, reason
):
    def save(*_, **__):
        raise error

    message = (
        f"{workdir}/checkpoints/7 cannot be written: {reason}; the last checkpoint is "
        "step 5, from which the same command resumes"
    )
    with Checkpoints(workdir, keep=7) as saved, monkeypatch.context() as patch:
        patch.setattr(ocp.CheckpointManager, "save", save)
        with pytest.raises(UserError) as caught:
            saved.save(7, state_at(7))
    assert str(caught.value) == message


def test_a_first_save_that_fails_leaves_none(tmp_path, monkeypatch):
    monkeypatch.setattr(ocp.CheckpointManager, "save", lambda *_, **__: 1 / 0)
    with Checkpoints(tmp_path, keep=7) as saved:
        with pytest.raises(UserError, match="the last checkpoint is none, from which"):
            saved.save(3, state_at(3))


def test_an_error_of_the_block_is_not_replaced_by_that_of_a_save(workdir, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, FULL)

    monkeypatch.setattr(checkpoints.manifest, "write", fail)
    with pytest.raises(KeyError, match="the block"):
        with Checkpoints(workdir, keep=7) as saved:
            saved.save(7, state_at(7))
            raise KeyError("the block")
    with pytest.raises(UserError, match=f"7 cannot be written: {FULL}"):
        with Checkpoints(workdir, keep=7) as saved:
            saved.save(7, state_at(7))


def test_a_checkpoint_of_another_shape_cannot_be_read(workdir):
    both = state_at(0).params
    for params, message in (
        ({**both, "a": jnp.zeros(2)}, "no parameter a, which the model needs: its fi"),
        (
            {**both, "w": jnp.zeros((7, 5))},
            r"w of shape \(2, 3\), which is \(7, 5\) in",
        ),
        ({"w": both["w"]}, "a parameter b, which the model lacks: .* not that of its"),
    ):
        with pytest.raises(UserError, match=f"checkpoints/4 has {message}"):
            checkpoints.restore(workdir, 4, like(state_at(0).replace(params=params)))
    with pytest.raises(UserError, match="checkpoints/4 cannot be read: .*not that of"):
        other = state_at(0).replace(opt_state=jnp.zeros(3))
        checkpoints.restore(workdir, 4, like(other))


@pytest.mark.parametrize(("removed", "attempts"), [(False, 1), (True, 5)])
def test_reading_is_repeated_only_while_checkpoints_are_removed(
    workdir, monkeypatch, removed, attempts
):
    calls = []

    def restore(self, step, like):
        calls.append(step)
        if removed:
            shutil.copytree(self.path / str(step), self.path / str(step + 1))
            shutil.rmtree(self.path / str(step))
        raise UserError("damaged")

    monkeypatch.setattr(Checkpoints, "restore", restore)
    with pytest.raises(UserError, match="^damaged$"):
        checkpoints.restore(workdir, "last", None)
    assert len(calls) == attempts
