"""Which checkpoints of a folder count, are intact and are the best."""

import errno
import json
import os
from pathlib import Path

import faults
import pytest

from base import manifest
from base.errors import UserError
from training.checkpoint_folder import CheckpointFolder

METRICS = "metrics/metrics"


@pytest.fixture
def folder(tmp_path):
    return CheckpointFolder(tmp_path)


def save(folder, step, *, complete=True, **metrics):
    """Writes a checkpoint with one file besides its metrics."""
    path = folder.path / str(step)
    (path / "metrics").mkdir(parents=True)
    (path / METRICS).write_text(json.dumps(metrics))
    (path / "state").write_text(f"state {step}")
    if complete:
        manifest.write(path)


def damage(folder, step, name="state"):
    (folder.path / str(step) / name).write_text("damaged")


def left(folder):
    return sorted(int(path.name) for path in folder.path.iterdir())


def test_a_folder_that_does_not_exist_has_no_checkpoints(folder):
    folder.set_damaged_aside()
    assert not folder.has_steps()
    assert folder.steps() == folder.planned() == []
    assert folder.best() is None
    assert not folder.path.exists()


def test_messages_name_the_folder_as_given_and_files_are_found_from_elsewhere(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = CheckpointFolder("run")
    save(folder, 3)
    monkeypatch.chdir(os.sep)
    assert str(folder.name) == "run/checkpoints"
    assert folder.steps() == [3]


def test_steps_are_the_complete_checkpoints_and_those_older_than_manifests(folder):
    save(folder, 2, complete=False)
    for step in (11, 9, 101):
        save(folder, step)
    save(folder, 10, complete=False)
    save(folder, 103, complete=False)
    for name in ("7.tmp", ".removed_5", "13x", "default"):
        (folder.path / name).mkdir()
    assert folder.steps() == [2, 9, 11, 101]
    assert folder.has_steps()


def test_a_checkpoint_that_announces_a_manifest_counts_only_with_it(folder, capsys):
    save(folder, 2, complete=False)
    save(folder, 3, complete=False, manifest=1.0)
    save(folder, 5, manifest=1.0)
    assert folder.steps() == [2, 5]
    assert folder.damage(3) == "is an unfinished save: SHA256SUMS is missing"
    assert folder.damage(2) == folder.damage(5) == ""
    (folder.path / "5" / manifest.NAME).unlink()
    (folder.path / "2" / METRICS).write_text("{")  # may be older than manifests
    folder = CheckpointFolder(folder.path.parent)
    assert folder.steps() == [2]
    assert folder.damage(5) == "is an unfinished save: SHA256SUMS is missing"


def test_a_run_whose_only_checkpoint_is_unfinished_begins_again(folder, capsys):
    save(folder, 3, complete=False, manifest=1.0)
    with pytest.raises(UserError, match="3 is an unfinished save: SHA256SUMS is miss"):
        folder.newest()
    folder.set_damaged_aside()
    aside = folder.path.parent / "damaged"
    assert not folder.has_steps() and (aside / "3" / "state").exists()
    assert capsys.readouterr().err == (
        f"warning: {folder.name}/3 is an unfinished save: SHA256SUMS is missing: moved "
        f"to {aside}, begun again\n"
    )
    for step in (5, 7):
        save(folder, step, complete=False, manifest=1.0)
    with pytest.raises(UserError, match="no intact checkpoint"):
        folder.set_damaged_aside()
    assert left(folder) == [5, 7]


@pytest.fixture
def refusing(monkeypatch):
    """Makes a call of the operating system fail for some paths."""

    def refuse(call, number, folder):
        original = getattr(Path, call)

        def fail(path, *arguments, **keywords):
            paths = [path, *(x for x in arguments if isinstance(x, Path))]
            if any(x.is_relative_to(folder) for x in paths):
                raise OSError(number, os.strerror(number), str(path))
            return original(path, *arguments, **keywords)

        monkeypatch.setattr(Path, call, fail)

    return refuse


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("replace", errno.EXDEV),  # another file system
        ("replace", errno.EACCES),  # of another user
        ("replace", errno.ENOTEMPTY),
        ("mkdir", errno.ENOSPC),
        ("mkdir", errno.EROFS),
    ],
)
def test_a_damaged_checkpoint_that_cannot_leave_the_folder_is_renamed(
    call, number, folder, refusing, capsys
):
    for step in (3, 5, 7):
        save(folder, step)
    for step in (5, 7):
        damage(folder, step)
    aside = folder.path.parent / "damaged"
    refusing(call, number, aside)
    folder.set_damaged_aside()
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {folder.name}/{step} is damaged: state differs from SHA256SUMS: "
        f"renamed to .damaged_{step} ({aside}: {os.strerror(number)}), step 3 is used "
        "instead"
        for step in (7, 5)
    ]
    assert folder.steps() == [3] and folder.newest() == 3
    for step in (5, 7):  # damaged again
        assert (folder.path / f".damaged_{step}" / "state").read_text() == "damaged"
        save(folder, step)
        damage(folder, step, METRICS)
    folder = CheckpointFolder(folder.path.parent)
    folder.set_damaged_aside()
    assert folder.steps() == [3]
    assert (folder.path / ".damaged_5" / "state").read_text() == "state 5"


def test_an_unfinished_checkpoint_that_cannot_leave_the_folder_is_renamed(
    folder, refusing, capsys
):
    save(folder, 3, complete=False, manifest=1.0)
    refusing("replace", errno.EPERM, folder.path.parent / "damaged")
    folder.set_damaged_aside()
    assert not folder.has_steps()
    line = capsys.readouterr().err
    assert "renamed to .damaged_3 (" in line and line.endswith("), begun again\n")


def test_a_damaged_checkpoint_that_cannot_be_renamed_is_named_without_a_promise(
    folder, refusing, capsys
):
    for step in (3, 5):
        save(folder, step)
    damage(folder, 5)
    refusing("replace", errno.EPERM, folder.path.parent)
    message = (
        "5 is not intact and cannot be moved: Operation not permitted; move it away to "
        "use an earlier checkpoint$"
    )
    with pytest.raises(UserError, match=message):
        folder.set_damaged_aside()
    assert not capsys.readouterr().err
    assert left(folder) == [3, 5]


def test_only_names_of_steps_are_checkpoints_that_were_being_replaced(folder):
    save(folder, 7)
    names = [".replaced_x", ".replaced_", ".replaced_-3", ".replaced_5.tmp"]
    for name in names:
        (folder.path / name).mkdir()
    save(folder, 5)
    (folder.path / "5").replace(folder.path / ".replaced_5")
    folder.set_damaged_aside()
    assert folder.steps() == [5, 7]
    folder.remove_old(1)
    assert {path.name for path in folder.path.iterdir()} == {*names, "5", "7"}


def test_only_incomplete_checkpoints_are_also_checkpoints(folder):
    save(folder, 7, complete=False)
    assert folder.has_steps()
    save(folder, 5)
    (folder.path / "5" / manifest.NAME).write_text("")
    assert folder.has_steps()


def test_planned_leaves_out_stops_and_damaged_metrics(folder):
    save(folder, 3)
    save(folder, 5, unplanned=1.0)
    save(folder, 7, score=0.5)
    save(folder, 11)
    damage(folder, 11, METRICS)
    assert folder.planned() == [3, 7]


def test_sums_are_those_that_were_saved(folder):
    save(folder, 3, sums={"loss": [2.0, 5.0]})
    save(folder, 5, score=0.5)
    assert folder.sums(3) == {"loss": [2.0, 5.0]}
    assert folder.sums(5) == folder.sums(7) == {}


def test_the_newest_intact_checkpoint_is_used_and_the_others_are_named(folder, capsys):
    for step in (3, 5, 7, 11):
        save(folder, step)
    damage(folder, 7)
    damage(folder, 11)
    assert folder.newest() == 5
    assert capsys.readouterr().err == "".join(
        f"warning: {folder.name}/{step} is damaged: state differs from SHA256SUMS: "
        "step 5 is used instead\n"
        for step in (11, 7)
    )


def test_without_an_intact_checkpoint_all_are_named(folder):
    for step in (3, 5):
        save(folder, step)
        damage(folder, step)
    message = (
        "checkpoints has no intact checkpoint (5 is damaged: state differs from "
        "SHA256SUMS; 3 is damaged: state differs from SHA256SUMS): restore the files "
        "from a copy, or name another --workdir"
    )
    with pytest.raises(UserError) as caught:
        folder.newest()
    assert str(caught.value).endswith(message)
    assert folder.advice([5]) == "take last, or one of [3]"


def test_the_best_has_the_highest_score_and_is_the_last_of_equals(folder):
    for step, score in enumerate((0.25, 0.5, -0.75, 0.5), 1):
        save(folder, step, score=score)
    save(folder, 5)
    assert folder.best() == 4
    damage(folder, 4)
    assert CheckpointFolder(folder.path.parent).best() == 2


def test_a_checkpoint_of_unknown_score_may_have_been_the_best(folder, capsys):
    for step, score in ((3, 0.25), (5, 0.75), (7, 0.5)):
        save(folder, step, score=score)
    damage(folder, 5, METRICS)
    assert folder.best() == 7
    line = capsys.readouterr().err
    assert "5 is damaged: metrics/metrics differs" in line
    assert line.endswith(": step 7 is used instead\n") and line.count("\n") == 1


def test_the_last_are_planned_and_from_the_second_half_of_the_run(folder):
    for step in range(1, 13):
        save(folder, step, **({"unplanned": 1.0} if step in (9, 12) else {}))
    assert folder.last(3) == [8, 10, 11]
    assert folder.last(1) == [11]
    assert folder.last(99) == [6, 7, 8, 10, 11]


def test_half_of_an_even_number_of_steps_belongs_to_the_first_half(folder):
    for step in (4, 5, 8):
        save(folder, step)
    assert folder.last(7) == [5, 8]


def test_without_planned_checkpoints_the_last_are_unplanned(folder):
    for step in (3, 5):
        save(folder, step, unplanned=1.0)
    assert folder.last(2) == [3, 5]


def test_damaged_and_unfinished_checkpoints_are_left_out_of_the_last(folder, capsys):
    for step in (6, 7, 8, 10):
        save(folder, step)
    save(folder, 11, complete=False)
    damage(folder, 8)
    damage(folder, 7, METRICS)
    assert folder.last(2) == [6, 10]
    errors = capsys.readouterr().err
    for step, reason in (
        (11, "is an unfinished save: SHA256SUMS is missing"),
        (8, "is damaged: state differs from SHA256SUMS"),
        (7, "is damaged: metrics/metrics differs from SHA256SUMS"),
    ):
        line = f"{folder.name}/{step} {reason}: it is left out of the mean\n"
        assert line in errors
    assert errors.count("\n") == 3
    for step in (6, 10):
        damage(folder, step)
    with pytest.raises(UserError, match="no intact checkpoint .*; 6 is damaged"):
        CheckpointFolder(folder.path.parent).last(2)


def test_damage_is_named(folder):
    for step in (3, 5, 7, 11):
        save(folder, step)
    save(folder, 2, complete=False, score=0.5)  # older than manifests
    faults.delete(folder.path / "5/state", None)
    damage(folder, 7, manifest.NAME)
    save(folder, 13, complete=False)
    (folder.path / "17").write_text("")
    assert {step: folder.damage(step) for step in (2, 3, 5, 7, 13, 17, 19)} == {
        2: "",
        3: "",
        5: "is damaged: state is missing",
        7: "is damaged: SHA256SUMS is damaged",
        13: "is an unfinished save: SHA256SUMS is missing",
        17: "is a file",
        19: "is missing",
    }


def test_metrics_older_than_manifests_must_be_an_object_or_absent(folder):
    for step in (2, 3, 5):
        save(folder, step, complete=False)
    (folder.path / "2" / METRICS).write_text("[0.5]")
    (folder.path / "3" / METRICS).write_text("{")
    (folder.path / "5" / METRICS).unlink()
    assert folder.damage(2) == "is damaged: metrics/metrics is not an object"
    assert folder.damage(3).startswith("is damaged: Expecting property name")
    assert folder.damage(5) == ""
    assert folder.planned() == [5]


def test_a_file_that_cannot_be_read_is_no_damage(folder, monkeypatch):
    save(folder, 3)

    def denied(path, names=None):
        raise PermissionError(13, "Permission denied", "state")

    monkeypatch.setattr(manifest, "check", denied)
    with pytest.raises(UserError, match="^state: Permission denied$"):
        folder.damage(3)


def test_an_intact_checkpoint_is_read_once(folder, monkeypatch):
    save(folder, 3, score=0.5)
    read = []

    def check(path, names=None, original=manifest.check):
        read.append((path.name, names))
        original(path, names)

    monkeypatch.setattr(manifest, "check", check)
    assert folder.newest() == 3
    assert read[0] == ("3", None)
    read.clear()
    assert folder.best() == 3 and folder.last(1) == folder.planned() == [3]
    assert not read


@pytest.mark.parametrize(
    ("keep", "steps"), [(1, [3, 8, 10, 11]), (2, [3, 7, 8, 10, 11])]
)
def test_the_last_planned_the_best_and_the_newest_two_are_kept(folder, keep, steps):
    for step, score in ((2, 0.75), (3, 0.75), (5, 0.5), (6, 0.25)):
        save(folder, step, score=score)
    faults.delete(folder.path / "5/state", None)  # removed without being verified
    save(folder, 7)
    save(folder, 8)
    save(folder, 10, unplanned=1.0)
    save(folder, 11, unplanned=1.0)
    folder.remove_old(keep)
    assert left(folder) == folder.steps() == steps


def test_without_an_evaluation_no_checkpoint_is_kept_as_the_best(folder):
    for step in (2, 3, 5, 7):
        save(folder, step)
    folder.remove_old(1)
    assert left(folder) == [5, 7]


def test_a_damaged_checkpoint_is_never_removed(folder):
    for step in (2, 3, 5, 7):
        save(folder, step)
    damage(folder, 2, METRICS)
    folder.remove_old(1)
    assert left(folder) == [2, 5, 7]


def test_what_is_newer_than_the_newest_intact_checkpoint_is_set_aside(folder, capsys):
    for step in (3, 5, 7):
        save(folder, step)
    save(folder, 11, complete=False)
    damage(folder, 3)
    damage(folder, 7)
    (folder.path / ".removed_2").mkdir()
    aside = folder.path.parent / "damaged"
    (aside / "7").mkdir(parents=True)
    (aside / "7" / "earlier").write_text("")
    folder.set_damaged_aside()
    assert left(folder) == [3, 5]
    assert sorted(path.name for path in aside.iterdir()) == ["11", "7"]
    assert (aside / "7" / "state").exists() and not (aside / "7" / "earlier").exists()
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == [
        f"moved to {aside}, step 5 is used instead"
    ] * 2
