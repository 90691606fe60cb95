"""Tests that damage to a run directory is noticed, named and survived."""

import asyncio
import contextlib
import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import threading

import faults
import jax
import numpy as np
import pytest
import tensorstore
import toy
from in_process import call
from tensorboardX import record_writer

from base import manifest
from base.errors import UserError
from training import checkpoints, loop
from training.checkpoints import Checkpoints
from training.log import Log, read_rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with the checkpoints 9 and 12, the last and the best."""
    workdir = tmp_path_factory.mktemp("trained") / "run"
    loop.train(toy.get_config(), workdir)
    with Checkpoints(workdir) as saved:
        assert (saved.steps(), saved.best()) == ([9, 12], 12)
    return workdir


@pytest.fixture
def workdir(trained, tmp_path):
    """A copy of the run."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(scope="module")
def like():
    return jax.eval_shape(toy.Toy(toy.get_config()).objective.init, jax.random.key(0))


def restored(workdir, like, which="last"):
    return int(checkpoints.restore(workdir, which, like).step)


def one_line(result):
    """The line of a command that has failed."""
    assert result.status == 1 and not result.output
    assert result.errors.startswith("error: ") and result.errors.count("\n") == 1
    return result.errors


def run(entry, workdir, *flags, **options):
    """Calls an entry point on a run directory."""
    if entry == "train.py":
        flags += ("--config=tests/toy.py",)
    if entry != "predict.py":
        flags += ("--tune_memory=false",)
    return call(entry, f"--workdir={workdir}", *flags, **options)


def train(workdir):
    return run("train.py", workdir)


# --- checkpoints


def test_a_manifest_lists_every_file_of_a_checkpoint(trained):
    folder = trained / "checkpoints" / "12"
    names = [name for name in faults.files(folder) if name != manifest.NAME]
    text = (folder / manifest.NAME).read_text()
    assert [line.split("  ")[1] for line in text.splitlines()[1:]] == names
    command = ["sha256sum", "--check", "--strict", "--quiet", manifest.NAME]
    if shutil.which("sha256sum"):
        assert subprocess.run(command, cwd=folder).returncode == 0


@pytest.mark.parametrize("kind", faults.DAMAGE)
def test_damage_to_any_file_is_named_and_the_checkpoint_before_is_used(
    kind, trained, tmp_path, capsys
):
    for seed, name in enumerate(faults.files(trained / "checkpoints" / "12")):
        path = f"checkpoints/12/{name}"
        workdir = faults.damaged_copy(trained, tmp_path / "run", kind, path, seed)
        assert checkpoints.find(workdir, "last") == 9
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and name in line, (name, line)
        assert line.endswith(": step 9 is used instead\n")


def test_a_damaged_checkpoint_that_is_named_is_refused(workdir, like):
    faults.damage("bit", workdir / "checkpoints/12/default/_METADATA")
    message = r"12 is damaged: default/_METADATA .*: take last, or one of \[9\]"
    with pytest.raises(UserError, match=message):
        restored(workdir, like, "12")
    assert restored(workdir, like, "9") == 9


def test_training_moves_a_damaged_checkpoint_and_repeats_its_steps(
    trained, workdir, like, capsys
):
    name = "default/manifest.ocdbt"
    faults.damage("bit", workdir / "checkpoints/12" / name)
    damaged = (workdir / "checkpoints/12" / name).read_bytes()
    (workdir / "environment.json").write_bytes(b"\xff{")
    assert loop.train(toy.get_config(), workdir) == 0
    errors = capsys.readouterr().err
    moved = f"differs from SHA256SUMS: moved to {workdir}/damaged/12, step 9 is used"
    assert f"12 is damaged: {name} {moved}" in errors
    assert "resuming from step 9 of 12" in errors
    assert (workdir / "damaged/12" / name).read_bytes() == damaged
    assert "versions" in json.loads((workdir / "environment.json").read_text())
    for step in (9, 12):
        jax.tree.map(
            np.testing.assert_array_equal,
            checkpoints.restore(workdir, step, like),
            checkpoints.restore(trained, step, like),
        )


@pytest.mark.slow
def test_training_goes_on_if_damaged_is_another_file_system(workdir):
    if not faults.can_mount():
        pytest.skip("no permission to mount a disk")
    faults.damage("bit", workdir / "checkpoints/12/default/manifest.ocdbt")
    (workdir / "damaged").mkdir()
    command = [sys.executable, "train.py", "--config=tests/toy.py"]
    command += [f"--workdir={workdir}", "--tune_memory=false"]
    states, output = faults.on_small_disk(workdir / "damaged", 500, command)
    assert states == [0], output
    warning, resumed = output[:2]
    assert warning.endswith(
        f": moved to {workdir}/checkpoints/.damaged_12, step 9 is used instead"
    )
    assert resumed == "resuming from step 9 of 12"
    with Checkpoints(workdir) as saved:
        assert saved.steps() == [9, 12] and saved.damage(12) == ""


def test_without_an_intact_checkpoint_nothing_is_lost(workdir):
    for step in (9, 12):
        faults.damage("bit", workdir / f"checkpoints/{step}/default/_METADATA")
    before = {name: (workdir / name).read_bytes() for name in faults.files(workdir)}
    line = one_line(train(workdir))
    assert "has no intact checkpoint (12 is damaged: default/_METADATA differs" in line
    assert "restore the files from a copy, or name another --workdir" in line
    for which in ("last", "best", "average"):
        result = run("eval.py", workdir, f"--checkpoint={which}")
        assert "has no intact checkpoint" in one_line(result)
    assert before == {
        name: (workdir / name).read_bytes() for name in faults.files(workdir)
    }


@pytest.mark.parametrize("which", ["last", "average"])
def test_entry_points_name_a_damaged_checkpoint_and_use_another(which, workdir):
    faults.damage("truncated", workdir / "checkpoints/12/default/manifest.ocdbt")
    evaluation = run("eval.py", workdir, f"--checkpoint={which}")
    assert evaluation.status == 0, evaluation.errors
    assert json.loads(evaluation.output)["step"] == 9
    prediction = run("predict.py", workdir, f"--checkpoint={which}", stdin=b"0.5\n")
    assert prediction.status == 0 and prediction.output == "0.5\n"
    for result in (evaluation, prediction):
        warning = result.errors.splitlines()[0]
        assert "12 is damaged: default/manifest.ocdbt differs from" in warning
    best = run("eval.py", workdir, "--checkpoint=best")
    warning, error = best.errors.splitlines()
    assert best.status == 1 and "12 is damaged" in warning
    assert "has no evaluated checkpoint: take last" in error


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["manifest", "rename"])
def test_a_save_that_fails_does_not_count(place, workdir, like, monkeypatch):
    state = checkpoints.restore(workdir, "last", like)
    failure = r"15 cannot be written: No space left on device; the last .* is step 12, "
    with monkeypatch.context() as patch, pytest.raises(UserError, match=failure):
        with Checkpoints(workdir, keep=2) as saved:
            if place == "manifest":
                patch.setattr(manifest, "write", full_disk)
            else:
                patch.setattr(os, "rename", full_disk)
            saved.save(15, state)
            saved.wait()
    assert restored(workdir, like) == 12
    with Checkpoints(workdir, keep=2) as saved:
        assert saved.steps() == [9, 12]
        saved.save(15, state)
    assert restored(workdir, like, "15") == 12  # the step of the state
    with Checkpoints(workdir) as saved:
        assert saved.steps() == [12, 15]


def test_old_checkpoints_are_removed_only_after_the_next_manifest(
    workdir, like, monkeypatch
):
    state = checkpoints.restore(workdir, "last", like)
    steps = []

    def write(folder, original=manifest.write):
        steps.append(faults.files(folder.parent))
        original(folder)

    monkeypatch.setattr(manifest, "write", write)
    with Checkpoints(workdir, keep=1) as saved:
        saved.save(15, state)
        saved.save(18, state)
    names = {name.partition("/")[0] for name in steps[1]}
    assert {name for name in names if name.isdecimal()} == {"12", "15"}
    with Checkpoints(workdir) as saved:
        assert saved.steps() == [12, 15, 18]  # the best, the one before, the newest


def test_a_reader_goes_on_when_training_removes_a_checkpoint(
    workdir, like, monkeypatch, capsys
):
    folder, read = workdir / "checkpoints", []

    def restore(self, step, like, original=Checkpoints.restore):
        if not read:
            shutil.copytree(folder / "12", folder / "15")
            shutil.rmtree(folder / str(step))
        read.append(step)
        return original(self, step, like)

    monkeypatch.setattr(Checkpoints, "restore", restore)
    assert restored(workdir, like) == 12  # the step of the copied state
    assert read == [12, 15] and not capsys.readouterr().err


@pytest.mark.parametrize(
    "start", [asyncio.ensure_future, lambda task: asyncio.gather(task)]
)
def test_tasks_of_a_failed_save_print_nothing_more(start, workdir, like, caplog):
    async def fail():
        raise OSError("No space left on device")

    async def leave_alone():
        task = start(fail())
        await asyncio.sleep(0.01)
        del task
        gc.collect()

    restored(workdir, like)
    asyncio.run(leave_alone())
    assert not caplog.text


def test_a_write_that_ends_after_a_failed_save_is_not_reported(
    workdir, like, capfd, monkeypatch
):
    async def begin():
        next(future.__await__(), None)

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # not pytest's
    restored(workdir, like)
    promise, future = tensorstore.Promise.new()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    writer = threading.Thread(target=promise.set_result, args=[3])
    writer.start()
    writer.join()
    assert not capfd.readouterr().err


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_reads_that_end_after_a_failed_restore_are_not_reported(workdir, like):
    async def read():
        try:
            await asyncio.sleep(0)
        finally:
            raise ValueError("not compatible with the stored shape")

    restored(workdir, like)
    reading = read()
    reading.send(None)
    del reading
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("kib", [220, 300, 340])
def test_a_full_disk_ends_in_one_line_and_the_run_resumes(kib, tmp_path):
    if not faults.can_mount():
        pytest.skip("no permission to mount a disk")
    training = [
        sys.executable,
        "train.py",
        "--config=tests/toy.py",
        "--config.model.width=400",
        "--config.train_steps=60",
        f"--workdir={tmp_path / 'run'}",
        "--tune_memory=false",
    ]
    larger = f"mount -o remount,size=8m {tmp_path}"
    states, output = faults.on_small_disk(tmp_path, kib, training, larger, training)
    assert states == [1, 0, 0], output
    end = next(i for i, line in enumerate(output) if line.startswith("error: "))
    assert "No space left on device" in output[end]
    odd = [line for line in output[:end] if not line.startswith("step ")]
    assert not odd, odd
    resumed = output[end + 1 :]
    assert resumed[0].startswith("resuming from step ")
    assert resumed[-1].startswith("done: step 60")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_events_on_a_full_disk_end_in_one_error_and_none_at_the_exit(
    rows, tmp_path, monkeypatch
):
    def full(path, original=record_writer.open_file):
        original(path).close()
        return open("/dev/full", "wb")

    monkeypatch.setattr(record_writer, "open_file", full)
    log = Log(tmp_path, start=0, total=rows)
    at_exit = log._board.file_writer.event_writer.close
    with pytest.raises(OSError, match="No space left on device"):
        with contextlib.closing(log):
            for step in range(rows):
                log.row(step, "train", {"loss": 0.5})
    at_exit()
    assert len(read_rows(tmp_path / "metrics.jsonl")) <= rows


# --- metadata


def test_a_torn_last_row_of_the_log_is_dropped_and_other_damage_is_named(workdir):
    path = workdir / "metrics.jsonl"
    rows, content = read_rows(path), path.read_bytes()
    path.write_bytes(content + b'{"step": 1')
    assert read_rows(path) == rows
    for garbage in (
        b"\xff\xfe\0",
        b"[1]",
        b"null",
        b"{}",
        b'{"step": "3"}',
        b"[" * 9**5,
        *(
            b'{"step": 1, "split": "train", "seconds": 1.5, "loss": %s}' % value
            for value in (b"null", b'"a"', b"[1]", b"{}")
        ),
    ):
        path.write_bytes(garbage + b"\n" + content)
        with pytest.raises(UserError, match=f"^{path}:1 is damaged: remove the line,"):
            read_rows(path)
    assert f"{path}:1 is damaged: " in one_line(train(workdir))
    assert path.read_bytes() == garbage + b"\n" + content


def test_a_file_in_the_place_of_a_folder_is_named(workdir):
    places = dict.fromkeys(("checkpoints", "figures", "tensorboard", "assets"), "file")
    files = "metrics.jsonl", "config.json", "environment.json"
    for name, kind in (places | dict.fromkeys(files, "folder")).items():
        path = workdir / name
        path.rename(workdir / "moved")
        path.touch() if kind == "file" else path.mkdir()
        other = {"file": "folder", "folder": "file"}[kind]
        line = one_line(train(workdir))
        assert f"{path} is a {kind}: must be a {other}; move it away" in line
        path.unlink() if kind == "file" else path.rmdir()
        (workdir / "moved").rename(path)
    assert train(workdir).status == 0


ABSENT = object()


@pytest.mark.parametrize("name", ["evaluation", "checkpoints", "mesh"])
def test_a_config_without_a_group_is_refused(name, workdir):
    path = workdir / "config.json"
    config = json.loads(path.read_text())
    del config["sha256"]
    for value in (None, [], "x", -1, {}, ABSENT):
        changed = config | {name: value}
        if value is ABSENT:
            del changed[name]
        path.write_text(json.dumps(changed))
        line = one_line(run("eval.py", workdir))
        assert line.startswith(f"error: config.{name}") and ": must be " in line


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("eval_test.json", "folder"),
        ("answers_test.tsv", "folder"),
        ("figures/test", "file"),
        ("figures/test/map.png", "folder"),
    ],
)
def test_what_an_evaluation_cannot_replace_is_named_before_it(
    name, kind, workdir, monkeypatch
):
    def evaluate(*_):
        raise AssertionError("evaluated")

    monkeypatch.setattr(toy.Toy, "answers", evaluate)
    path = workdir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        path.write_text("")
    other = "file" if kind == "folder" else "folder"
    expected = f"error: {path} is a {kind}: must be a {other}; move it away\n"
    assert one_line(run("eval.py", workdir)) == expected
