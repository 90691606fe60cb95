"""Assets of a run: written once, verified when they are read, compared when resumed."""

import shutil
from types import SimpleNamespace

import pytest
import recordings
from PIL import Image
from user_data import TASKS

from base import asset_files, manifest
from base.errors import UserError
from training.task import create


def edit(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def add_class(folder):
    shutil.copytree(folder / "cats", folder / "ants")


# Changes of the data: the asset that the error names, and the change.
CHANGES = [
    ("translation", "model", lambda x: edit(x / "train.de", "ein", "kein")),
    ("translation", "validation.json", lambda x: edit(x / "validation.en", "one", "1")),
    ("translation", "test.json", lambda x: edit(x / "test.de", "und", "oder")),
    ("captions", "model", lambda x: edit(x / "train.json", "3 of 9", "three of 9")),
    ("captions", "files", lambda x: edit(x / "test.json", "3 of 9", "three of 9")),
    ("captions", "files", lambda x: Image.new("RGB", (40, 40)).save(x / "v3.png")),
    ("running text", "model", lambda x: edit(x / "train.txt", "a ran", "a walked")),
    ("running text", "test.txt", lambda x: edit(x / "test.txt", "c d", "d c")),
    ("sentences", "", lambda x: edit(x / "train.txt", "film 3", "film three")),
    ("sentences", "", lambda x: edit(x / "test.txt", "yes\tthe", "yes\ta")),
    ("sentences", "", lambda x: [edit(y, "yes\t", "yea\t") for y in x.iterdir()]),
    ("stories", "train.txt", lambda x: edit(x / "train.txt", "bar", "inn")),
    ("stories", "test.txt", lambda x: edit(x / "test.txt", "the bar", "a bar")),
    ("speech", "characters", lambda x: edit(x / "train.txt", "bee", "fee")),
    ("speech", "files", lambda x: edit(x / "test.txt", "bee", "abc")),
    ("speech", "files", lambda x: recordings.write(x / "1.wav", 7)),
    (
        "recognition",
        "classes",
        lambda x: [edit(y, "\tb", "\tc") for y in x.glob("*.txt")],
    ),
    ("recognition", "files", lambda x: edit(x / "test.txt", "2.png\ta", "2.png\tb")),
    (
        "questions about images",
        "vocabulary",
        lambda x: edit(x / "questions.json", "exactly", "then"),
    ),
    (
        "questions about images",
        "files",
        lambda x: edit(x / "annotations.json", '"no"', '"not"'),
    ),
    (
        "questions about images",
        "files",
        lambda x: edit(x / "annotations.json", '"number"', '"other"'),
    ),
    ("few shots", "files", lambda x: shutil.copytree(x / "B", x / "AB")),
    ("few shots", "files", lambda x: (x / "L").rename(x / "M")),
    ("few shots", "files", lambda x: shutil.copy(x / "B/0.png", x / "C/0.png")),
    ("images", "classes", add_class),
    (
        "images",
        "files",
        lambda x: Image.new("RGB", (16, 16)).save(x / "cats" / "0.png"),
    ),
    (
        "images",
        "files",
        lambda x: Image.new("RGB", (16, 16)).save(x / "cats" / "9.png"),
    ),
]


@pytest.fixture
def run(request, tmp_path, monkeypatch):
    """A run with a checkpoint, on a user's data, of the parameter `name`."""
    monkeypatch.setattr(
        "tasks.captioning.frozen.parameters", lambda: None
    )  # a download
    data, workdir = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    config = TASKS[request.getfixturevalue("name")](data)
    create(config, workdir, training=True)
    (workdir / "checkpoints" / "7").mkdir(parents=True)
    return SimpleNamespace(config=config, data=data, workdir=workdir)


def contents(workdir):
    return {path.name: path.read_bytes() for path in (workdir / "assets").iterdir()}


@pytest.mark.parametrize(("name", "asset", "change"), CHANGES)
def test_a_run_with_a_checkpoint_refuses_changed_data(name, asset, change, run):
    before = contents(run.workdir)
    change(run.data)
    with pytest.raises(UserError, match="^the data are not those that ") as error:
        create(run.config, run.workdir, training=True)
    assert asset in str(error.value) and "\n" not in str(error.value)
    assert contents(run.workdir) == before
    shutil.rmtree(run.workdir / "checkpoints")
    create(run.config, run.workdir, training=True)  # begins again
    assert contents(run.workdir) != before
    create(run.config, run.workdir, training=False)


@pytest.mark.parametrize("name", TASKS)
def test_damage_of_any_asset_is_noticed_and_training_mends_it(name, run):
    before, folder = contents(run.workdir), run.workdir / "assets"
    assert manifest.NAME in before
    for asset, content in before.items():
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        for damaged in (bytes(flipped), content[:-1], b"", None):
            if damaged is None:
                (folder / asset).unlink()
            else:
                (folder / asset).write_bytes(damaged)
            with pytest.raises(UserError, match=f"damaged .*{asset}") as error:
                create(run.config, run.workdir, training=False)
            assert "\n" not in str(error.value)
            if damaged in (None, flipped):
                create(run.config, run.workdir, training=True)
                assert contents(run.workdir) == before
    create(run.config, run.workdir, training=False)
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=f"{folder}/.* is missing: restore it"):
        create(run.config, run.workdir, training=False)


@pytest.mark.parametrize("name", ["sentences", "stories"])
def test_runs_without_their_manifest_refuse_changed_data(name, run):
    (run.workdir / "assets" / manifest.NAME).unlink()
    before = contents(run.workdir)
    path = run.data / "train.txt"
    path.write_text(path.read_text() * 2)
    with pytest.raises(UserError, match="; or remove the file if it is damaged$"):
        create(run.config, run.workdir, training=True)
    assert contents(run.workdir) == before


def test_damage_that_training_cannot_mend_is_refused(tmp_path):
    folder = tmp_path / "assets"
    asset_files.write(folder / "a.txt", "a")
    asset_files.write(folder / "b.txt", "b")
    asset_files.seal(folder)
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    (folder / "b.txt").write_text("c")
    asset_files.write(folder / "a.txt", "a")
    with pytest.raises(UserError, match=r"assets is damaged \(b.txt differs from SHA"):
        asset_files.seal(folder)
    assert (folder / "b.txt").read_text() == "c"


def test_an_asset_that_the_run_lacks_is_added(tmp_path):
    folder = tmp_path / "assets"
    asset_files.write(folder / "a.txt", "a")
    asset_files.seal(folder)
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    asset_files.write(folder / "b.txt", b"b")
    asset_files.seal(folder)
    assert [*manifest.read(folder)] == ["a.txt", "b.txt"]
