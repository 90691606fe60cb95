"""Saving and reading checkpoints of a small state, and how errors are reported."""

import errno
import logging
import os
import shutil
import sys
from types import SimpleNamespace

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
    """A run with checkpoints at 3, 4 and 5; the best is 4."""
    workdir = tmp_path_factory.mktemp("written") / "run"
    with Checkpoints(workdir, keep=7) as saved:
        for step, score in ((3, 0.25), (4, 0.75), (5, 0.5)):
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
        assert not saved.has_steps()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("which", ["7", "-3", "first", 11])
def test_a_checkpoint_that_does_not_exist_is_named(workdir, which):
    message = (
        rf"{workdir} has no checkpoint {which}: take last, best, average, or one of "
        r"\[3, 4, 5\]$"
    )
    with pytest.raises(UserError, match=message):
        checkpoints.find(workdir, which)


def test_a_mean_is_of_parameters_alone_and_keeps_their_types(workdir):
    mean = checkpoints.average(workdir, 3, like(state_at(0)))
    expected = state_at(5)
    mean_params = jax.tree.map(lambda x: jnp.full_like(x, 4), expected.params)
    assert_equal(mean, expected.replace(params=mean_params))
    assert mean.params["w"].dtype == jnp.bfloat16
    single = checkpoints.average(workdir, 1, like(state_at(0)))
    assert_equal(single, expected)
    with pytest.raises(
        UserError, match="^cannot average 0 checkpoints: take 1 or more"
    ):
        checkpoints.average(workdir, 0, like(state_at(0)))


@pytest.mark.parametrize("extra", [None, {"variables": {"n": 17}, "baseline": 0.5}])
def test_the_layout_before_the_field_extra_is_read(tmp_path, extra):
    new = state_at(3, jax.tree.map(jnp.asarray, extra))
    flat = {"step": new.step, "params": new.params, "opt_state": new.opt_state}
    if extra:
        flat |= {"kept": new.extra["variables"], "baseline": new.extra["baseline"]}
    else:
        flat |= {"baseline": None}
    with Checkpoints(tmp_path, keep=1) as saved:
        saved.save(3, flat)
    assert_equal(checkpoints.restore(tmp_path, "last", like(new)), new)


def test_stops_and_scores_that_are_not_numbers_are_recorded_as_such(tmp_path):
    with Checkpoints(tmp_path, keep=7) as saved:
        saved.save(1, state_at(1), float("nan"), planned=False)
        saved.save(2, state_at(2), 0.5, sums={"loss": [3.0, 2.0]})
        saved.wait()
        assert (saved.planned(), saved.best()) == ([2], 2)
        assert (saved.sums(1), saved.sums(2)) == ({}, {"loss": [3.0, 2.0]})


def test_a_checkpoint_without_its_manifest_is_not_used(tmp_path, workdir, capsys):
    for step in (3, 4, 5):
        (workdir / f"checkpoints/{step}/SHA256SUMS").unlink()
        with Checkpoints(workdir) as saved:
            assert step not in saved.steps()
            assert saved.damage(step).startswith("is an unfinished save: SHA256SUMS")
    with pytest.raises(UserError, match="has no intact checkpoint"):
        checkpoints.find(workdir, "last")
    with Checkpoints(tmp_path / "first", keep=7) as saved:
        saved.save(3, state_at(3))
    (tmp_path / "first/checkpoints/3/SHA256SUMS").unlink()
    with Checkpoints(tmp_path / "first", keep=7) as saved:
        assert saved.steps() == []
        saved.save(3, state_at(7))
        saved.wait()
        assert_equal(saved.restore(3, like(state_at(0))), state_at(7))
    assert "3 is an unfinished save" in capsys.readouterr().err
    assert (tmp_path / "first/damaged/3").is_dir()


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


def test_a_damaged_checkpoint_that_is_named_is_refused_with_the_others(workdir):
    (workdir / "checkpoints/4/default/_METADATA").unlink()
    message = (
        f"^{workdir}/checkpoints/4 is damaged: default/_METADATA is missing: take "
        r"last, or one of \[3, 5\]$"
    )
    with pytest.raises(UserError, match=message):
        checkpoints.restore(workdir, "4", like(state_at(0)))


def test_a_checkpoint_of_another_shape_cannot_be_read(workdir):
    with pytest.raises(UserError, match="checkpoints/4 cannot be read: .*; remove it"):
        other = state_at(0).replace(params={"other": jnp.zeros(2)})
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


def test_messages_of_orbax_and_of_its_tasks_are_dropped_and_no_others(
    workdir, monkeypatch
):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    for _ in range(2):
        checkpoints.require(workdir)
    for text in ("Event loop is closed", "another"):
        sys.unraisablehook(SimpleNamespace(exc_value=RuntimeError(text)))
    assert [str(entry.exc_value) for entry in reported] == ["another"]

    def passes(logger, path, message):
        record = logging.LogRecord(logger, 40, path, 1, message, (), None)
        return bool(logging.getLogger(logger).filter(record))

    assert not passes("absl", "/lib/orbax/checkpoint/save.py", "failed")
    assert passes("absl", "/lib/flax/orbax.py", "failed")
    retrieved = "exception was never retrieved"
    for kind in ("Task", "Future"):
        message = f"{kind} {retrieved}\nfuture: <{kind}>"
        assert not passes("asyncio", "/lib/tasks.py", message)
    assert passes("asyncio", "/lib/tasks.py", f"another\n{retrieved}")
