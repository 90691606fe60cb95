"""Tests of the code that a run records: its commit, and what differs from it."""

import json
import os
import subprocess

import pytest

from training import runtime

IDENTITY = {
    f"GIT_{role}_{part}": "x@y"
    for role in ("AUTHOR", "COMMITTER")
    for part in ("NAME", "EMAIL")
}


def git(root, *command):
    environ = {**os.environ, **IDENTITY}
    return subprocess.check_output(["git", *command], cwd=root, env=environ, text=True)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small clone, in the place of this one."""
    files = {
        ".gitignore": "runs/\n*_private.py\n",
        "README.md": "text\n",
        "train.py": "import attention.scores\n",
        "attention/__init__.py": "",
        "attention/scores.py": "scale = 3\n",
        "training/runtime.py": "",
    }
    for name, text in files.items():
        write(tmp_path / "clone" / name, text)
    root = tmp_path / "clone"
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message=first")
    monkeypatch.setattr(runtime, "_ROOT", root)
    return root


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def head(root):
    return git(root, "rev-parse", "HEAD")[:10]


CHANGED = {
    "attention/scores.py": "scale = 5\n",
    "attention/deep/wide.py": "width = 7\nné = '/'",  # without a line end
    "attention/new/__init__.py": "",
    "experiment.py": "x = 1\n",
}


@pytest.mark.parametrize("staged", [False, True])
def test_the_changes_are_a_patch_that_makes_the_code_again(root, tmp_path, staged):
    for name, text in CHANGED.items():
        write(root / name, text)
    unstaged = runtime.changes()
    if staged:
        git(root, "add", ".")
    assert runtime.commit() == head(root) + "+changes"
    assert runtime.changes() == unstaged
    git(tmp_path, "clone", "--quiet", str(root), "copy")
    write(tmp_path / "patch", unstaged.decode())
    git(tmp_path / "copy", "apply", str(tmp_path / "patch"))
    for path in root.rglob("*.py"):
        copy = tmp_path / "copy" / path.relative_to(root)
        assert copy.read_bytes() == path.read_bytes()


def test_a_difference_that_git_cannot_compute_is_a_change(root):
    write(root / "attention/scores.py", "scale = 5\n")
    write(root / ".git/info/attributes", "*.py filter=missing\n")
    git(root, "config", "filter.missing.clean", "false")
    git(root, "config", "filter.missing.required", "true")
    assert runtime.commit() == head(root) + "+changes"


def test_a_deleted_and_a_renamed_file_are_changes(root):
    (root / "attention/scores.py").rename(root / "attention/score.py")
    text = runtime.changes().decode()
    assert "--- a/attention/scores.py\n+++ /dev/null\n" in text
    assert "--- /dev/null\n+++ b/attention/score.py\n" in text
    assert runtime.commit() == head(root) + "+changes"


def test_a_new_package_is_a_change(root):
    write(root / "environment/lib/package/__init__.py", "")  # in no package of the root
    assert runtime.changes() == b""
    write(root / "extras/__init__.py", "")
    write(root / "extras/scores.py", "x = 1\n")
    text = runtime.changes().decode()
    assert "+++ b/extras/scores.py\n" in text and "environment" not in text


def test_what_git_ignores_and_what_is_not_code_are_no_changes(root):
    for name in (
        "attention/my_private.py",
        "runs/a/config.py",
        "notebooks/scratch.py",  # in no folder of the code
        "attention/notes.txt",
    ):
        write(root / name, "x = 1\n")
    write(root / "README.md", "other text\n")
    os.utime(root / "train.py")
    assert runtime.changes() == b""
    assert runtime.commit() == head(root)


def test_other_changes_have_another_patch(root):
    patches = set()
    for text in ("scale = 5\n", "scale = 7\n", "scale = 7"):
        write(root / "attention/scores.py", text)
        patches.add(runtime.changes())
    write(root / "experiment.py", "x = 1\n")
    patches.add(runtime.changes())
    write(root / "experiment.py", "x = 2\n")
    patches.add(runtime.changes())
    assert len(patches) == 5


def test_settings_of_git_do_not_change_the_patch(root):
    write(root / "attention/scores.py", "scale = 5\n")
    write(root / "experiment.py", "x = 1\n")
    before = runtime.changes()
    for setting in (
        "color.ui=always",
        "diff.noprefix=true",
        "diff.mnemonicPrefix=true",
        "diff.external=false",
        "diff.context=7",
        "core.abbrev=5",
        "status.showUntrackedFiles=no",
    ):
        git(root, "config", *setting.split("="))
    assert runtime.changes() == before != b""


def test_a_run_keeps_its_changes_of_bounded_size(root, tmp_path, monkeypatch):
    write(root / "attention/scores.py", "scale = 5\n")
    runtime.record_environment(tmp_path)
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["commit"] == head(root) + "+changes"
    assert (tmp_path / "changes.diff").read_bytes() == runtime.changes()
    monkeypatch.setattr(runtime, "_MAX_CHANGES", 101)
    runtime.record_environment(tmp_path)
    start, end = (tmp_path / "changes.diff").read_bytes()[:101], b"cut here, 101 of "
    assert start == runtime.changes()[:101]
    assert end in (tmp_path / "changes.diff").read_bytes()[101:]
    git(root, "checkout", "--quiet", ".")
    runtime.record_environment(tmp_path)
    assert not (tmp_path / "changes.diff").exists()
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["commit"] == head(root)


@pytest.mark.parametrize("missing", ["repository", "git"])
def test_code_without_git_has_no_commit(missing, tmp_path, monkeypatch):
    write(tmp_path / "train.py", "")
    monkeypatch.setattr(runtime, "_ROOT", tmp_path)
    if missing == "git":
        monkeypatch.setenv("PATH", "")
    assert (runtime.commit(), runtime.changes()) == ("", b"")
