"""Figures that compare captioners."""

import functools

import jax
import matplotlib.figure
import pytest
from photos import files

from base.errors import UserError
from configs.transformer_nmt import get_config as translator
from results import compare_captions
from training import trained
from training.task import create


@functools.cache
def untrained(folder, variant):
    """An untrained captioner."""
    config = files(folder)
    config.evaluation.batch_size, config.evaluation.beam = 2, 1
    if variant == "hard":
        config.model.alignment = "hard"
    elif variant == "small":
        config.data.size = 32
    task = create(config, folder / variant, training=True)
    state = task.objective.init(jax.random.key(0))
    return trained.Run(config, task, state, "last")


@pytest.fixture
def load(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "images"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(trained, "load", lambda run: untrained(folder, run.name))


def test_a_figure_has_the_captions_of_every_run(load, tmp_path, monkeypatch):
    drawn = []
    savefig = matplotlib.figure.Figure.savefig
    monkeypatch.setattr(
        matplotlib.figure.Figure,
        "savefig",
        lambda self, *args, **kwargs: (
            drawn.append(self) or savefig(self, *args, **kwargs)
        ),
    )
    arguments = ["soft", "hard", "--images", "2", "5", "--to", str(tmp_path)]
    paths = compare_captions.main(arguments)
    assert [path.name for path in paths] == ["captions_2.png", "captions_5.png"]
    for figure, number in zip(drawn, (2, 5), strict=True):
        images = {
            axes.get_title(): axes.images[0].get_array()
            for axes in figure.axes
            if axes.get_title() in ("soft", "hard")
        }
        assert list(images) == ["soft", "hard"]
        assert all((x[..., 0] == 20 * (number - 1)).all() for x in images.values())


def test_runs_that_cannot_be_compared_are_refused(load, tmp_path, monkeypatch):
    with pytest.raises(
        UserError, match="^small: must have the same test images as soft$"
    ):
        compare_captions.main(["soft", "small", "--to", str(tmp_path)])
    with pytest.raises(UserError, match=r"image 99: must be in 1\.\."):
        compare_captions.main(["soft", "--images", "99", "--to", str(tmp_path)])
    config = translator()
    run = trained.Run(config, None, None, "last")
    monkeypatch.setattr(trained, "load", lambda folder: run)
    with pytest.raises(UserError, match="^run: must be the run of a captioner$"):
        compare_captions.main(["run", "--to", str(tmp_path)])
