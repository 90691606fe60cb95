"""Packed examples of short trainings, for the live figures of docs/."""

import re
import zlib

import pytest
from pages import unpack
from smoke import run

from base.errors import UserError
from explorer import page
from results import live
from results.live import LIVE, Live
from training import configuration, run_directory
from training.task import Task


def test_each_example_is_packed_and_on_a_page(monkeypatch):
    monkeypatch.chdir(live.ROOT)
    texts = [path.read_text("utf-8") for path in live.ROOT.glob("docs/**/*.md")]
    comments = re.findall(r"<!-- explorer: (\w+)[ \w=-]* -->", "".join(texts))
    packed = {path.stem for path in live.FOLDER.glob("*.zlib")}
    assert set(comments) == packed == set(LIVE)


def test_the_trainings_of_the_examples_have_valid_configs(monkeypatch):
    monkeypatch.chdir(live.ROOT)
    for each in LIVE.values():
        for command in live.commands(each):
            words = live.shlex.split(command)
            config = words[2].removeprefix("--config=")
            overrides = [word.removeprefix("--config.") for word in words[4:]]
            configuration.check(configuration.read(config, overrides), Task)


def test_an_example_has_its_commands_and_few_moments(tmp_path, monkeypatch):
    workdir = run("bahdanau_nmt")
    monkeypatch.setattr(live, "FOLDER", tmp_path / "live")
    monkeypatch.setattr(live, "_workdir", lambda *_: workdir)
    monkeypatch.setattr(live, "ROOT", workdir.parent)
    monkeypatch.setattr(live, "_MOMENTS", 2)
    given = Live("example", ("bahdanau_nmt:smoke",), 2, "A title")
    path = live.make(given)
    header, _ = unpack(page.html_of(path.read_bytes()))
    assert header["title"] == "A title" and len(header["examples"]) == 2
    steps = [f"{step:,}" for step in run_directory.steps(workdir)]
    assert header["steps"] == [steps[0], steps[-1]]
    lines = header["examples"][1]["command"].splitlines()
    assert lines == [*live.commands(given), lines[-1]]
    assert all(len(x) == 2 for x in header["examples"][0]["results"])
    monkeypatch.setattr(live, "LIMIT", len(zlib.compress(path.read_bytes())) // 2)
    with pytest.raises(UserError, match="at most"):
        live.make(given)


def test_an_unknown_example_is_refused():
    with pytest.raises(UserError, match="nothing: must be one of bahdanau_nmt"):
        live.main(["nothing"])
