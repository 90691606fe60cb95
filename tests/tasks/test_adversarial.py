"""Image data, adversarial training steps and metrics of generated images."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from translators import quick_jit

from base.errors import UserError
from configs.sagan import get_config
from generation.images import ImageGenerator
from models import dcgan, efficientnet
from tasks.captioning import frozen
from tasks.common.images import Photos
from tasks.images import data as images
from tasks.images import task as adversarial
from tasks.images.metrics import consistency
from tasks.images.task import Adversarial, Assets, SeedOptions
from training import evaluate
from training.adversarial import LOSSES
from training.task import Evaluation, NoOptions, create

rng = np.random.default_rng


# --- data


def test_corners_match_and_nothing_else_is_coloured():
    values = images.corners(rng(0), 500, 16)
    assert values.shape == (500, 16, 16, 3)
    assert (values[:, :4, :4] == values[:, -4:, -4:]).all()
    assert (values[:, :4, :4] == values[:, :1, :1]).all()
    between = values.copy()
    between[:, :4, :4] = between[:, -4:, -4:] = 0
    assert (between == between[..., :1]).all()
    red, green, blue = values[:, 0, 0].astype(int).T
    assert (green == 40).all() and (red + blue == 255).all()
    scores = consistency(values)
    same = [red == np.roll(red, shift) for shift in range(1, 10)]
    assert scores["consistent"] == 100 - 100 * np.mean(np.any(same, axis=0))
    np.testing.assert_allclose(scores["spread"], 1, atol=0.05)  # 500 samples


def test_a_batch_depends_on_its_index_only_and_shifts_drawings():
    values = np.full((3, 32, 32, 3), 255, np.uint8)
    values[:, 10:20, 5:15] = np.arange(3)[:, None, None, None]
    source = images.LabelledImages(
        values, np.arange(3, dtype=np.int32), ("a",) * 3, True
    )
    batches = images.batches(source, 32, batch_size=40, seed=0)
    batch, repeated, other = batches[5], batches[5], batches[6]
    assert (batch["image"] == repeated["image"]).all()
    assert (batch["image"] != other["image"]).any()
    for image, label in zip(batch["image"], batch["label"], strict=True):
        rows, columns = np.nonzero((image == label).all(-1))
        assert len(rows) == 100  # the whole drawing
        assert abs(rows.min() - 10) <= 2
        assert min(abs(columns.min() - 5), abs(columns.min() - 17)) <= 2
    assert len({image.tobytes() for image in batch["image"]}) > 20


def test_files_of_a_folder_that_are_left_out_are_counted(tmp_path, capsys):
    for name, files in {
        "a": ["1.png", "2.JPG", "notes.txt"],
        "b": ["1.gif", "2.heic", "3.tiff"],
        ".hidden": ["1.png"],
    }.items():
        (tmp_path / name).mkdir()
        for file in files:
            image = "JPEG" if file.endswith("JPG") else "PNG"
            Image.new("RGB", (5, 7)).save(tmp_path / name / file, image)
    (tmp_path / "cover.png").write_text("")
    for _ in range(2):
        assert len(images.folder(tmp_path, 8).labels) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"data: 3 images in 2 classes read from {tmp_path}; left out: 3 in class "
        "folders with another suffix than .png, .jpg, .jpeg, .webp, .gif, .bmp, 1 not "
        "in a class folder, 1 hidden folders"
    )
    with pytest.raises(UserError, match="^config.data.folder is .*File name too long$"):
        images.folder(tmp_path / ("a" * 300), 8)


def test_a_folder_of_folders_is_read_by_class(tmp_path):
    for name, colour in (("cats", (255, 0, 0)), ("dogs", (0, 0, 255))):
        (tmp_path / name).mkdir()
        Image.new("RGB", (20, 30), colour).save(tmp_path / name / "1.png")
    (tmp_path / ".cache").mkdir()  # not a class
    loaded = images.folder(tmp_path, 8)
    assert loaded.names == ("cats", "dogs") and loaded.labels.tolist() == [0, 1]
    assert (loaded.values[0] == [255, 0, 0]).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.common.images._MAX_BYTES", 0)
        later = images.folder(tmp_path, 8)
    assert isinstance(later.values, Photos) and len(later.values) == 2
    expected, batch = (
        images.batches(x, 8, batch_size=5, seed=0)[3] for x in (loaded, later)
    )
    assert (batch["image"] == expected["image"]).all()
    with pytest.raises(UserError, match="must be a folder of folders"):
        images.folder(tmp_path / "cats", 8)


# --- steps


def config(**changes):
    smoke = get_config("smoke")
    smoke.update_from_flattened_dict(changes)
    return smoke


@functools.cache
def task():
    return Adversarial(config(), Assets())


@functools.cache
def state():
    return quick_jit(task().objective.init)(jax.random.key(0))


@functools.cache
def stepped():
    batch = images.batches(None, 16, batch_size=8, seed=0)[0]
    return quick_jit(task().objective.step)(state(), batch, jax.random.key(1))


def test_a_step_moves_both_networks_and_the_average():
    new, _ = stepped()
    assert new.step == 1 and new.step.dtype == jnp.int32
    for name in ("generator", "discriminator"):
        before, after = state().params[name], new.params[name]
        moved = jax.tree.map(lambda a, b: (a != b).any(), before, after)
        assert any(jax.tree.leaves(moved))
    jax.tree.map(
        lambda old, new, mean: np.testing.assert_allclose(
            mean, 0.1 * old + 0.9 * new, rtol=1e-4, atol=1e-7
        ),
        state().params["generator"],
        new.params["generator"],
        new.extra["average"],
    )


def test_losses_of_a_step_equal_the_hinge_formulas():
    _, metrics = stepped()
    batch = images.batches(None, 16, batch_size=8, seed=0)[0]
    models, start = task().models, state()
    noise = jax.random.normal(jax.random.key(1), (8, 7))

    def apply(name, state, x, label):
        variables = {"params": state.params[name], **state.extra["variables"][name]}
        keep = list(state.extra["variables"][name])
        network = quick_jit(
            lambda *inputs: models[name].apply(*inputs, train=True, mutable=keep)[0]
        )
        return network(variables, x, label)

    fake = apply("generator", start, noise, batch["label"])
    real = batch["image"].astype(np.float32) / 127.5 - 1
    both = jnp.concatenate([real, fake])
    logits = apply("discriminator", start, both, jnp.zeros(16, int))
    expected = np.maximum(1 - logits[:8], 0), np.maximum(1 + logits[8:], 0)
    actual = metrics["loss_real"], metrics["loss_fake"]
    for (total, count), losses in zip(actual, expected, strict=True):
        np.testing.assert_allclose(total, losses.sum(), rtol=1e-3)
        assert count == 8
    # The generator's loss is measured by the updated discriminator.
    new, _ = stepped()
    logits = apply("discriminator", new, fake, jnp.zeros(8, int))
    total, count = metrics["loss_generator"]
    np.testing.assert_allclose(total / count, -logits.mean(), rtol=1e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_the_right_slopes_and_hinges_saturate(name):
    loss, logits = LOSSES[name], jnp.array([-2.0, -0.5, 0.5, 2.0])
    slopes = [jax.vmap(jax.grad(part))(logits) for part in loss]
    assert (slopes[0] <= 0).all() and (slopes[1] >= 0).all() and (slopes[2] < 0).all()
    if name == "hinge":  # eq. 4 of Zhang et al.
        expected = [-1, -1, -1, 0], [0, 1, 1, 1], [-1, -1, -1, -1]
        np.testing.assert_array_equal(slopes, expected)
    else:
        close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
        close(loss.real(logits), -jnp.log(jax.nn.sigmoid(logits)))
        close(loss.fake(logits), -jnp.log(jax.nn.sigmoid(-logits)))
        close(loss.generator(logits), loss.real(logits))


def test_batch_norm_normalises_real_and_generated_images_separately():
    def record_batch_sizes(objective):
        sizes, apply = [], objective.apply

        def recording(name, params, variables, x, label):
            if name == "discriminator":
                sizes.append(len(x))
            return apply(name, params, variables, x, label)

        objective.apply = recording
        return sizes

    changes = {"architecture": dcgan.Generator, "model.size": 16, "loss": "log"}
    changes |= {"discriminator_architecture": dcgan.Discriminator}
    changes |= {"attention.generator": (), "attention.discriminator": ()}
    batch = images.batches(None, 16, batch_size=8, seed=0)[0]
    for spectral, expected in ((True, [16, 8]), (False, [8, 8, 8])):
        fields = config(**changes, **{"model.spectral": spectral})
        objective = Adversarial(fields, Assets()).objective
        batch_sizes = record_batch_sizes(objective)
        start = jax.eval_shape(objective.init, jax.random.key(0))
        new, _ = jax.eval_shape(objective.step, start, batch, jax.random.key(1))
        assert jax.tree.structure(new) == jax.tree.structure(start)
        assert batch_sizes == expected


# --- metrics of generated images


def test_the_network_of_the_evaluation_is_read_before_training(monkeypatch, tmp_path):
    def offline():
        raise UserError("the network cannot be reached")

    monkeypatch.setattr(frozen, "parameters", offline)
    (tmp_path / "images" / "cats").mkdir(parents=True)
    Image.new("RGB", (11, 13)).save(tmp_path / "images" / "cats" / "a.png")
    changes = {"data.source": "folder", "data.folder": str(tmp_path / "images")}
    with pytest.raises(UserError, match="cannot be reached"):
        Adversarial.prepare(config(**changes), tmp_path / "run", training=True)
    Adversarial.prepare(config(), tmp_path / "run", training=True)  # corners need none


def test_generated_images_are_compared_with_as_many_real_ones_of_their_classes(
    monkeypatch,
):
    changes = {"data.source": "openmoji", "evaluation.images": 90}
    openmoji = Adversarial(config(**changes), Assets(("a", "b", "c")))
    values = np.full((30, 8, 8, 3), 255, np.uint8)
    labels = np.repeat(np.arange(3, dtype=np.int32), [20, 9, 1])
    values[..., 0] = 80 * labels[:, None, None]
    openmoji.__dict__["images"] = images.LabelledImages(values, labels, ("a", "b", "c"))
    features = lambda x: x.reshape(len(x), -1)[:, :3] / 255 + 1e-3 * rng(0).random(3)  # noqa: E731
    classes = lambda x: np.eye(256)[x[:, 0, 0, 0]]  # noqa: E731
    network = lambda params, x, size: (features(x), classes(x))  # noqa: E731
    monkeypatch.setattr(efficientnet, "features_and_classes", network)
    monkeypatch.setattr(frozen, "parameters", dict)
    requests = []

    def copy_real_images(average, classes, seed):
        requests.append(classes)
        return values[[list(labels).index(label) for label in classes]]

    openmoji.generator.images = copy_real_images
    scores = evaluate.evaluate(openmoji, state(), "validation").scores
    assert "frechet_real" not in scores
    assert np.abs(np.bincount(requests[0]) / 90 - [2 / 3, 0.3, 1 / 30]).max() < 0.15
    assert 0 <= scores["frechet"] < 1e-6 and scores["quality"] == -scores["frechet"]
    assert 1.5 < scores["score"] < 3
    scores = evaluate.evaluate(openmoji, state(), "test", NoOptions()).scores
    assert (requests[0] != requests[1]).any()
    assert 0 <= scores["frechet_real"] < 1 and scores["images"] == 90
    openmoji.generator.images = lambda _, classes, seed: values[:1].repeat(90, 0)
    assert evaluate.evaluate(openmoji, state(), "validation").scores["frechet"] > 0.001


def test_the_images_of_a_line_depend_on_its_class_and_the_seed_alone(tmp_path):
    corners = create(config(), tmp_path, training=True)

    def drawn(seed, *lines):
        options = SeedOptions(seed=seed)
        given = dict.fromkeys(lines, "corners")
        predictions = evaluate.predict(corners, state(), given, options, False)
        return [prediction.details[0].tobytes() for prediction in predictions]

    (alone,) = drawn(3, 1)
    assert drawn(3, 2, 5) == [alone, alone] != drawn(4, 2, 5)


def test_a_step_updates_the_estimates_and_statistics_of_both_networks():
    """Each network makes one power iteration, and the generator averages one batch."""
    new, _ = stepped()
    for name in ("generator", "discriminator"):
        old = state().extra["variables"][name]
        changed = new.extra["variables"][name]
        leaves, _ = jax.tree_util.tree_flatten_with_path(old["spectral"])
        for path, u in leaves:
            *layers, norm, variable = (key.key for key in path)
            if not variable.endswith("/u"):
                continue
            kernel, next_u = state().params[name], changed["spectral"]
            for layer in layers:
                kernel, next_u = kernel[layer], next_u[layer]
            matrix = kernel[norm.removesuffix("_norm")]["kernel"]
            matrix = matrix.reshape(-1, matrix.shape[-1])
            expected = u @ matrix.T @ matrix
            expected /= jnp.linalg.norm(expected)
            np.testing.assert_allclose(next_u[norm][variable], expected, atol=1e-4)
    statistics = new.extra["variables"]["generator"]["batch_stats"]
    flat, _ = jax.tree_util.tree_flatten_with_path(statistics)
    steps = [x for path, x in flat if path[-1].key == "steps"]
    assert steps and all(x == 1 for x in steps)


def replaced(part):
    """A state in which the last generator or its average is another one."""
    other = jax.tree.map(lambda x: x + 0.3, state().params["generator"])
    if part == "last":
        return state().replace(params=state().params | {"generator": other})
    return state().replace(extra=state().extra | {"average": other})


def generate(state, labels, seed):
    ((images, _),) = task().answers(state, [adversarial.Noise(labels, seed)])
    return images


def test_images_are_those_of_the_average_and_never_of_the_last_generator():
    labels = np.zeros(3, np.int32)
    expected = generate(state(), labels, 0)
    assert (generate(replaced("last"), labels, 0) == expected).all()
    assert (generate(replaced("average"), labels, 0) != expected).any()


def test_figures_show_the_average_and_never_the_last_generator(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(
        adversarial, "image_grid", lambda rows, *_, **__: drawn.append(rows)
    )

    def record(images, records, suffixes, **_):
        drawn.extend([images, *(np.asarray(record.weights) for record in records)])
        return []

    monkeypatch.setattr(adversarial, "map_attention", record)

    def figures(new):
        drawn.clear()
        evaluate.draw(task(), new, Evaluation("test", {}), tmp_path)
        return list(drawn)

    expected = figures(state())
    assert len(expected) == 3  # a grid, images and their attention
    for array, other in zip(expected, figures(replaced("last")), strict=True):
        assert (array == other).all()
    for array, other in zip(expected, figures(replaced("average")), strict=True):
        assert (array != other).any()


def test_over_a_batch_of_images_each_has_its_own_noise():
    """The last batch is partial; filler images are left out."""
    labels = np.zeros(211, np.int32)
    generated = generate(state(), labels, 0)
    assert generated.shape == (211, 16, 16, 3) and generated.dtype == np.uint8
    assert len({image.tobytes() for image in generated}) == 211
    assert (generate(state(), labels[:103], 0) == generated[:103]).all()
    other = generate(state(), labels[:103], 1)
    assert (other != generated[:103]).any((1, 2, 3)).all()


def test_generated_images_have_the_classes_asked_for_in_their_order():
    model = ClassImages()
    generator = ImageGenerator(model, lambda rng, label: jnp.zeros(len(label)), 5)
    labels = np.arange(13, dtype=np.int32) % 7
    generated = generator.images({}, labels, 0)
    assert (generated[:, 0, 0, 0] == 10 * labels).all()
    generated, _ = generator.attention({}, labels[:3], 0)
    assert (generated[:, 0, 0, 0] == 10 * labels[[0, 1, 2, 0, 1]]).all()


class ClassImages:
    """A generator of images whose value is ten times their class."""

    def apply(self, variables, noise, label, *, train, mutable):
        assert not train
        images = jnp.broadcast_to(label[:, None, None, None], (len(label), 2, 2, 3))
        return 10 * images / 127.5 - 1, {}
