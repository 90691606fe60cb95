"""Data and task of recognition."""

import gzip
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from states import stepped, task_of

from base.errors import UserError
from base.records import GlimpseRecord, SampleRecord
from configs import dram_digits
from configs.ram_digits import get_config
from tasks.recognition import data as recognition
from tasks.recognition import task as task_module
from tasks.recognition.data import SIDE, Layout, Objects
from tasks.recognition.task import Recognition, rewards_to_go
from training.task import Evaluation, NoOptions, Stacked, create

CANVAS, COUNT = 41, 23


@pytest.fixture(scope="module")
def drawn():
    return recognition.read("drawn")


def test_drawn_digits_are_legible_and_the_same_in_each_call(drawn):
    assert [len(x.labels) for x in drawn.values()] == [3600, 400, 1000]
    again = recognition._drawn(7)
    np.testing.assert_array_equal(again.values, recognition._drawn(9).values[:7])
    for objects in drawn.values():
        assert set(objects.labels) == set(range(10))
        assert (objects.values.max((1, 2)) > 200).all()
    # A digit is closer to the mean image of its class than to most others.
    train, test = drawn["train"], drawn["test"]
    flat = test.values.reshape(len(test.labels), -1).astype(float)
    means = np.stack([train.values[train.labels == c].mean(0) for c in range(10)])
    distance = ((flat[:, None] - means.reshape(10, -1)) ** 2).sum(-1)
    assert (distance.argmin(-1) == test.labels).mean() > 0.6


def test_splits_share_no_image(drawn):
    texts = {name: {x.tobytes() for x in part.values} for name, part in drawn.items()}
    assert texts["train"].isdisjoint(texts["test"] | texts["validation"])


def canvases(objects, clutter, seed=0):
    rng, chosen = np.random.default_rng(seed), np.arange(COUNT)[:, None]
    return recognition.place(rng, objects, chosen, Layout(side=CANVAS, clutter=clutter))


def windows(image):
    """The parts of a canvas that have the size of an object, by row and column."""
    return np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE))


def test_an_object_is_somewhere_on_its_black_canvas(drawn):
    objects = drawn["test"]
    batch, tops = canvases(objects, 0), set()
    assert batch["image"].shape == (COUNT, CANVAS, CANVAS, 1)
    np.testing.assert_array_equal(batch["label"][:, 0], objects.labels[:COUNT])
    for image, value in zip(batch["image"][..., 0], objects.values, strict=False):
        places = np.argwhere((windows(image) == value).all((2, 3)))
        assert len(places) and image.sum() == value.sum()
        tops.add(tuple(places[0]))
    assert len(tops) > COUNT / 2


def test_clutter_only_adds_patches_of_other_images(drawn):
    objects = drawn["test"]
    plain = Objects(objects.values.copy(), objects.labels)
    plain.values[COUNT:] = 0
    for clutter in (1, 3):
        # The same random numbers: with black patches, the object alone is left.
        bright = canvases(objects, clutter)["image"]
        dark = canvases(Objects(plain.values, plain.labels), clutter)["image"]
        assert (bright >= dark).all()
        changed = (bright != dark).sum((1, 2, 3))
        assert changed.any() and changed.max() <= clutter * 8 * 8


def test_a_canvas_of_the_size_of_the_images_is_the_image(drawn):
    objects = drawn["test"]
    batch = recognition.held_out(objects, "test", 5, Layout())
    np.testing.assert_array_equal(batch["image"][..., 0], objects.values[:5])


def test_held_out_canvases_are_always_the_same_and_differ_by_split(drawn):
    layout = Layout(side=CANVAS, clutter=2)
    first, again, other = (
        recognition.held_out(drawn["test"], split, 7, layout)["image"]
        for split in ("test", "test", "validation")
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("split", ["train", "test"])
def test_canvases_are_moved_in_both_directions(drawn, split):
    objects, shift, layout = drawn[split], 3, Layout(side=CANVAS)
    if split == "train":
        still, moved = (
            recognition.batches(objects, layout, batch_size=COUNT, seed=0, shift=n)[5]
            for n in (0, shift)
        )
    else:
        still, moved = (
            recognition.held_out(objects, split, COUNT, layout, shift=n)
            for n in (0, shift)
        )
    np.testing.assert_array_equal(moved["label"], still["label"])
    steps = set()
    for before, after in zip(still["image"], moved["image"], strict=True):
        padded = np.pad(before, ((shift, shift), (shift, shift), (0, 0)))
        steps |= {
            (i - shift, j - shift)
            for i, j in np.ndindex(*2 * [2 * shift + 1])
            if (padded[i : i + CANVAS, j : j + CANVAS] == after).all()
        }
    assert {-shift, 0, shift} <= {i for i, _ in steps} | {j for _, j in steps}
    # A part of a batch has the rows of the whole.
    source = recognition.batches(objects, layout, batch_size=24, seed=0, shift=shift)
    part = source.part(5, (1,), 2)["image"]
    np.testing.assert_array_equal(part, source[5]["image"][12:])


@pytest.mark.parametrize("answer", ["objects", "sum"])
def test_objects_are_asked_for_from_left_to_right(drawn, answer):
    objects, side = drawn["test"], 89
    layout = Layout(side=side, objects=3, answer=answer)
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(objects.labels), (COUNT, 3))
    batch = recognition.place(rng, objects, chosen, layout)
    numbers = set()
    for image, label, row in zip(
        batch["image"][..., 0], batch["label"], chosen, strict=True
    ):
        rest = image.copy()
        lefts = []
        for number in row:
            parts, value = windows(image), objects.values[number]
            places = [
                (x, y)
                for y, x in np.argwhere((parts >= value).all((2, 3)))
                if (parts[y, x] == value).mean() > 0.99
            ]
            if not places:
                break
            x, y = places[0]
            lefts.append(x)
            rest[y : y + SIDE, x : x + SIDE] = 0
        assert not rest.any() and lefts == sorted(lefts)
        names = objects.labels[row[: len(lefts)]]
        numbers.add(len(lefts))
        expected = [names.sum()] if answer == "sum" else [*names, *[10] * 4][:4]
        np.testing.assert_array_equal(label, expected)
    assert numbers == {1, 2, 3}
    assert layout.outputs == batch["label"].shape[1]
    assert batch["label"].max() < layout.labels_count(10)


def test_rewards_count_the_correct_answers_up_to_the_first_mistake():
    correct = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 0]], np.float32)
    expected = [[3, 2, 1], [1, 0, 0], [0, 0, 0], [2, 1, 0]]
    np.testing.assert_array_equal(rewards_to_go(jnp.asarray(correct)), expected)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("rewarded", ["likelihood", "correct"])
def test_each_location_is_rewarded_for_its_answer(in_order, rewarded, monkeypatch):
    images, answers, glimpses = 5, 3, 2
    config = (dram_digits.get_config if in_order else get_config)("smoke")
    config.loss.rewarded = rewarded
    task = object.__new__(Recognition)
    task.config, task.model = config, SimpleNamespace(in_order=in_order, classes=4)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(images, answers, 4)).astype(np.float32)
    label = logits.argmax(-1)  # correct, but for two answers
    label[1, 1] = label[2, 0] = logits[1, 1].argmin()
    draws = rng.normal(size=(2, images, answers * glimpses)).astype(np.float32)

    def apply(params, *_, train):
        sample = SampleRecord(params[1], jnp.zeros_like(params[1]), params[2])
        return params[0], {"reinforce": {"sample": (sample,)}}

    monkeypatch.setattr(task, "_apply", apply)
    batch = {"image": None, "label": jnp.asarray(label)}
    gradient = jax.grad(lambda x: task.loss(x, batch, None, None)[0])
    slopes, density, baseline = gradient((jnp.asarray(logits), *draws))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(slopes, p - np.eye(4)[label], atol=1e-6)
    logs = np.log(np.take_along_axis(p, label[..., None], -1))[..., 0]
    right = logits.argmax(-1) == label
    for image, n in np.ndindex(images, answers * glimpses):
        k = n // glimpses
        if rewarded == "likelihood":
            gains = logs[image] + np.log(4)  # over a guess of four classes
            reward = gains[k] if in_order else gains.sum()
        else:
            reward = right[image].all()
            if in_order:
                reward = sum(right[image, : i + 1].all() for i in range(k, answers))
        expected = reward - draws[1, image, n]
        np.testing.assert_allclose(density[image, n], -expected, atol=1e-5)
        np.testing.assert_allclose(baseline[image, n], -2 * expected, atol=1e-5)


def idx(folder, name, values, header):
    path = folder / f"{name}.gz"
    path.write_bytes(gzip.compress(bytes(header) + values.tobytes()))


def test_fashion_is_read_from_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr(recognition, "_FASHION", tmp_path)
    message = r"train-images-idx3-ubyte\.gz cannot be read .*: `apt-get install dataset"
    with pytest.raises(UserError, match=message):
        recognition._fashion()
    rng = np.random.default_rng(0)
    sizes = {"train": 6007, "t10k": 11}
    images = {k: rng.integers(0, 256, (n, 28, 28), np.uint8) for k, n in sizes.items()}
    labels = {k: rng.integers(0, 10, n).astype(np.uint8) for k, n in sizes.items()}
    for part in sizes:
        idx(tmp_path, f"{part}-images-idx3-ubyte", images[part], 16)
        idx(tmp_path, f"{part}-labels-idx1-ubyte", labels[part], 8)
    splits = recognition._fashion()
    np.testing.assert_array_equal(splits["train"].values, images["train"][:7])
    np.testing.assert_array_equal(splits["validation"].labels, labels["train"][7:])
    np.testing.assert_array_equal(splits["test"].values, images["t10k"])
    assert len(recognition.names("fashion")) == 10


@pytest.mark.network
def test_mnist_has_500_digits_of_each_class():
    parts = recognition.read("mnist").values()
    labels = np.concatenate([x.labels for x in parts])
    assert np.bincount(labels).tolist() == [500] * 10
    assert all(x.values.max() == 255 for x in parts)


def test_one_batch_is_learned(tmp_path):
    config = get_config("smoke")
    config.model.update(
        {"hidden": 64, "glimpse_hidden": 32, "glimpse_width": 64, "size": 14}
    )
    config.data.update({"side": SIDE, "clutter": 0})
    config.optimizer.update(
        {"schedule": "constant", "learning_rate": 3e-3, "clip": 0.0}
    )
    task = task_of(config, tmp_path)
    state, batch = jax.jit(task.objective.init)(jax.random.key(0)), task.train_data()[0]
    state, _ = stepped(task, state, [batch] * 300)
    logits, _ = task.outputs(state, batch, False)  # at the mean locations
    np.testing.assert_array_equal(logits.argmax(-1), batch["label"])


def test_the_reward_is_that_of_a_correct_answer(task, state):
    batch, rng = task.train_data()[0], jax.random.key(3)
    _, (count, metrics) = task.loss(state.params, batch, rng, state)
    wrong, _ = metrics["training_error"]
    reward = 1 - float(wrong) / 100 / float(count)
    error, number = metrics["baseline_error"]
    assert number == count * (task.model.glimpses - 1)
    assert 0 <= reward <= 1 and error > 0


def test_an_image_file_is_recognised_and_drawn(task, state, tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(np.arange(50 * 60, dtype=np.uint8).reshape(50, 60)).save(path)
    example = task.parse(str(path), NoOptions())
    side = task.config.data.side
    assert example["image"].shape == (side, side, 1)
    (answer,) = task.answers(state, [example], attention=True)
    prediction = task.show(example, answer)
    assert prediction.text in recognition.names("drawn") and prediction.score < 0
    assert prediction.caption == prediction.text  # no label is known
    assert task.draw(prediction, "x", tmp_path / "y.png") == tmp_path / "y.png"
    with pytest.raises(UserError, match="^image nothing: no such file"):
        task.parse("nothing", NoOptions())
    assert Path(tmp_path / "y.png").exists()


def test_the_label_is_shown_and_glimpses_have_the_names_of_their_answers(
    tmp_path, monkeypatch
):
    task = task_of(dram_digits.get_config("smoke"), tmp_path)
    example = task.examples("test")["test"][0]
    outputs, each = task.layout.outputs, task.model.glimpses
    record = GlimpseRecord(
        np.zeros((outputs * each, 2)), size=task.model.size, scales=1
    )
    label = task._text(example["label"])
    for best, text in ([4, 7, 10], "4 7"), ([10, 4, 7], "(empty)"):
        logits = np.eye(task.model.classes)[best[:outputs]]
        prediction = task.show(example, (logits, [record]))
        assert prediction.caption == f"{text}, label: {label}"
    (glimpses,) = prediction.attention
    answers = [k + 1 for k in range(outputs) for _ in range(each)]
    names = [f"glimpse {t}, answer {k}" for t, k in enumerate(answers, 1)]
    assert glimpses.keys == glimpses.queries == names
    drawn = []
    monkeypatch.setattr(task_module, "caption_strips", lambda *x, **_: drawn.append(x))
    task.draw(prediction, "x", tmp_path / "y.png")
    ((_, (strip,), title, _),) = drawn
    assert strip.words == names and title == f"x: (empty), label: {label}"


# --- a user's images


def write_image(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (50, 70), value).save(path)  # 21 of 30 columns


def own_images(config, files, **fields):
    config.data.update({"source": "files", "clutter": 0, "side": 30, **fields})
    config.data.files.update({split: str(path) for split, path in files.items()})
    return config


def test_a_folder_of_each_class_is_read_and_predicted_without_it(tmp_path):
    for name, value in (("cat", 30), ("sea lion", 90)):
        for number in range(7):
            write_image(tmp_path / "data" / name / f"{number}.png", value + number)
    config = own_images(get_config("smoke"), {"train": tmp_path / "data"})
    task = task_of(config, tmp_path / "run")
    assert task.names == ("cat", "sea lion") and task.layout.outputs == 1
    parts = [task.objects(split) for split in ("train", "validation", "test")]
    assert [len(part.labels) for part in parts] == [12, 1, 1]
    assert len(np.unique(np.concatenate([x.values[:, 0, 9] for x in parts]))) == 14
    assert not parts[0].values[:, :, [0, 3, -4, -1]].any()
    batch = task.train_data()[0]
    assert batch["image"].shape == (8, 30, 30, 1)
    np.testing.assert_array_equal(batch["label"][:, 0], batch["image"][:, 0, 9, 0] > 60)
    again = create(config, tmp_path / "run", training=False).examples("test")["test"]
    np.testing.assert_array_equal(again.arrays["label"], parts[2].labels)
    write_image(tmp_path / "x.png", 35)
    # Another draw of the splits would test on images of the training.
    write_image(tmp_path / "data/cat/7.png", 37)
    changed = create(config, tmp_path / "run", training=False)
    with pytest.raises(UserError, match="^the data are not those that .*files.json"):
        changed.examples("test")
    shutil.rmtree(tmp_path / "data")
    task = create(config, tmp_path / "run", training=False)
    state = jax.jit(task.objective.init)(jax.random.key(0))
    example = task.parse(str(tmp_path / "x.png"), NoOptions())
    (answer,) = task.answers(state, [example])
    assert task.show(example, answer).text in task.names
    with pytest.raises(UserError, match="data: No such file or directory"):
        task.examples("test")


def test_a_list_names_the_objects_from_left_to_right(tmp_path):
    lines = {"a": "7", "b": "3 7", "c": "e\u0301  3"}  # composed in the names
    for number, name in enumerate(lines):
        write_image(tmp_path / "images" / f"{name}.png", 40 * number)
    text = "".join(f"images/{x}.png\t{label}\n" for x, label in lines.items())
    (tmp_path / "list.tsv").write_text(text, "utf-8")
    files = dict.fromkeys(("train", "validation", "test"), tmp_path / "list.tsv")
    config = own_images(dram_digits.get_config("smoke"), files, min_objects=1)
    task = task_of(config, tmp_path / "run")
    assert task.names == ("3", "7", "\u00e9")
    batch = task.examples("test")["test"].arrays
    np.testing.assert_array_equal(batch["label"], [[1, 3, 3], [0, 1, 3], [2, 0, 3]])
    np.testing.assert_array_equal(batch["image"][:, 7, 11, 0], [0, 40, 80])
    assert [task._text(x) for x in batch["label"]] == ["7", "3 7", "\u00e9 3"]
    answers = np.array([[1, 3, 0], [0, 1, 3], [2, 1, 3]])  # one after a stop, one wrong
    outputs = Stacked((np.eye(4)[answers], []))
    evaluation = Evaluation("test", {}, {"test": Stacked(batch)}, {"test": outputs})
    scores = task.score(None, evaluation)
    assert scores == pytest.approx({"error": 100 / 3, "wrong": 100 / 8})
    (tmp_path / "list.tsv").write_text(f"{text}images/a.png\t7 7 7\n", "utf-8")
    with pytest.raises(UserError, match="a.png has 3 objects: must have .*objects=2$"):
        create(config, tmp_path / "other", training=True)
    (tmp_path / "list.tsv").write_text(text.replace("7", "8"), "utf-8")
    task = create(config, tmp_path / "run", training=False)
    with pytest.raises(UserError, match="^the data are not those that .*files.json"):
        task.examples("test")
    config.data.files.test = str(tmp_path / "test.tsv")
    (tmp_path / "test.tsv").write_text("images/a.png\t5\n")
    with pytest.raises(UserError, match="class '5': must be one of .*, 3, 8, \u00e9$"):
        create(config, tmp_path / "other", training=True)
