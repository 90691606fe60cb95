"""Damaged audio and image files of a user, and files of operating systems."""

import json
import os

import numpy as np
import pytest
import soundfile
from PIL import Image
from user_data import TASKS

from base.errors import UserError
from tasks.common import user_files
from tasks.common.user_files import UserFiles
from tasks.images import data as images
from tasks.speech import audio
from training.task import create

DOUBLE = {"subtype": "DOUBLE"}
NOISE = np.random.default_rng(0).uniform(-0.3, 0.3, 4001)


def cut(count):
    return lambda path: path.write_bytes(path.read_bytes()[:-count])


def test_audio_of_another_format_is_refused(tmp_path):
    for format in ("AIFF", "RF64", "W64", "AU"):  # of which a cut file can be read
        path = recording(tmp_path / f"a.{format}", format=format)
        with pytest.raises(UserError, match="not a WAV, FLAC or Ogg file"):
            audio.read(path)


@pytest.mark.parametrize("damaged", ["refuse", "leave_out"])
def test_a_link_that_leads_nowhere_is_a_damaged_file(tmp_path, damaged):
    (tmp_path / "none.wav").symlink_to(tmp_path / "nowhere.wav")
    (tmp_path / "round.wav").symlink_to(tmp_path / "round.wav")
    paths = [recording(tmp_path / "a.wav"), *tmp_path.glob("[nr]*.wav")]
    files = UserFiles(audio.read, "audio", damaged)
    if damaged == "refuse":
        with pytest.raises(UserError, match="wav cannot be read: .*leave_out leaves"):
            files.check(paths, "a list")
    else:
        files.check(paths, "a list")
        assert [path for path in paths if files.uses(path)] == paths[:1]


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def recording(path, scale=1.0, **options):
    soundfile.write(path, scale * NOISE, 8000, **options)
    return path


def image(path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


# --- damage


@pytest.mark.parametrize(
    ("name", "options", "damage"),
    [
        ("a.ogg", {}, half),
        ("a.ogg", {}, cut(300)),
        ("a.wav", {}, half),
        ("a.wav", {}, cut(1)),
        ("a.wav", {"subtype": "FLOAT"}, cut(40)),
        ("a.wav", {"subtype": "PCM_24", "format": "WAVEX"}, half),
        ("a.flac", {}, cut(1)),
        ("a.wav", DOUBLE, lambda x: recording(x, 1e160, **DOUBLE)),
        ("a.wav", DOUBLE, lambda x: recording(x, np.inf, **DOUBLE)),
    ],
)
def test_damaged_audio_is_refused_at_the_start(tmp_path, name, options, damage):
    path = recording(tmp_path / name, **options)
    (tmp_path / "list.tsv").write_text(f"{name}\tone\n")
    lists = dict.fromkeys(("train", "validation", "test"), str(tmp_path / "list.tsv"))
    assert len(audio.Files(lists, cepstra=5, rate=8000).examples()) == 3
    damage(path)
    with pytest.raises(
        UserError, match=f"^transcripts .*list.tsv: audio .*{name} "
    ) as e:
        audio.Files(lists, cepstra=5, rate=8000).examples()
    assert "\n" not in str(e.value)
    assert str(e.value).endswith(
        "config.data.damaged=leave_out leaves out damaged files"
    )


def test_a_wav_file_of_unknown_length_is_read(tmp_path):
    path = recording(tmp_path / "a.wav")
    content = bytearray(path.read_bytes())
    start = content.index(b"data") + 4
    content[start : start + 4] = b"\xff" * 4  # as written to a pipe
    path.write_bytes(content)
    assert len(audio.read(path)[0]) == len(NOISE)


def test_channels_whose_mean_is_infinite_are_refused(tmp_path):
    samples = np.full((800, 2), 1.7e308)
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype="DOUBLE")
    with pytest.raises(UserError, match="a.wav has samples that are too large for"):
        audio.cepstra(tmp_path / "a.wav", 5, 8000)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.bmp"])
def test_a_cut_image_is_refused_at_the_start(tmp_path, name):
    for folder in ("dogs", "cats"):
        (tmp_path / folder).mkdir()
        path = image(tmp_path / folder / name)
    assert len(images.folder(tmp_path, 8).labels) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.common.images._MAX_BYTES", 0)  # images are read on access
        half(path)
        with pytest.raises(UserError, match=f"image .*cats/{name} cannot be read: "):
            images.folder(tmp_path, 8)


def test_one_line_names_the_first_damaged_file_and_counts_the_others(tmp_path):
    def decode(path):
        if path.stem != "2":
            raise UserError(f"{path.name} is damaged")

    paths = [tmp_path / f"{number}.wav" for number in range(5)]
    for path in paths:
        path.touch()
    with pytest.raises(UserError) as error:
        UserFiles(decode, "test").check(paths, "list")
    assert str(error.value) == (
        "list: 0.wav is damaged, and 3 more files are damaged; "
        "config.data.damaged=leave_out leaves out damaged files"
    )


# --- each file is decoded once


def test_a_file_is_decoded_again_only_if_its_content_changes(tmp_path):
    decoded = []

    def decode(path):
        decoded.append(path.name)
        if path.read_text() == "damaged":
            raise UserError(f"{path.name} is damaged")

    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text("intact")

    def check(damaged="refuse"):
        files = UserFiles(decode, "test", damaged)
        files.check(paths, str(tmp_path))
        again, decoded[:] = sorted(decoded), []
        return again, [path.name for path in paths if files.uses(path)]

    assert check() == (["a", "b", "c"], ["a", "b", "c"])
    assert check() == ([], ["a", "b", "c"])
    os.utime(paths[0], (1, 1))  # a copy of the data
    assert check() == ([], ["a", "b", "c"])
    paths[1].write_text("damaged")
    assert check("leave_out") == (["b"], ["a", "c"])
    with pytest.raises(UserError, match="b is damaged"):
        check()
    assert not decoded
    os.utime(paths[1], (7, 7))
    assert check("leave_out") == ([], ["a", "c"])
    paths[1].write_text("mended")
    assert check() == (["b"], ["a", "b", "c"])


@pytest.mark.parametrize("content", ["{", "[]", '{"x": 7}', '{"x": [7]}', "null"])
def test_a_damaged_memory_is_not_used(tmp_path, monkeypatch, content):
    monkeypatch.setenv("ATTENTION_DATA", str(tmp_path / "cache"))
    path = recording(tmp_path / "a.wav")
    for _ in range(2):
        UserFiles(audio.read, "test").check([path], "list")
        (memory,) = (tmp_path / "cache").glob("files-*.json")
        assert str(path) in json.loads(memory.read_text())
        memory.write_text(content.replace("x", str(path)))


def test_decoding_many_files_shows_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(user_files, "_SECONDS", 0.0)
    paths = [recording(tmp_path / f"{number}.wav") for number in range(3)]
    UserFiles(audio.read, "test").check(paths, "list")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"data: {n} of 3 files decoded: list" for n in (1, 2, 3)]


# --- files that are left out


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("speech", ["1.wav"]),
        ("captions", ["4.png", "v0.png", "t8.png"]),
        ("images", ["cats/1.png", "dogs/0.png"]),
        ("recognition", ["0.png"]),
        ("questions about images", ["images/COCO_val2014_000000000007.png"]),
        ("few shots", ["A/0.png", "C/1.png"]),
    ],
)
def test_a_run_leaves_out_the_files_that_were_damaged_when_it_began(
    tmp_path, monkeypatch, capsys, name, damaged
):
    monkeypatch.setattr(
        "tasks.captioning.frozen.parameters", lambda: None
    )  # a download
    data, workdir = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    config = TASKS[name](data)
    paths = [data / name for name in damaged]
    intact = {path: path.read_bytes() for path in paths}
    for path in paths:
        half(path)
    with pytest.raises(UserError, match="config.data.damaged=leave_out leaves out"):
        create(config, workdir, training=True)
    config.data.damaged = "leave_out"
    create(config, workdir, training=True)
    line = f"data: {len(paths)} damaged files left out, see {workdir}/assets/files.json"
    assert line in capsys.readouterr().err.splitlines()
    asset = workdir / "assets" / "files.json"
    before = asset.read_text()
    assert json.loads(before)["left_out"] == sorted(map(str, paths))
    (workdir / "checkpoints" / "7").mkdir(parents=True)
    for change in (lambda x: x.unlink(), lambda x: x.write_bytes(intact[x])):
        for path in paths:
            change(path)
        create(config, workdir, training=True)
        task = create(config, workdir, training=False)
        assert asset.read_text() == before
    flipped = before.replace(str(paths[0]), str(paths[0]).replace("data", "dat`"))
    for damage in (asset.unlink, lambda: asset.write_text(flipped)):
        for path in paths:
            half(path)
        damage()
        create(config, workdir, training=True)
        assert asset.read_text() == before
        for path in paths:
            path.write_bytes(intact[path])
    sizes = {
        "speech": lambda: len(task.data.held_out("test")),
        "captions": lambda: len(task.data.photos("test")),
        "images": lambda: len(task.images.labels),
        "recognition": lambda: len(task.objects("test").labels),
        "questions about images": lambda: len(task.data.questions("test")),
        "few shots": lambda: task._read()["test"].images.shape[1],
    }
    counts = {"speech": 2, "captions": 8, "images": 4, "recognition": 2}
    counts |= {"questions about images": 1, "few shots": 3}
    assert sizes[name]() == counts[name]
    other = next(x for x in sorted(data.rglob("*2.*")) if x.suffix in (".wav", ".png"))
    half(other)  # damaged since
    with pytest.raises(UserError, match=f"{other.name} .*restore from a copy$"):
        create(config, workdir, training=True)


@pytest.mark.parametrize("name", [x for x in TASKS if x not in ("images", "few shots")])
def test_text_with_nul_bytes_is_refused(tmp_path, name):
    config = TASKS[name](tmp_path)
    for path in (x for x in tmp_path.iterdir() if x.suffix in (".txt", ".en", ".json")):
        content = path.read_bytes()
        path.write_bytes(content[:-5] + bytes(5))  # not written to its end
        with pytest.raises(UserError) as error:
            create(config, tmp_path / "run", training=True)
        assert "\n" not in str(error.value)
        path.write_bytes(content)


# --- files of operating systems

SYSTEM = (".DS_Store", "._1.png", "._cats", "Thumbs.db", "desktop.ini", "thumbs.db")


def test_files_of_operating_systems_are_no_images(tmp_path, capsys):
    for folder in ("cats", "dogs"):
        (tmp_path / folder).mkdir()
        image(tmp_path / folder / "1.png")
    for folder in (tmp_path, tmp_path / "cats", tmp_path / "dogs"):
        for name in SYSTEM:
            (folder / name).write_text("not an image")
    (tmp_path / "__MACOSX" / "cats").mkdir(parents=True)
    loaded = images.folder(tmp_path, 8)
    assert loaded.names == ("cats", "dogs") and loaded.labels.tolist() == [0, 1]
    assert "left out" not in capsys.readouterr().err
