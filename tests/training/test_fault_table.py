"""Tests of the table of faults, and its short form."""

import re
import shutil

import fault_table
import numpy as np
import pytest

from training import loop

ROWS = [f"| {name} | " for name in fault_table.FAULTS]


def rows(text):
    return [x for x in text.splitlines() if x.startswith("|")][2:]


def lost(row, start):
    """Number of tries and the losses in a row of the table."""
    assert row.startswith(start)
    return row.removeprefix(start).removesuffix(" |").split(" | ")


def allowed(start):
    """Losses that a fault may have."""
    mount = "|not tried: no permission to mount" * ("full disk" in start)
    return f"nothing{mount}"


def test_the_page_has_each_fault():
    text = fault_table.PAGE.read_text("utf-8")
    assert text == fault_table.page(rows(text))
    for row, start in zip(rows(text), ROWS, strict=True):
        tries, losses = lost(row, start)
        assert int(tries) > 0 and re.fullmatch(allowed(start), losses)


@pytest.mark.jobs
def test_a_few_tries_of_each_fault_lose_nothing(tmp_path):
    page = tmp_path / "faults.md"
    fault_table.main(["--short", f"--page={page}"])
    text = page.read_text("utf-8")
    assert text == fault_table.page(rows(text), short=True)
    for row, start in zip(rows(text), ROWS, strict=True):
        assert re.fullmatch(allowed(start), lost(row, start)[1]), row


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with a seed of 0, and its content."""
    workdir = tmp_path_factory.mktemp("trained") / "run"
    loop.train(fault_table.config_of(30), workdir)
    return workdir, fault_table.content(workdir)


def test_equal_runs_differ_in_nothing(trained, tmp_path):
    loop.train(fault_table.config_of(30), tmp_path / "run")
    assert fault_table.lost(tmp_path / "run", trained[1]) == ""


def test_each_difference_is_reported(trained, tmp_path):
    workdir, reference = trained
    steps, state, log = reference
    other = state.replace(params=state.params | {"bias": state.params["bias"] + 1e-7})
    assert np.any(other.params["bias"] != state.params["bias"])
    lost = fault_table.lost
    assert lost(workdir, (steps, other, log)) == "the last state differs"
    assert lost(workdir, (steps, state, log[1:])) == "rows of metrics.jsonl differ"
    assert lost(workdir, (steps[1:], state, log)).startswith("checkpoints [")
    copy = shutil.copytree(workdir, tmp_path / "run")
    (copy / "checkpoints" / "40.tmp").mkdir()
    assert lost(copy, reference) == "left behind: 40.tmp"
    (copy / "checkpoints" / "40.tmp").rmdir()
    for step in steps:
        shutil.rmtree(copy / "checkpoints" / str(step))
    assert lost(copy, reference).startswith("the run cannot be read: ")


def test_a_row_tells_tries_and_losses():
    line = fault_table.line
    assert line("fire", 3, ["", "", ""]) == "| fire | 3 | nothing |"
    expected = "| fire | 3 | **2 of 3**: step; row |"
    assert line("fire", 3, ["step", "", "row"]) == expected
    assert line("fire", 0, []) == "| fire | 0 | not tried: no permission to mount |"
