"""Packed examples of short trainings, for the live figures of docs/."""

import itertools
import re
import shlex

import pytest
from pages import attention, content, points, tokens, unpack

from base.errors import UserError
from explorer import examples, page
from results import live
from results.live import LIVE, Live
from training import configuration
from training.task import Task


def test_each_example_is_packed_and_on_a_page(monkeypatch):
    monkeypatch.chdir(live.ROOT)
    texts = [path.read_text("utf-8") for path in live.ROOT.glob("docs/**/*.md")]
    comments = re.findall(r"<!-- explorer: (\w+)[ \w=-]* -->", "".join(texts))
    packed = {path.stem for path in live.FOLDER.glob("*.zlib")}
    assert set(comments) == packed == set(LIVE)


@pytest.mark.parametrize(
    "path", sorted(live.FOLDER.glob("*.zlib")), ids=lambda path: path.stem
)
def test_examples_have_commands_for_a_clone_and_mark_rounded_weights(path):
    header, _ = unpack(page.html_of(path.read_bytes()))
    for example in header["examples"]:
        words = shlex.split(example["command"])
        workdirs = [x for x in words if x.startswith(("--workdir=", "--compare="))]
        assert len(workdirs) > 1
        folders = {x.partition("=")[2].rpartition("/")[0] for x in workdirs}
        assert folders == {"runs/live"}
        for moment in itertools.chain(*example["results"]):
            for each in moment["maps"]:
                assert each["rounded"] == ("rounded to 1/255" in each["note"])


def test_the_trainings_of_the_examples_have_valid_configs(monkeypatch):
    monkeypatch.chdir(live.ROOT)
    for each in LIVE.values():
        for command in live.commands(each):
            words = shlex.split(command)
            config = words[2].removeprefix("--config=")
            overrides = [word.removeprefix("--config.") for word in words[4:]]
            configuration.check(configuration.read(config, overrides), Task)


def test_an_example_has_its_commands_and_few_moments(tmp_path, monkeypatch):
    (tmp_path / "runs/live/example/checkpoints").mkdir(parents=True)  # it is trained
    monkeypatch.setattr(live, "ROOT", tmp_path)
    monkeypatch.setattr(live, "FOLDER", tmp_path / "live")
    monkeypatch.setattr(live, "_MOMENTS", 3)
    example = content([attention(tokens(3), tokens(4))]).examples[0]
    answers = [[example.answers[0][0]._replace(text=f"{i}") for i in range(5)]]
    examples_ = [example._replace(answers=answers)] * 2
    answered = examples.Examples(examples_, ["example"], list("abcde"))
    monkeypatch.setattr(examples, "of_split", lambda *_, **__: answered)
    given = Live("example", ("bahdanau_nmt:smoke",), 2, "A title")
    header, _ = unpack(page.html_of(live.make(given).read_bytes()))
    assert header["title"] == "A title" and len(header["examples"]) == 2
    assert header["steps"] == ["a", "c", "e"]
    packed = header["examples"][1]
    assert [x["text"] for x in packed["results"][0]] == ["0", "2", "4"]
    assert packed["command"].splitlines() == [*live.commands(given), example.command]
    monkeypatch.setattr(live, "LIMIT", 10)
    with pytest.raises(UserError, match="at most 10"):
        live.make(given)


def test_an_unknown_example_is_refused():
    with pytest.raises(UserError, match="nothing: must be one of bahdanau_nmt"):
        live.main(["nothing"])


def test_a_live_figure_follows_the_switch_of_the_site(browser, tmp_path):
    (tmp_path / "figure.html").write_text(page.html(content([points()]), ""))
    style = (live.ROOT / "docs/_static/site.css").read_text()
    figure = '<figure class="live"><iframe src="figure.html"></iframe></figure>'
    site = f'<style>{style}</style><body data-theme="auto">{figure}'
    (tmp_path / "site.html").write_text(site)
    with browser.new_page(color_scheme="null") as opened:  # that of the system
        opened.goto(f"file://{tmp_path}/site.html")
        (frame,) = opened.main_frame.child_frames
        frame.wait_for_selector("body[data-ready]")
        for chosen in ("light", "dark", "light"):
            opened.evaluate("x => { document.body.dataset.theme = x; }", chosen)
            frame.wait_for_function("x => theme() === x", arg=chosen)
