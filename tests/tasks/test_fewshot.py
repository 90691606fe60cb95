"""Data and task of few-shot classification."""

import functools

import jax
import letters
import numpy as np
import pytest
from details import weights_of
from PIL import Image
from states import stepped, task_of

from base.errors import UserError
from configs.snail_fewshot import get_config
from tasks.common.images import image_files
from tasks.fewshot import data as fewshot
from tasks.fewshot import task as fewshot_task
from tasks.fewshot.data import SIDE, Characters
from training.task import NoOptions

B, WAYS, SHOTS = 7, 3, 5


@pytest.fixture(scope="module")
def characters():
    return fewshot.read("matplotlib")


def test_splits_share_no_script_and_no_shape(characters):
    scripts = {k: {x.split()[0] for x in v.names} for k, v in characters.items()}
    assert scripts["train"].isdisjoint(scripts["validation"] | scripts["test"])
    assert scripts["validation"].isdisjoint(scripts["test"])
    images = {split: each.images for split, each in characters.items()}
    assert all(len(each.classes) >= 150 for each in characters.values())
    assert all(each.shape[1:] == (20, SIDE, SIDE) for each in images.values())
    texts = {
        k: {x.tobytes() for x in v.reshape(-1, SIDE, SIDE)} for k, v in images.items()
    }
    assert texts["train"].isdisjoint(texts["validation"] | texts["test"])
    latin = [n for n in characters["test"].names if n.startswith("Latin")]
    greek = [n for n in characters["train"].names if n.startswith("Greek")]
    assert latin and greek
    upright = {characters["test"].names[n] for n, _ in characters["test"].classes}
    assert "Latin A" not in upright and "Latin a" in upright  # Greek has an A, too


def test_a_class_that_looks_like_an_earlier_one_is_left_out():
    rng = np.random.default_rng(0)
    first, second = np.repeat(np.repeat(rng.random((2, 14, 14)), 2, 1), 2, 2)
    ring = np.hypot(*(np.mgrid[:SIDE, :SIDE] - 13.5)) < 9
    images = [first, np.rot90(first), first + 0.01, second, ring, np.rot90(ring)]
    expected = [True, True, False, True, True, False]
    np.testing.assert_array_equal(fewshot.distinct(np.stack(images)), expected)


def test_letters_are_in_the_middle_of_their_images(characters):
    images = characters["test"].images.astype(float)
    mass = images.sum((-2, -1))
    assert (images.max((-2, -1)) > 100).all()
    for axis in (-1, -2):
        centre = (images.sum(axis) * np.arange(SIDE)).sum(-1) / mass
        assert (abs(centre - (SIDE - 1) / 2) < 9).all()
    assert not np.array_equal(images[:, 0], images[:, 1])


def numbered():
    """Characters whose images hold their number and that of the drawing."""
    images = np.zeros((11, 8, SIDE, SIDE), np.uint8)
    images[..., 0, 0] = np.arange(11)[:, None]
    images[..., 0, 1] = np.arange(8)
    classes = np.array([(n, turn) for n in range(11) for turn in range(4)])
    return Characters(images, [""] * 11, classes)


def test_an_episode_has_each_class_shots_times_and_a_new_image_as_query():
    characters = numbered()
    characters.images[..., 9, 3] = characters.images[..., 0, 0] + 1
    batch = fewshot.episodes(
        np.random.default_rng(0), characters, B, ways=WAYS, shots=SHOTS
    )
    assert batch["image"].shape == (B, WAYS * SHOTS + 1, SIDE, SIDE)
    for image, label in zip(batch["image"], batch["label"], strict=True):
        assert np.bincount(label[:-1]).tolist() == [SHOTS] * WAYS
        assert len({x.tobytes() for x in image}) == len(image)
    assert len({tuple(label) for label in batch["label"]}) == B


def test_the_classes_of_an_episode_differ_and_its_labels_are_random():
    characters = numbered()
    characters.images[..., 5, 7] = characters.images[..., 0, 0] + 1  # never 0
    batch = fewshot.episodes(np.random.default_rng(0), characters, 50, ways=9, shots=1)
    firsts = []
    for image, label in zip(batch["image"], batch["label"], strict=True):
        marks = {}
        for drawing, number in zip(image, label, strict=True):
            (turn,) = [k for k in range(4) if np.rot90(drawing, -k)[5, 7]]
            marks.setdefault(number, set()).add((np.rot90(drawing, -turn)[5, 7], turn))
        assert all(len(x) == 1 for x in marks.values())  # query and support agree
        assert len(set.union(*marks.values())) == 9
        firsts.append(next(iter(marks[0])))
    assert len(set(firsts)) > 20


def test_held_out_episodes_are_always_the_same_and_differ_by_split(characters):
    first, again, other = (
        fewshot.held_out(characters["test"], split, 3, ways=5, shots=1)["image"]
        for split in ("test", "test", "validation")
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_batches_have_every_number_of_shots():
    batches = fewshot.batches(numbered(), ways=WAYS, shots=3, batch_size=2, seed=0)
    steps = {batches[i]["image"].shape[1] for i in range(20)}
    assert steps == {WAYS * shots + 1 for shots in (1, 2, 3)}


def test_a_folder_of_folders_is_read_and_dark_ink_becomes_bright(tmp_path):
    letters.write(tmp_path / "flat", "ABCDEFGH", 3)
    splits = fewshot.read_folder(tmp_path / "flat", image_files(), rotations=False)
    assert [len(splits[x].classes) for x in ("train", "validation", "test")] == [
        4,
        2,
        2,
    ]
    assert splits["test"].names == ["B B", "F F"]
    assert (np.concatenate([x.images for x in splits.values()]).mean() < 100).all()
    for script in "VWXYZ":
        letters.write(tmp_path / "deep" / script, "ab", 2)
    splits = fewshot.read_folder(tmp_path / "deep", image_files())
    assert splits["test"].names == ["W a", "W b"]
    assert splits["validation"].names == ["Y a", "Y b"]
    assert len(splits["train"].classes) == 3 * 2 * 4


def test_folders_without_enough_images_are_refused(tmp_path):
    with pytest.raises(UserError, match="No such file or directory$"):
        fewshot.read_folder(tmp_path / "nothing", image_files())
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has 0 folders of images: must have one for"):
        fewshot.read_folder(tmp_path / "empty", image_files())
    letters.write(tmp_path / "x", "ABCD", 1)
    with pytest.raises(UserError, match="has one image: must have at least 2"):
        fewshot.read_folder(tmp_path / "x", image_files())
    characters = {"train": numbered()}
    with pytest.raises(UserError, match="ways is 45: must be at most 44"):
        fewshot.check(characters, 45, 1)
    with pytest.raises(UserError, match="8 shots need 9 images of each class: a class"):
        fewshot.check(characters, 5, 8)
    fewshot.check(characters, 44, 7)


@pytest.mark.parametrize("shots", [(), (1, 1), (1, 3)])
def test_evaluated_shots_are_different_and_in_training(shots):
    with pytest.raises(UserError, match=r"shots is .*: must be different numbers up"):
        task_of(get_config("smoke"), evaluation__shots=shots)


@pytest.mark.network
def test_noto_has_many_scripts():
    splits = fewshot.read("noto")
    scripts = {x.split()[0] for each in splits.values() for x in each.names}
    assert len(scripts) > 80 and len(splits["train"].classes) > 3000


def test_the_nearest_neighbour_and_the_interval():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (B, 4, 2, 2), np.uint8)
    label = rng.integers(0, 3, (B, 4))
    for b, answer in enumerate(fewshot_task.nearest(image, label)):
        gaps = [((image[b, t] / 1.0 - image[b, 3]) ** 2).sum() for t in range(3)]
        assert answer == label[b, np.argmin(gaps)]
    assert fewshot_task.interval(50.0, 100) == pytest.approx(9.8)
    assert fewshot_task.interval(100.0, 100) == 0


def test_a_step_keeps_the_averages_of_batch_norm_as_state(task, state):
    batch = task.train_data()[0]
    new, metrics = jax.jit(task.objective.step)(state, batch, jax.random.key(0))
    assert set(metrics) == {"loss", "training_accuracy"}
    apply = jax.jit(functools.partial(task._apply, train=True))
    _, sown = apply(state.params, batch, state)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5),
        new.extra,
        sown["batch_stats"],
    )
    old, moved = jax.tree.leaves(state.extra), jax.tree.leaves(new.extra)
    assert not any(np.array_equal(x, y) for x, y in zip(old, moved, strict=True))


def test_an_image_is_classified_by_a_folder_and_drawn(task, state, tmp_path):
    line = letters.lines().splitlines()[0]
    example = task.parse(line, NoOptions())
    assert example["image"].shape == (3 * 2 + 1, SIDE, SIDE)
    assert sorted(example["label"][:-1]) == [0, 0, 1, 1, 2, 2]
    (answer,) = task.answers(state, [example], attention=True)
    prediction = task.show(example, answer)
    assert prediction.text in "ABC" and prediction.score < 0
    for each in prediction.attention:  # images in the montage, the query below
        np.testing.assert_allclose(weights_of(each.details), each.weights, atol=1e-5)
        top, left, *_ = (3 * SIDE * each.places.boxes[3]).round().astype(int)
        pixels = each.places.image[top : top + SIDE, left : left + SIDE, 0]
        np.testing.assert_array_equal(pixels, example["image"][3])
        assert left == SIDE * example["label"][3]
        assert each.keys[3] == f"4: {'ABC'[example['label'][3]]}"
    path = tmp_path / "x.png"
    assert task.draw(prediction, "x", path) == path
    assert Image.open(path).size[0] > 100
    with pytest.raises(UserError, match="^has 1 parts: must be a folder of folders"):
        task.parse("nothing", NoOptions())
    with pytest.raises(UserError, match="^folder 'a"):
        task.parse(f"{'a' * 300}\tx.png", NoOptions())
    folder = line.split("\t")[0]
    with pytest.raises(UserError, match="none': No such file or directory"):
        task.parse(f"{folder}/none\t{folder}/A/0.png", NoOptions())
    with pytest.raises(UserError, match="has 1 folders with up to"):
        task.parse(f"{folder}/A\t{folder}/A/0.png", NoOptions())


def test_a_montage_has_a_column_for_each_class():
    label = np.array([1, 0, 1, 2, 0])  # and the query
    cells = fewshot_task.cells_of(label, 3)
    assert cells.tolist() == [[0, 1], [0, 0], [1, 1], [0, 2], [2, 1]]
    images = np.arange(1, 6)[:, None, None] * np.ones((5, 2, 2), int)
    large = fewshot_task.montage(images, cells)
    expected = [[2, 1, 4], [0, 3, 0], [0, 5, 0]]
    np.testing.assert_array_equal(large[::2, ::2], expected)
    np.testing.assert_array_equal(large[1::2, 1::2], expected)


@pytest.mark.slow
def test_one_batch_is_learned(tmp_path):
    config = get_config("smoke")
    config.model.update({"channels": (16, 16, 16, 16), "embedding": 32})
    config.optimizer.learning_rate = 3e-3
    task = task_of(config, tmp_path)
    state = task.objective.init(jax.random.key(0))
    _, metrics = stepped(task, state, [task.train_data()[0]] * 150)
    correct, count = metrics["training_accuracy"]
    assert correct / count == 100
