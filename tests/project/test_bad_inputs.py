"""Tests that every bad input ends in one line that names it, and loses nothing.

The commands run in this process, except for a few that show what a shell sees. Healthy
runs are loaded once each. No command may train or start a process.
"""

import functools
import os
import shlex
import shutil
import subprocess
import sys

import bad_files
import pytest
from in_process import call
from smoke import ROOT

from training import loop, runtime, trained

NEW = "runs/new"  # the run directory that most commands of train.py name


def read(text):
    """Returns the bad inputs by class: (command, text of the line)."""
    kinds = {}
    for line in text.splitlines():
        if line.startswith("# "):
            kinds[line[2:]] = cases = []
        elif kinds and line:
            cases.append(tuple(line.rsplit(" -> ", 1)))
    return kinds


def parse(command):
    """Returns the entry point of a command, its arguments, and its standard input."""
    first, _, rest = command.partition(" ")
    if first in bad_files.WORDS:
        second, _, others = rest.partition(" ")
        form = bad_files.WORDS[first]
        given = f"{form.replace('{}', second)} {others}"
        return parse(given if "{}" in form else f"{form} {rest}")
    if (ROOT / f"configs/{first}.py").exists():
        config = f"--config=configs/{first}.py:smoke"
        return parse(f"train.py --workdir={NEW} {config} {rest}")
    words = shlex.split(rest)
    end = words.index("<<<") if "<<<" in words else len(words)
    return first, words[:end], "".join(f"{x}\n" for x in words[end + 1 :]).encode()


CASES = read((ROOT / "tests/bad_inputs.txt").read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files and runs that the commands name."""
    path = tmp_path_factory.mktemp("bad_inputs")
    bad_files.write(path)
    return path


@pytest.fixture
def here(folder, monkeypatch):
    """The folder as the working directory of commands in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", "")  # without espeak-ng
    monkeypatch.setattr(runtime, "tune_memory", lambda enabled: None)
    load = functools.cache(trained.load)
    monkeypatch.setattr(
        trained,
        "load",
        lambda path, which=None, fields=(): load(path, which, tuple(fields)),
    )
    refuse(monkeypatch, loop._Run, "steps")
    refuse(monkeypatch, subprocess, "run")
    refuse(monkeypatch, os, "execve")
    return folder


def refuse(monkeypatch, owner, name):
    def refused(*args, **_):
        raise AssertionError(f"{name} was called: {args}")

    monkeypatch.setattr(owner, name, refused)


def snapshot(folder):
    """Sizes and times of all files and links, by path."""
    paths = (path for path in folder.rglob("*") if not path.is_dir())
    status = {str(path): path.lstat() for path in paths}
    return {path: (x.st_size, x.st_mtime_ns) for path, x in status.items()}


def complaints(command, text, result):
    """Differences between the result of a command and what it should be."""
    checks = {
        "the exit status is 0": result.status != 0,
        "a traceback": "Traceback" not in result.errors,
        "not one line": result.errors.count("\n") == 1,
        f"{text} is not in the line": text in result.errors,
        "something is printed": not result.output,
    }
    return [
        f"{command}\n  {complaint}: {result.errors}"
        for complaint, holds in checks.items()
        if not holds
    ]


@pytest.mark.parametrize("kind", CASES)
def test_a_bad_input_ends_in_one_line_and_changes_nothing(kind, here):
    before, faults = snapshot(here), []
    for command, text in CASES[kind]:
        entry, arguments, stdin = parse(command)
        faults += complaints(command, text, call(entry, *arguments, stdin=stdin))
        if (here / NEW).exists() and not kind.startswith(("Data", "Sizes")):
            faults.append(f"{command}\n  a run directory is created")
        shutil.rmtree(here / NEW, ignore_errors=True)
    assert not faults, "\n".join(faults)
    assert snapshot(here) == before


@pytest.mark.parametrize("entry", ["train.py", "eval.py", "predict.py", "results.make"])
def test_a_shell_sees_one_line_and_status_1(entry, folder):
    cases = [(*parse(x), text) for cases in CASES.values() for x, text in cases]
    _, arguments, stdin, text = next(case for case in cases if case[0] == entry)
    command = [str(ROOT / entry)] if entry.endswith(".py") else ["-m", entry]
    process = subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=folder,
        input=stdin,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert process.returncode == 1 and not process.stdout
    assert process.stderr.count(b"\n") == 1 and text in process.stderr.decode()


def test_a_healthy_command_is_no_complaint(here):
    result = call("predict.py", "--workdir=runs/kernel_regression", stdin=b"2.5\n\n")
    assert result.status == 0 and result.output.count("\n") == 2
    assert len(complaints("python predict.py", "--beam", result)) == 4
