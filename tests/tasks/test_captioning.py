"""Caption data, the loss with soft and hard attention, metrics and predictions."""

import functools
import json
import os
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from details import weights_of
from photos import SCENE, files, written
from PIL import Image
from translators import quick_jit

from attention.alignments import ALIGNMENTS
from attention.scores import SCORES
from base import storage
from base.errors import UserError
from base.records import AttentionRecord, SampleRecord, records_of
from configs.captioning import get_config
from figures import canvas
from figures.strips import Strip
from models.captioner import ShowAttendTell
from tasks.captioning import captions, inputs, scenes
from tasks.captioning import task as captioning
from tasks.captioning.inputs import CaptionData
from tasks.captioning.task import Captioning, Details
from tasks.common.vocabulary import EOS, train_vocabulary
from training import evaluate, optimizers
from training.state import TrainState
from training.task import Evaluation, Prediction, create

# --- data


def make(config):
    """A captioner without data, with a vocabulary of the maximum size."""
    size = SimpleNamespace(size=config.data.vocab_size)
    return Captioning(config, CaptionData(config, size))


def test_captions_are_words_in_lower_case():
    text = "A man's two-hump camel, on_the left; 7 \u00e9clairs!"
    assert captions.plain(text) == "a man's two-hump camel on the left 7 \u00e9clairs"


def test_files_in_the_format_of_coco_are_read(tmp_path):
    wide = Image.new("RGB", (40, 20), (255, 0, 0))
    wide.paste((0, 0, 255), (15, 0, 25, 20))
    wide.save(tmp_path / "wide.png")
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    path = written(
        tmp_path,
        {7: "wide.png", 9: "clear.png", 8: "wide.png"},
        [(9, "Nothing."), (7, "A bar,"), (7, "It's blue")],
    )
    read = captions.read_files(path, tmp_path, 4, "train")
    photos = read.photos
    assert [p.captions for p in photos] == [("a bar", "it's blue"), ("nothing",)]
    assert read.without_captions == 1 and not read.has_splits
    # The central 20 x 20 pixels, half of them blue: cropped, not squeezed.
    bar = photos[0].image.argmax(-1)
    assert bar.shape == (4, 4) and bar.tolist() == [[0, 2, 2, 0]] * 4
    assert (photos[1].image == 255).all()


@pytest.mark.parametrize(
    "images, annotations, message",
    [
        ({1: "a\0.png"}, [(1, "a")], "has no file 'a.x00.png'"),
        ({1: "\ud800.png"}, [(1, "a")], "has no file '.ud800.png'"),
        ({1: "n" * 300}, [(1, "a")], "has no file 'nnn"),
        ({1: "a/../here.png"}, [(1, "a")], "its image 'a/../here.png' is not inside "),
        ({1: "/etc/passwd"}, [(1, "a")], "its image '/etc/passwd' is not inside "),
        ({1: "link.png"}, [(1, "a")], "its image 'link.png' is not inside "),
        ({float("nan"): "here.png"}, [], "it has the number NaN"),
        ({1: "here.png"}, [(2, "a")], "a caption of image 2, which is not in images"),
        ({1: 5}, [(1, "a")], "not in the format of MS-COCO, .*a value has another typ"),
        ({1: "here.png"}, [(1, None)], "not in the format of MS-COCO, .*a value has a"),
    ],
)
def test_invalid_caption_files_are_named(tmp_path, images, annotations, message):
    (tmp_path / "here.png").write_text("no image")
    (tmp_path / "link.png").symlink_to("/etc/passwd")
    path = written(tmp_path, images, annotations)
    with pytest.raises(UserError, match=message):
        captions.read_files(path, tmp_path, 4, "train")


def test_karpathys_splits_are_read_from_one_file(tmp_path):
    (tmp_path / "val2014").mkdir()
    images = []
    for number, split in enumerate(("train", "restval", "val", "test")):
        name = f"{number}.png"
        Image.new("RGB", (4, 4), (number, 0, 0)).save(tmp_path / "val2014" / name)
        sentences = [{"raw": f"Number {number}."}, {"raw": "An image"}]
        images.append({"filename": name, "filepath": "val2014", "split": split})
        images[-1]["sentences"] = sentences
    path = tmp_path / "dataset.json"
    path.write_text(json.dumps({"images": images, "dataset": "coco"}))
    for split, numbers in {"train": [0, 1], "validation": [2], "test": [3]}.items():
        photos = captions.read_files(path, tmp_path, 4, split).photos
        assert [int(p.image[0, 0, 0]) for p in photos] == numbers
        assert photos[0].captions == (f"number {numbers[0]}", "an image")


def test_a_16_bit_image_is_as_bright_as_an_8_bit_one(tmp_path):
    values = np.full((4, 4), 40_000, np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    image = captions.read_image(tmp_path / "deep.png", 4)
    assert image.shape == (4, 4, 3) and (image == 40_000 >> 8).all()


def test_unreadable_images_and_caption_files_are_named(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(UserError, match="a.png cannot be read: not an image"):
        captions.read_image(tmp_path / "a.png", 4)
    with pytest.raises(UserError, match=f"{tmp_path} cannot be read: Is a directory"):
        captions.read_image(tmp_path, 4)
    written(tmp_path, {1: "a.png"}, [(1, "a")], name="e.json")
    with pytest.raises(UserError, match="train.images is .*nowhere': must be a folder"):
        captions.read_files(tmp_path / "e.json", tmp_path / "nowhere", 4, "train")
    (tmp_path / "d.json").write_text("[1]")
    with pytest.raises(UserError, match="d.json': not in the format of MS-COCO"):
        captions.read_files(tmp_path / "d.json", tmp_path, 4, "train")


def test_several_images_with_one_id_are_refused(tmp_path):
    images = [{"id": 7, "file_name": f"{n}.png"} for n in range(2)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"images": images, "annotations": []}))
    with pytest.raises(UserError, match="several images have the id 7"):
        captions.read_files(path, tmp_path, 4, "train")


def test_other_formats_and_pipes_are_refused(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(UserError, match="not an image in the format PNG, JPEG, WEBP"):
        captions.read_image(path, 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe cannot be read: not a regular file"):
        captions.read_image(tmp_path / "pipe", 4)


def test_a_damaged_image_is_read_or_named_in_one_line(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (23, 29, 3)).astype(np.uint8)
    refused = 0
    for suffix in ("png", "jpg", "webp", "gif", "bmp"):
        path = tmp_path / f"a.{suffix}"
        Image.fromarray(values).save(path)
        content = path.read_bytes()
        for n in range(31):
            damaged = bytearray(content[: len(content) // (1 + n % 2)])
            damaged[rng.integers(0, 101)] ^= 0xFF
            path.write_bytes(damaged)
            try:
                assert captions.read_image(path, 7).shape == (7, 7, 3)
            except UserError as error:
                assert f"image {path} " in str(error) and "\n" not in str(error)
                refused += 1
    assert refused > 31


def test_an_image_of_validation_or_test_is_not_in_training(tmp_path, capsys):
    config = files(tmp_path)
    names = {n: f"{'v' * (n < 2)}{n}.png" for n in range(9)}
    texts = [(n, f"number {n}") for n in range(7)]
    path = written(tmp_path, names, texts)
    config.data.files.train.captions = str(path)
    config.evaluation.images = 5
    config.data.max_length = 2
    task = create(config, tmp_path / "run", training=True)
    paths = [photo.path.name for photo in task.data.photos("train")]
    assert paths == ["2.png", "3.png", "4.png", "5.png", "6.png"]
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "data: train images: 9 read, 5 used, with 5 captions; left out: 2 without a "
        "caption, 2 in validation or test",
        *(
            f"data: {split} images: 9 read, 9 used, with 9 captions; evaluated: the "
            "first config.evaluation.images=5"
            for split in ("validation", "test")
        ),
        "data: 5 training captions longer than config.data.max_length=2 words, "
        "the end included, are cut",
    ]


def test_splits_with_the_same_images_are_refused(tmp_path):
    config = files(tmp_path)
    paths = [config.data.files[split].captions for split in ("train", "validation")]
    for split, path, message in (
        (
            "validation",
            paths[0],
            r"validation.captions is .*train.json', as in train: ",
        ),
        ("test", paths[1], r"test.captions is .*n.json', as in validation: must be an"),
        ("train", "copy", "train: all 9 images are also in validation or test"),
        ("test", "copy", "9 images are in validation and in test, such as .*v0.png"),
    ):
        config = files(tmp_path)
        if path == "copy":
            path = tmp_path / "copy.json"
            path.write_bytes((tmp_path / "validation.json").read_bytes())
        config.data.files[split].captions = str(path)
        with pytest.raises(UserError, match=message):
            create(config, tmp_path / "run", training=True)


class Example:
    def __init__(self, number):
        self.image = np.full((2, 2, 3), number, np.uint8)
        self.captions = ("one", "one two three four five six seven eight nine")


def test_a_batch_has_a_caption_per_image_and_cuts_long_ones(tmp_path):
    words = "one two three four five six seven eight nine"
    vocabulary = train_vocabulary([words], 99, tmp_path / "v.model", pieces="word")
    fields = {"batch_size": 5, "max_length": 7, "seed": 0}
    batches = captions.batches(lambda rng, n: Example(n), vocabulary, **fields)
    batch, repeated = batches[2], batches[2]
    assert (batch["target"] == repeated["target"]).all()
    assert batch["source"][:, 0, 0, 0].tolist() == [10, 11, 12, 13, 14]
    assert batch["target"].shape == (5, 8)
    lengths = (batch["target"] != 0).sum(1)
    assert set(lengths) == {2, 7}
    assert (batch["target"][np.arange(5), lengths - 1] == EOS).all()


# --- the loss


def hard():
    """A task with hard attention, and a batch of two positions and two tokens."""
    config = get_config("smoke")
    config.model.alignment = "hard"
    config.model.soft_prob = 0.0
    config.loss.update({"coverage": 0.0, "reward": 1.0, "entropy": 0.0})
    task = make(config)
    fields = dict(config.model, encoder="maps", channels=(5,), vocab_size=7)
    fields["dropout"] = 0.0
    task.model = ShowAttendTell(**fields)
    rng = np.random.default_rng(0)
    source = rng.standard_normal((1, 1, 2, 3)).astype(np.float32)
    batch = {"source": jnp.asarray(source), "target": jnp.array([[5, EOS]])}
    init = quick_jit(functools.partial(task.model.init, train=False))
    params = init(jax.random.key(0), batch)["params"]
    params = jax.tree.map(lambda x: x + 0.3 * rng.standard_normal(x.shape), params)
    return task, params, batch


def state_at(step, baseline):
    """A state with the fields that the loss reads: the step and the baseline."""
    extra = {"baseline": jnp.asarray(baseline)}
    return TrainState(jnp.asarray(step), params=None, opt_state=None, extra=extra)


def keys_by_sample(task, params, batch):
    """A PRNG key for each of the four possible samples: {positions: key}."""

    @quick_jit
    def sample(key):
        _, sown = task.model.apply(
            {"params": params},
            batch,
            train=True,
            rngs={"dropout": key, "alignment": jax.random.fold_in(key, 1)},
            mutable=["attention"],
        )
        (weights,) = jax.tree.leaves(sown)
        return weights[0, 0].argmax(-1)

    keys = {}
    for seed in range(60):
        key = jax.random.key(seed)
        keys.setdefault(tuple(np.asarray(sample(key)).tolist()), key)
    assert len(keys) == 4
    return keys


def test_the_gradient_of_a_hard_alignment_is_unbiased():
    task, params, batch = hard()

    def parts(params, key):
        """Log-probability of the sampled positions, and the caption's loss there."""
        logits, sown = task.model.apply(
            {"params": params},
            batch,
            train=True,
            rngs={"dropout": key, "alignment": jax.random.fold_in(key, 1)},
            mutable=["reinforce"],
        )
        (draw,) = records_of(sown, SampleRecord)
        log_probs = jax.nn.log_softmax(logits)[0, [0, 1], batch["target"][0]]
        return draw.log_probability.sum(), -log_probs.sum()

    @quick_jit
    def weighted(key):
        """The probability of a sample, and its terms of the two expectations."""

        def expected_loss(params):
            log_probability, loss = parts(params, key)
            return jnp.exp(log_probability) * loss

        def surrogate(params):
            return task.loss(params, batch, key, state_at(0, 0.7))[0]

        probability = jnp.exp(parts(params, key)[0])
        estimate = jax.grad(surrogate)(params)
        estimate = jax.tree.map(lambda gradient: probability * gradient, estimate)
        return probability, jax.grad(expected_loss)(params), estimate

    terms = [weighted(key) for key in keys_by_sample(task, params, batch).values()]
    total, exact, estimated = jax.tree.map(lambda *x: sum(x), *terms)
    np.testing.assert_allclose(total, 1, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), exact, estimated
    )


def test_expected_weights_replace_samples_in_the_first_soft_steps():
    task, params, batch = hard()
    task.config.loss.update({"soft_steps": 3, "entropy": 0.0})
    task.config.model.soft_prob = 0.0
    soft = make(task.config)
    soft.model = task.model.clone(alignment="global")

    def loss(task, step, seed):
        rng = jax.random.key(seed)
        return task.loss(params, batch, rng, state_at(step, 0.0))[0]

    expected = loss(soft, 0, 0)
    for seed in (1, 2, 3):
        np.testing.assert_allclose(loss(task, 2, seed), expected, rtol=1e-5)
        assert abs(loss(task, 3, seed) - expected) > 1e-3


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_every_alignment_can_be_trained(alignment):
    config = get_config("smoke")
    config.model.alignment = alignment
    task = make(config)
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    batch = {"source": task.data.blank(), "target": jnp.ones((1, 2), jnp.int32)}
    step = task.objective.step
    new, _ = jax.eval_shape(step, state, batch, jax.random.key(0))
    assert jax.tree.structure(new) == jax.tree.structure(state)


def test_every_score_fits_the_captioner():
    for score in SCORES:
        config = get_config("smoke")
        config.model.score = score
        assert jax.eval_shape(make(config).objective.init, jax.random.key(0)).params


def test_coverage_above_and_below_one_is_penalised():
    config = get_config("smoke")
    config.loss.coverage = 0.5
    task = make(config)

    class FixedAttention:
        def apply(self, variables, batch, **_):
            weights = jnp.array([[[[0.5, 0.5], [0.25, 0.75], [1, 0]]]])
            logits = jnp.zeros((1, 3, 7))
            return logits, {"attention": {"record": (AttentionRecord(weights),)}}

    task.model = FixedAttention()
    batch = {"target": jnp.array([[4, EOS, 0]])}
    state = TrainState(jnp.asarray(0), params={}, opt_state=None)
    total, (count, metrics) = task.loss({}, batch, jax.random.key(0), state)
    penalty = (1 - 0.75) ** 2 + (1 - 1.25) ** 2  # the third step is padding
    np.testing.assert_allclose(metrics["coverage"][0], penalty, rtol=1e-5)
    np.testing.assert_allclose(total, 2 * np.log(7) + 0.5 * penalty, rtol=1e-5)
    assert count == 1


# --- metrics


def test_mentions_have_a_name_a_cell_and_a_range_of_words():
    mentions = scenes.mentions("cat face on the left and dog at the top".split())
    assert mentions == [("cat face", "on the left", 0, 2), ("dog", "at the top", 6, 7)]
    assert not scenes.mentions("cat face and dog on the".split())
    assert not scenes.mentions("on the left".split())


@pytest.mark.parametrize("steps", [3, 4])
@pytest.mark.parametrize("alignment", ["hard", "global"])
def test_a_run_that_ends_before_sampling_begins_is_warned_about(alignment, steps):
    config = get_config()
    config.model.alignment, config.train_steps = alignment, steps
    config.loss.soft_steps = 3
    lines = [line for line in optimizers.warnings(config) if "soft_steps" in line]
    assert len(lines) == (steps == 3)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_files_are_read_before_training(tmp_path, split):
    config = files(tmp_path)
    config.data.files[split].captions = str(tmp_path / "gone.json")
    with pytest.raises(UserError, match="gone.json': No such file"):
        create(config, tmp_path / "run", training=True)


def test_training_needs_no_test_split(tmp_path):
    config = files(tmp_path)
    config.data.files.test.captions = config.data.files.test.images = ""
    task = create(config, tmp_path / "run", training=True)
    assert task.train_data()[0].keys() >= {"source", "target"}
    with pytest.raises(
        UserError,
        match=(
            r"files\.test is not set: there are no images for "
            "--split=test$"
        ),
    ):
        task.data.examples("test")


def test_the_table_has_an_image_a_caption_and_references_per_row(tmp_path):
    photo = captions.Photo(tmp_path / "x.png", ("A dog!", "Two, cats"), 8)
    task = make(get_config("smoke"))
    for example, name in ((photo, str(photo.path)), (SCENE, "1")):
        details = Details(example, Strip(["a", "fox"], None))
        caption = Prediction("a fox", 0.0, details=details)
        groups = {"test": [example]}, {"test": [caption]}
        evaluation = Evaluation("test", {}, *groups)
        (path,) = evaluate.write_table(task, evaluation, tmp_path)
        assert path == tmp_path / "captions_test.tsv"
        first, second = storage.read_tsv(path)
        assert first == ["image", "caption", "references"]
        assert second[:2] == [name, "a fox"]
        texts = second[2].split(" | ")
        assert texts == [captions.plain(text) for text in example.captions]


def test_a_figure_has_its_line_and_the_references(monkeypatch, tmp_path):
    titles = []

    def draw(image, strips, title, path, *, references):
        titles.append(title)
        assert references == list(map(captions.plain, SCENE.captions))

    monkeypatch.setattr(captioning, "caption_strips", draw)
    task = make(get_config("smoke"))
    for maps in (np.ones((2, 3, 3)), None):
        details = Details(SCENE, Strip(["a", "fox"], maps))
        task.draw(Prediction("a fox", 0.0, details=details), "Line 7", tmp_path)
    assert titles == ["Line 7", "Line 7"]


@pytest.mark.parametrize("maps", [np.ones((0, 3, 3)), None])
def test_the_figure_of_an_empty_caption_says_so(maps, monkeypatch, tmp_path):
    titles, figure = [], canvas.figure
    monkeypatch.setattr(
        canvas,
        "figure",
        lambda w, h, title: titles.append(title) or figure(w, h, title),
    )
    prediction = Prediction("", 0.0, details=Details(SCENE, Strip([], maps)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(get_config("smoke")).draw(prediction, "Line 7", tmp_path / "a.png")
    assert titles == ["Line 7: (empty)"]


def test_predictions_carry_attention_maps_of_their_words(tmp_path):
    task = create(files(tmp_path), tmp_path / "run", training=True)
    state = quick_jit(task.objective.init)(jax.random.key(0))
    lines = {2: str(tmp_path / "0.png"), 3: str(tmp_path / "5.png")}
    plain = evaluate.predict(task, state, lines, task.Options(beam=1), attention=False)
    assert [(best.attention, best.others) for best in plain] == [((), ())] * 2
    options = task.Options(beam=2, n_best=2)
    predictions = list(evaluate.predict(task, state, lines, options, attention=True))
    assert [len(best.others) for best in predictions] == [1, 1]
    for best in predictions:
        (cross,) = best.attention
        assert list(cross.queries) == best.text.split()
        assert cross.keys[2:4] == ["row 1, column 3", "row 2, column 1"]
        assert cross.weights.shape == (1, len(cross.queries), len(cross.keys))
        np.testing.assert_allclose(cross.weights.sum(-1), 1, rtol=1e-5)
        searched = best.details.strip.maps.reshape(cross.weights.shape)
        np.testing.assert_allclose(cross.weights, searched, atol=1e-5)
        again = weights_of(cross.details)
        np.testing.assert_allclose(again, cross.weights, atol=1e-5)


def test_the_objects_of_a_scene_are_framed(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "_VOCABULARY_SCENES", 211)
    config = get_config("smoke")
    config.data.groups = ("shapes",)
    task = create(config, tmp_path, training=True)
    state = quick_jit(task.objective.init)(jax.random.key(0))
    examples = task.data.examples("validation")[:3]
    answers = task.answers(state, examples, task.Options(), attention=True)
    for example, answer in zip(examples, answers, strict=True):
        for each in answer.attention:
            truth = each.places.truth * config.data.size
            np.testing.assert_allclose(truth, example.boxes)
            assert each.note == "Dashed frames: the objects of the scene."
        assert answer.attention


def test_feature_maps_are_computed_once_in_parts(tmp_path, monkeypatch):
    config = files(tmp_path)
    config.model.encoder, config.data.size = "maps", 32
    task = create(config, tmp_path / "run", training=True)
    monkeypatch.setattr(inputs, "_FILE_SIZE", 4)
    monkeypatch.setattr(inputs.storage, "cache_folder", lambda: tmp_path)
    sizes = []

    def maps(images):
        sizes.append(len(images))
        values = np.stack(images).mean((1, 2, 3)).astype(np.float16)
        return np.broadcast_to(values[:, None, None, None], (len(values), 2, 2, 112))

    monkeypatch.setattr(task.data, "inputs", maps)
    batch = task.train_data()[0]
    assert sizes == [4, 4, 1]
    numbers = batch["source"][:, 0, 0, 0].astype(float) * 3 / 20
    words = ["".join(task.vocabulary.pieces(ids)) for ids in batch["target"].tolist()]
    for number, text in zip(numbers.round().astype(int), words, strict=True):
        assert f"number▁{number}▁of" in text
    assert (task.train_data()[0]["source"] == batch["source"]).all()
    assert len(sizes) == 3
    (tmp_path / "8.png").unlink()
    Image.new("RGB", (40, 40), (1, 2, 3)).save(tmp_path / "8.png")
    task.train_data()
    assert sizes[3:] == [1]
