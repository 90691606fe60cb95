"""Tests that every bad input of the catalogue ends in its line, and loses nothing.

The commands run in this process, except for a few that show what a shell sees. Healthy
runs are loaded once each. No command may train or start a process.
"""

import functools
import os
import re
import shutil
import subprocess
import sys

import bad_files
import bad_inputs
import pytest
from bad_inputs import CASES
from in_process import call
from smoke import ROOT

from training import loop, runtime, trained

NEW = "runs/new"  # the run directory that most commands of train.py name


@pytest.fixture(scope="module")
def folder(tmp_path_factory, quick_compilation):
    """A folder with the files and runs that the commands name."""
    path = tmp_path_factory.mktemp("bad_inputs")
    bad_files.write(path)
    return path


@pytest.fixture
def here(folder, monkeypatch):
    """The folder as the working directory of commands in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")  # too late to create more
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


def complaints(case, result, folder):
    """Differences between the result of a case and what it should be."""
    pattern = ".*".join(map(re.escape, case.line.split("...")))
    entry, *_ = case.parse()
    reads_data = case.kind.startswith(("Own", "Data"))  # which needs a run directory
    checks = {
        "the exit status is 0": result.status != 0,
        "a traceback": "Traceback" not in result.errors,
        "not one line": result.errors.count("\n") == 1,
        "another line": re.fullmatch(pattern, result.errors.rstrip("\n")),
        "something is printed": not result.output,
        "a run directory is created": reads_data or not (folder / NEW).exists(),
    }
    return [
        f"{case.command}\n  {text}: {result.errors}"
        for text, holds in checks.items()
        if not holds
    ]


@pytest.mark.parametrize("kind", CASES)
def test_a_bad_input_ends_in_one_line_and_changes_nothing(kind, here):
    before, faults = snapshot(here), []
    for case in CASES[kind]:
        entry, arguments, stdin = case.parse()
        faults += complaints(case, call(entry, *arguments, stdin=stdin), here)
        shutil.rmtree(here / NEW, ignore_errors=True)
    assert not faults, "\n".join(faults)
    assert snapshot(here) == before


def test_the_catalogue_is_large_and_has_no_case_twice():
    commands = [case.command for cases in CASES.values() for case in cases]
    assert len(commands) >= 500
    assert len(set(commands)) == len(commands)
    assert len(CASES) >= 15


@pytest.mark.parametrize("entry", ["train.py", "eval.py", "predict.py", "results.make"])
def test_a_shell_sees_one_line_and_status_1(entry, folder):
    cases = (case for cases in CASES.values() for case in cases)
    case = next(case for case in cases if case.parse()[0] == entry)
    _, arguments, stdin = case.parse()
    command = [str(ROOT / entry)] if entry.endswith(".py") else ["-m", entry]
    process = subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=folder,
        input=stdin,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert process.returncode == 1 and not process.stdout
    assert process.stderr.decode() == f"{case.line}\n"


def test_a_healthy_command_is_no_complaint(here):
    result = call("predict.py", "--workdir=runs/kernel_regression", stdin=b"2.5\n\n")
    assert result.status == 0 and result.output.count("\n") == 2
    case = bad_inputs.Case("", "python predict.py", "error: none")
    assert len(complaints(case, result, here)) == 4


def test_the_page_is_written_from_the_catalogue():
    assert bad_inputs.PAGE.read_text("utf-8") == bad_inputs.page(), (
        "python tests/bad_inputs.py writes it"
    )


def test_a_catalogue_is_read_by_class():
    text = "# One\n$ python a.py x\nerror: y\n\n# Two\n$ python -m b <<< 'c d'\nz\n"
    (first,), (second,) = bad_inputs.read(text).values()
    assert first.parse() == ("a.py", ["x"], b"") and first.line == "error: y"
    assert second.parse() == ("b", [], b"c d\n") and second.kind == "Two"
