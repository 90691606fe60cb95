"""Figures drawn again from stored arrays, and the figures of docs/."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from smoke import run

from base.errors import UserError
from figures import charts, drawings, heatmaps, strips
from results import figures, tables
from results.families import FIGURES
from results.records import ROOT
from tasks.algorithmic import figures as sequences
from tasks.captioning.task import Details
from tasks.pointing import figures as geometry
from tasks.speech.figures import aligned_spectrogram
from training import trained
from training.task import NoOptions, Prediction

FOLDER = ROOT / "docs/figures"
STORED = sorted(path.stem for path in FOLDER.glob("*.npz"))


def texts(path):
    """The texts of a figure: titles, axes, labels."""
    with Image.open(path) as image:
        return json.loads(image.info.get("Texts", "[]"))


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


RNG = np.random.default_rng(0)
WEIGHTS = RNG.dirichlet(np.ones(7), (2, 5)).round(3)
CALLS = {
    "heat map": (
        heatmaps.attention_heatmaps,
        {"weights": WEIGHTS, "rows": "abcde", "columns": list("ABCDEFG")}
        | {"panels": ["x", "y"], "marks": np.full((2, 5), 2.5)},
    ),
    "tour": (
        geometry.pointing,
        {"points": RNG.random((3, 2)).round(2), "truth": [range(3)]}
        | {"predicted": [(2, np.int64(0), 1)], "weights": np.eye(4)},
    ),
    "captions": (
        strips.caption_strips,
        {"image": np.full((9, 9, 3), 7, np.uint8), "references": ["a cat"]}
        | {"strips": [strips.Strip(["a", "dog"], np.ones((2, 3, 3)), label="soft")]},
    ),
    "images": (
        strips.image_grid,
        {"images": np.full((2, 3, 5, 5, 3), 9, np.uint8), "names": ["a", "b"]},
    ),
    "spectrogram": (
        aligned_spectrogram,
        {"spectrogram": np.ones((20, 5)), "weights": WEIGHTS[0], "frames": 2}
        | {"characters": list("hello"), "seconds": 0.02},
    ),
    "sequence": (
        sequences.sequence_maps,
        {"panels": {"bits": np.eye(5), "error": -np.eye(5)}, "signed": {"error"}},
    ),
    "chart": (
        charts.fit,
        {"points": {"p": (np.arange(3), np.arange(3.0))}, "axis_titles": ("x", "y")}
        | {"curves": {"c": ([0, 1], [0.5, 0.25])}},
    ),
    "lines": (
        charts.lines,
        {"series": {"a": {"1": [3.0, 2.0], "2": [1.0]}, "b": {"1": [2.5]}}}
        | {"axis_title": "g", "value_title": "v", "notes": None},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_stored_figure_is_drawn_again_with_the_same_pixels(name, tmp_path):
    function, arguments = CALLS[name]
    with drawings.recorded() as calls:
        function(**arguments, title="A title", path=tmp_path / "a.png")
    (call,) = calls
    assert call.path == tmp_path / "a.png" and "path" not in call.arguments
    drawings.store(call, tmp_path / "a.npz")
    with drawings.recorded():
        drawings.redraw(tmp_path / "a.npz", tmp_path / "b.png")
    first, again = tmp_path / "a.png", tmp_path / "b.png"
    np.testing.assert_array_equal(pixels(first), pixels(again))
    assert any("A title" in text for text in texts(first))
    assert texts(first) == texts(again)


def test_texts_are_written_only_while_calls_are_recorded(tmp_path):
    function, arguments = CALLS["heat map"]
    path = function(**arguments, title="A title", path=tmp_path / "a.png")
    assert texts(path) == []


@pytest.mark.parametrize("name", STORED)
def test_a_figure_of_the_docs_has_the_texts_of_the_code(name, tmp_path):
    with drawings.recorded():
        drawings.redraw(FOLDER / f"{name}.npz", tmp_path / "a.png")
    assert texts(FOLDER / f"{name}.png"), "run `python -m results.figures`"
    assert texts(tmp_path / "a.png") == texts(FOLDER / f"{name}.png")
    assert (FOLDER / f"{name}.npz").stat().st_size < 300_000


def test_the_figures_of_results_have_the_texts_of_the_code(tmp_path):
    drawn = tables.draw(root=tmp_path)
    assert len(drawn) == len(FIGURES)
    for path in drawn:
        assert texts(path), "run `python -m results.tables`"
        assert texts(FOLDER / path.name) == texts(path), path.name


def test_every_figure_of_the_docs_has_a_source():
    stored = [each.name for each in figures.SHOWN]
    results = [Path(figure.file).stem for figure in FIGURES]
    assert len(set(stored)) == len(stored)
    inputs = {"scene", "shapes"}  # of commands
    assert {*stored, *results, *inputs} == {x.stem for x in FOLDER.glob("*.png")}
    assert set(STORED) <= set(stored)
    minutes = [each.minutes for each in figures.SHOWN]
    assert minutes == sorted(minutes)


OF_SPLITS = [x for x in figures.SHOWN if not x.line and len(x.runs) == 1]


@pytest.mark.parametrize("figure", OF_SPLITS, ids=lambda figure: figure.name)
def test_a_run_draws_the_figure_that_is_kept(figure):
    config = figure.training.partition(" ")[0].partition(":")[0]
    drawn = {path.stem for path in (run(config) / "figures").rglob("*.png")}
    name = Path(figure.figure).stem.replace("test", "validation")
    assert re.sub(r"\d+", "1", name) in {re.sub(r"\d+", "1", x) for x in drawn}


def test_the_arrays_of_a_run_are_kept_and_its_figures_drawn(tmp_path):
    workdir = shutil.copytree(run("kernel_regression"), tmp_path / "kernels")
    (tmp_path / "docs/figures").mkdir(parents=True)
    paths = figures.keep([workdir], tmp_path)
    assert [path.name for path in paths] == ["kernels.png", "kernels_attention.png"]
    again = figures.redraw(tmp_path, tmp_path / "again")
    for path, other in zip(paths, again, strict=True):
        assert texts(path) == texts(other)
        assert any("test split" in text for text in texts(path))


def test_a_run_that_no_figure_shows_is_refused(tmp_path):
    with pytest.raises(UserError, match="^--from is nothing: must be named kernels, "):
        figures.keep([tmp_path / "nothing"], tmp_path)


def test_captioners_are_compared_on_the_first_image(tmp_path, monkeypatch):
    images = [np.full((7, 5, 3), n, np.uint8) for n in (11, 13)]
    examples = [SimpleNamespace(image=x, captions=("A fox.",)) for x in images]

    def load(workdir):
        strip = strips.Strip([workdir.name], np.ones((1, 2, 3)))

        def answers(state, given, options):
            return [Prediction("", 0.0, details=Details(x, strip)) for x in given]

        task = SimpleNamespace(EvaluationOptions=NoOptions, answers=answers)
        task.examples = lambda split, full: {split: examples}
        return SimpleNamespace(task=task, state=None)

    monkeypatch.setattr(trained, "load", load)
    with drawings.recorded() as calls:
        figures._compare([Path("soft"), Path("hard")], tmp_path / "x.png")
    (call,) = calls
    np.testing.assert_array_equal(call.arguments["image"], images[0])
    assert [x.label for x in call.arguments["strips"]] == ["soft", "hard"]
    assert call.arguments["references"] == ["a fox"]
