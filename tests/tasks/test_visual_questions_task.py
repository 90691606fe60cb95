"""Data, metrics and task of visual question answering."""

import collections
import itertools
import json
import re
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from details import weights_of
from PIL import Image
from states import stepped, task_of
from translators import quick_jit
from user_data import visual_questions

from base.errors import UserError
from configs.vqa_scenes import get_config
from tasks.common import shapes
from tasks.common.splits import SPLITS
from tasks.visual_questions import data as visual
from tasks.visual_questions import metrics, scenes
from tasks.visual_questions.task import answer_losses, object_losses
from training.task import NoOptions, create

SIZE, CELL = 64, 21


def shape_of_pixels():
    """Name of the shape by its pixels, without empty rows and columns."""
    names = {}
    for shape, side in itertools.product(shapes.SHAPES, range(12, CELL + 1)):
        mask = shapes.mask(shape, side)
        mask = mask[mask.any(1)][:, mask.any(0)]
        assert names.setdefault((mask.shape, mask.tobytes()), shape) == shape
    return names


SHAPE_OF_PIXELS = shape_of_pixels()


def recognise(image, box):
    """Colour and shape of the object in a part of an image, None for no object."""
    top, left, bottom, right = box
    part = image[top:bottom, left:right].astype(int)
    mask = (part != image[-1, -1]).any(-1)  # no shape reaches the last pixel
    if not mask.any():
        return None
    pixels = mask[mask.any(1)][:, mask.any(0)]
    distance = {
        name: abs(part[mask].mean(0) - colour).sum()
        for name, colour in shapes.COLOURS.items()
    }
    colour = min(distance, key=distance.get)
    return colour, SHAPE_OF_PIXELS[pixels.shape, pixels.tobytes()]


def solve(scene):
    """The answer to a question, from the pixels of the image."""
    grid = {
        (i, j): recognise(
            scene.image, (CELL * i, CELL * j, CELL * i + CELL, CELL * j + CELL)
        )
        for i, j in itertools.product(range(3), repeat=2)
    }
    cells = {cell: x for cell, x in grid.items() if x}
    assert 4 <= len(cells) <= 6
    text = scene.question.split()
    singular = {plural: shape for shape, plural in scenes.PLURALS.items()}
    if text[0] == "how":
        shape = singular[text[2]]
        return str(sum(x[1] == shape for x in cells.values()))
    if text[:3] == ["is", "there", "a"]:
        return "yes" if tuple(text[3:]) in cells.values() else "no"
    if text[1] == "colour":
        (colour,) = [c for c, shape in cells.values() if shape == text[-1]]
        return colour
    if text[0] == "is":
        (first,), (second,) = (
            [shape for c, shape in cells.values() if c == colour]
            for colour in (text[2], text[-2])
        )
        return "yes" if first == second else "no"
    (cell,) = [cell for cell, x in cells.items() if x == tuple(text[-2:])]
    down, right = (-1, 0) if "above" in text else (0, -1)
    return cells[cell[0] + down, cell[1] + right][1]


@pytest.fixture(scope="module")
def drawn():
    return [scenes.draw(np.random.default_rng(i), SIZE) for i in range(150)]


def test_the_answer_is_that_of_the_pixels(drawn):
    for scene in drawn:
        assert solve(scene) == scene.answer, scene.question
    assert {scene.type for scene in drawn} == set(scenes.TYPES)


def test_boxes_are_those_of_the_objects_that_are_asked_for(drawn):
    for scene in drawn:
        boxes = [box for box in scene.boxes if box.any()]
        objects = [recognise(scene.image, box) for box in boxes]
        words = scene.question.split()
        if scene.type == "colour":
            assert objects == [(scene.answer, words[-1])]
        elif scene.type in ("left", "above"):
            assert objects[0][1] == scene.answer and objects[1] == tuple(words[-2:])
        elif scene.type == "count":
            assert len(objects) == int(scene.answer)
            assert {scenes.PLURALS[x[1]] for x in objects} <= {words[2]}
        elif scene.type == "exists":
            assert objects == [tuple(words[-2:])] * (scene.answer == "yes")
        else:
            assert [x[0] for x in objects] == [words[2], words[-2]]


def test_objects_are_numbered_in_their_boxes(drawn):
    for scene in drawn[:20]:
        numbers = set(np.unique(scene.objects)) - {0}
        assert max(numbers) < scenes.OBJECTS
        for number in numbers:
            rows, columns = np.nonzero(scene.objects == number)
            box = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
            shape, colour = divmod(number - 1, len(shapes.COLOURS))
            expected = list(shapes.COLOURS)[colour], shapes.SHAPES[shape]
            if (scene.objects == number).sum() == (box[2] - box[0]) * (box[3] - box[1]):
                assert recognise(scene.image, box) == expected  # a single one
        empty = scene.image[scene.objects == 0]
        assert len(np.unique(empty)) == 1  # the background


def test_a_missing_object_has_its_colour_and_its_shape_elsewhere():
    rng = np.random.default_rng(0)
    for _ in range(50):
        plan = scenes._exists(rng)
        colour, shape = plan.question[0].split()
        names = [(scenes._NAMES[c], shapes.SHAPES[s]) for s, c in plan.others]
        assert any(c == colour and s != shape for c, s in names)
        assert any(s == shape and c != colour for c, s in names)


def test_the_question_says_nothing_about_the_answer():
    rng, correct = np.random.default_rng(0), []
    for kind in scenes.TYPES:
        pairs = [scenes._PLANS[kind](rng)[:2] for _ in range(16_000)]
        counts = collections.defaultdict(collections.Counter)
        for question, answer in pairs[:8000]:
            counts[question][answer] += 1
        every = collections.Counter(answer for _, answer in pairs)
        assert max(every.values()) < 1.15 * min(every.values())
        best = {question: x.most_common(1)[0][0] for question, x in counts.items()}
        correct.append(np.mean([best[q] == answer for q, answer in pairs[8000:]]))
    assert abs(np.mean(correct) - scenes.CHANCE) < 0.01


def test_held_out_scenes_are_always_the_same_and_differ_by_split(task):
    data = task.data
    again = visual.VisualData(task.config)
    first, same, other = (
        np.stack([row["image"] for row in part[:5]])
        for part in (
            data.questions("test"),
            again.questions("test"),
            data.questions("validation"),
        )
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_accuracy_is_the_mean_over_all_but_one_annotator():
    by_hand = [0, 0.3, 0.6, 0.9, *[1] * 7]
    np.testing.assert_allclose(metrics.leave_one_out(np.arange(11), 10), by_hand)
    simple = [0, 1 / 3, 2 / 3, *[1] * 8]
    np.testing.assert_allclose(metrics.consensus(np.arange(11)), simple)
    rng = np.random.default_rng(0)
    answers, predicted = rng.integers(-1, 4, (13, 10)), rng.integers(0, 4, 13)
    loop = [
        np.mean([min((np.delete(row, k) == p).sum() / 3, 1) for k in range(10)])
        for row, p in zip(answers, predicted, strict=True)
    ]
    np.testing.assert_allclose(metrics.accuracy(predicted, answers), loop)
    single = metrics.accuracy(np.array([2, 0]), np.array([[2], [1]]))
    np.testing.assert_array_equal(single, [1, 0])


def test_the_loss_is_the_mean_over_the_annotators():
    logits = jnp.log(jnp.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    answers = jnp.array([[0, 0, 1, -1], [2, 2, 2, 2]])
    expected = [(2 * np.log(2) + np.log(4)) / 4, -np.log(0.8)]
    np.testing.assert_allclose(answer_losses(logits, answers), expected, rtol=1e-5)


def test_regions_name_the_objects_in_their_middle():
    objects = np.zeros((2, 6, 6), np.uint8)
    objects[0, :4, 3:] = 5  # the middles (1, 4) of a map of 2 x 2, but not (4, 4)
    names = np.array([[0, 5, 0, 0], [0, 0, 0, 0]])
    logits = jnp.log(0.25 + 0.5 * jax.nn.one_hot(names, 37))
    loss = object_losses(logits, objects)
    total = 0.25 * 37 + 0.5
    np.testing.assert_allclose(loss, np.log(total / 0.75), rtol=1e-5)
    assert object_losses(logits, objects[::-1])[1] > loss[1]


def test_coverage_counts_the_pixels_of_a_region_in_boxes():
    boxes = np.array([[[3, 5, 17, 13], [0, 20, 4, 30]], np.zeros((2, 4), int)])
    actual = metrics.coverage(boxes, regions=16, size=40)
    pixels = np.zeros((40, 40))
    for top, left, bottom, right in boxes[0]:
        pixels[top:bottom, left:right] = 1
    expected = pixels.reshape(4, 10, 4, 10).mean((1, 3)).ravel()
    np.testing.assert_allclose(actual, [expected, np.zeros(16)], atol=1e-12)
    # The second question has no box, and does not count.
    uniform = np.full((2, 3, 16), 1 / 16)
    uniform[1] = np.nan
    scores = metrics.mass_in_boxes(uniform, boxes, 40)
    area = 100 * (14 * 8 + 4 * 10) / 1600
    names = {"mass_in_box", "area_of_box", *(f"mass_in_box_{g}" for g in (1, 2, 3))}
    assert scores == {name: pytest.approx(area) for name in names}
    assert metrics.mass_in_boxes(uniform, np.zeros((2, 1, 4), int), 40) == {}


def png(path, level):
    Image.new("RGB", (SIZE, SIZE), (level, 0, 0)).save(path)


def test_easy_vqa_is_read_from_its_wheel(tmp_path, monkeypatch):
    monkeypatch.setattr(visual, "_EASY_VALIDATION", 1)
    questions = [
        ["what color is the shape?", "red", 2],
        ["is there a circle?", "yes", 0],
        ["what is the red shape?", "circle", 1],
    ]
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        for split in ("train", "test"):
            folder = f"easy_vqa/data/{split}"
            wheel.writestr(f"{folder}/questions.json", json.dumps(questions))
            for n in range(3):
                png(tmp_path / "x.png", 50 * n)
                wheel.write(tmp_path / "x.png", f"{folder}/images/{n}.png")
    parts = {x: visual.read_easy(tmp_path / "x.whl", x) for x in SPLITS}
    assert [len(x) for x in parts.values()] == [2, 1, 3]
    assert parts["validation"].texts == ["what color is the shape"]
    assert parts["test"].types == ["colour", "exists", "shape"]
    assert parts["train"].answers == [["yes"], ["circle"]]
    assert parts["test"].images[2][0, 0].tolist() == [100, 0, 0]


@pytest.mark.network
def test_easy_vqa_has_its_published_questions():
    parts = {split: visual.easy(split) for split in SPLITS}
    counts = [len(x) for x in parts.values()]
    assert sum(counts[:2]) == 38_575 and counts[2] == 9673
    answers = visual.build(parts["train"], 100).answers
    assert len(answers) == 13
    assert [visual.plain_answer(x) for x in answers] == [*answers]


def test_answers_are_compared_with_their_symbols():
    different = "C++ C# C $5 5% 5 -5 3.5 1/2 1:2 the a ? ! :) Türe Ture * _".split()
    different += ["3 5", "1 2", "A, an"]
    assert len({visual.plain_answer(x) for x in different}) == len(different)
    assert all(visual.plain_answer(x) for x in different)
    for texts in (
        ("C++", "c++", "The C++.", " C++ ,"),
        ("5%", "5%.", "a 5% !"),
        ("Yes, it is", "yes it is."),
        ("\u00e9tude", "e\u0301tude", "An \u00c9TUDE"),
        ("the", "THE", "the."),
        ("二", "二。"),
    ):
        assert len({visual.plain_answer(x) for x in texts}) == 1, texts


def test_the_answers_of_scenes_stay_as_they_are():
    assert [visual.plain_answer(x) for x in scenes.ANSWERS] == [*scenes.ANSWERS]


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def without_answers(path):
    text = path.read_text()
    path.write_text(re.sub('{"answer": "[^"]*"}', '{"answer": " "}', text))


def test_questions_are_read_in_the_format_of_vqa(tmp_path):
    config = visual_questions(tmp_path)
    task = task_of(config, tmp_path / "run")
    assert task.vocabulary.answers == ("two", "yes")  # no and 3 are not possible
    questions = task.data.questions("validation")
    assert questions.texts == ["is it red", "how many exactly"]
    assert questions.types == ["yes_no", "number"]
    counts = [
        [(row == n).sum() for n in (0, 1, -1)] for row in questions.arrays["answers"]
    ]
    assert counts == [[0, 7, 3], [9, 0, 1]]
    assert questions[1]["image"][0, 0].tolist() == [12, 0, 0]
    batch = task.train_data()[0]
    size = config.data.size
    assert batch["image"].shape == (config.data.batch_size, size, size, 3)
    other = create(config, tmp_path / "run", training=False)
    assert other.vocabulary.answers == task.vocabulary.answers
    assert other.vocabulary.words.names == task.vocabulary.words.names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: (f / "questions.json").write_text("{}"),
            "train.questions is .*format",
        ),
        (lambda f: (f / "questions.json").unlink(), "train.questions is .*No such fil"),
        (
            lambda f: (f / "annotations.json").write_text('{"annotations": []}'),
            "train.annotations: question 71 is missing",
        ),
        (
            lambda f: (f / "images/COCO_val2014_000000000012.png").unlink(),
            "train.images: .* has no image 12",
        ),
        (
            lambda f: (f / "images/COCO_val2014_000000000012.png").write_text("x"),
            "train.images: image .* cannot be read",
        ),
        *(
            (
                lambda f, x=x: (f / "annotations.json").write_text(
                    f'{{"annotations": [{x}]}}'
                ),
                "train: not in the format of VQA",
            )
            for x in ("{}", "1", "null", '{"question_id": []}', '{"question_id": 71}')
        ),
        *(
            (
                lambda f, x=x: replace(f / "annotations.json", x, f'"{chr(92)}ud800"'),
                "train: not in the format of VQA .*surrogates",
            )
            for x in ('"no"', '"yes/no"')
        ),
        (
            lambda f: without_answers(f / "annotations.json"),
            "train.annotations: no question has an answer",
        ),
    ],
)
def test_faulty_files_are_named(change, message, tmp_path):
    config = visual_questions(tmp_path)
    change(tmp_path)
    with pytest.raises(UserError, match=f"^config.data.files.{message}") as error:
        create(config, tmp_path / "run", training=True)
    assert "\n" not in str(error.value)


def test_files_that_are_no_images_replace_no_image(tmp_path):
    config = visual_questions(tmp_path)
    folder = tmp_path / "images"
    for number, image in zip((7, 12), sorted(folder.iterdir()), strict=True):
        image.rename(folder / f"(x) {number}.png")
        for name in (f"._(x) {number}.png", f"y_{number}.txt"):
            (folder / name).write_text("no image")
    task = task_of(config, tmp_path / "run")
    paths = task.data.read("test").images.paths
    assert [path.name for path in paths] == ["(x) 7.png", "(x) 12.png"]


def test_missing_fields_of_files_are_named(tmp_path):
    config = visual_questions(tmp_path)
    config.data.files.test = {"questions": "", "annotations": "", "images": ""}
    task = task_of(config, tmp_path / "without_test")
    with pytest.raises(UserError, match="^config.data.files.test.questions is missing"):
        task.data.questions("test")
    config.data.files.validation.images = ""
    with pytest.raises(UserError, match="^config.data.files.validation.images is miss"):
        create(config, tmp_path / "run", training=True)


def test_one_batch_is_learned(tmp_path):
    config = get_config("smoke")
    config.model.update({"channels": (16, 32), "hidden": 32, "embedding": 16})
    config.model.update({"score_hidden": 16, "classifier": 32, "dropout": 0.0})
    config.optimizer.update(
        {"schedule": "constant", "learning_rate": 3e-3, "clip": 0.0, "warmup": 0}
    )
    del config.optimizer["decay_steps"]
    task = task_of(config, tmp_path)
    state = quick_jit(task.objective.init)(jax.random.key(0))
    batch = task.train_data()[0]
    state, metrics = stepped(task, state, [batch] * 120)
    assert metrics["training_agreement"][0] == 100 * len(batch["answers"])


def test_the_objects_that_a_question_is_about_are_framed(task, state):
    examples = task.examples("validation")["validation"][:9]
    for example, answer in zip(
        examples, task.answers(state, examples, attention=True), strict=True
    ):
        (each,) = task.show(example, answer).attention
        boxes = [box for box in example["boxes"] if box.any()]
        assert (each.places.truth is None) == (not boxes) == (not each.note)
        if boxes:
            size = len(example["image"])
            np.testing.assert_allclose(each.places.truth * size, boxes)


def test_a_question_about_an_image_file_is_answered_and_drawn(task, state, tmp_path):
    png(tmp_path / "x.png", 200)
    example = task.parse(f"{tmp_path / 'x.png'}\tIs there a red dog?", NoOptions())
    (answer,) = task.answers(state, [example], attention=True)
    prediction = task.show(example, answer)
    assert prediction.text in scenes.ANSWERS and prediction.score < 0
    assert prediction.caption.startswith("is there a red <unk>?")
    (each,) = prediction.attention
    assert each.places.truth is None and not each.note
    np.testing.assert_allclose(weights_of(each.details), each.weights, atol=1e-5)
    assert task.unusual(example, answer) == [
        "has 1 words that no training question has"
    ]
    assert task.draw(prediction, "x", tmp_path / "y.png") == tmp_path / "y.png"
    assert (tmp_path / "y.png").exists()
    for line in ("x.png", "x.png\t?"):
        with pytest.raises(UserError, match="^must be the path of an image, a tab"):
            task.parse(line, NoOptions())
