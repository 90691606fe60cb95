"""RAM: its equations, which gradient reaches what, and REINFORCE on a known case."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from translators import quick_jit, reached

from attention.glimpses import glimpse
from base.records import GlimpseRecord, SampleRecord, records_of
from models.recurrent_visual import (
    DeepRecurrentAttention,
    ImageClassifier,
    RecurrentVisualAttention,
    location_record,
)
from training.reinforce import baseline_loss

B, SIDE, T, K, CLASSES = 5, 19, 3, 2, 7
FIELDS = dict(
    classes=CLASSES,
    outputs=K,
    glimpses=T,
    size=4,
    scales=2,
    glimpse_hidden=11,
    glimpse_width=13,
    hidden=17,
    locator_hidden=3,
    std=0.3,
)


@pytest.fixture(scope="module")
def image():
    values = np.random.default_rng(0).random((B, SIDE, SIDE, 1))
    return jnp.asarray(values, jnp.float32)


@pytest.fixture(scope="module")
def params(image):
    model = RecurrentVisualAttention(**FIELDS)
    rngs = {"params": jax.random.key(0), "glimpse": jax.random.key(1)}
    return model.init(rngs, image, train=True)["params"]


def look(params, image, seed=0, *, train=True, **fields):
    return applied(
        RecurrentVisualAttention(**FIELDS | fields), params, image, seed, train
    )


def applied(model, params, image, seed, train):
    return model.apply(
        {"params": params},
        image,
        train=train,
        rngs={"glimpse": jax.random.key(seed)},
        mutable=["attention", "reinforce"],
    )


def dense(x, p):
    return x @ p["kernel"] + p.get("bias", 0)


def test_evaluation_follows_the_equations_at_the_mean_locations(image, params):
    logits, sown = look(params, image, train=False)
    h, location = np.zeros((B, FIELDS["hidden"])), np.zeros((B, 2))
    locations = []
    for _ in range(T):
        locations.append(location)
        rho = glimpse(image, jnp.asarray(location), size=4, scales=2).reshape(B, -1)
        f = params["glimpse"]
        h_g = np.maximum(dense(rho, f["patch"]), 0)
        h_l = np.maximum(dense(location, f["location"]), 0)
        g = np.maximum(dense(h_g, f["what"]) + dense(h_l, f["where"]), 0)
        h = np.maximum(dense(h, params["state"]) + dense(g, params["input"]), 0)
        hidden = np.maximum(dense(h, params["locator_layer"]), 0)
        location = np.tanh(dense(hidden, params["locator"]))
    (record,) = records_of(sown, GlimpseRecord)
    np.testing.assert_allclose(record.location, np.stack(locations, 1), atol=1e-5)
    expected = dense(h, params["classifier"]).reshape(B, K, CLASSES)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert records_of(sown, SampleRecord) == []
    again, _ = look(params, image, seed=1, train=False)
    np.testing.assert_array_equal(logits, again)  # nothing is drawn


def parts_reached(model, params, image):
    """Names of the parts that cross-entropy, REINFORCE and the baseline change."""
    label = jnp.arange(B)[:, None] % CLASSES

    def losses(params):
        logits, sown = applied(model, params, image, seed=0, train=True)
        label_of_all = jnp.broadcast_to(label, logits.shape[:2])
        (draw,) = records_of(sown, SampleRecord)
        nats = optax.softmax_cross_entropy_with_integer_labels(logits, label_of_all)
        errors = baseline_loss(draw.baseline, jnp.ones((B, 1)))
        return jnp.stack([nats.sum(), draw.log_probability.sum(), errors])

    gradients = quick_jit(jax.jacrev(losses))(params)
    return [reached(jax.tree.map(lambda x, k=k: x[k], gradients)) for k in range(3)]


def test_each_loss_reaches_its_part_of_ram(image, params):
    model = RecurrentVisualAttention(**FIELDS)
    answers, locations, baseline = parts_reached(model, params, image)
    assert answers == {"glimpse", "input", "state", "classifier"}
    assert locations == {"locator", "locator_layer"}
    assert baseline == {"expected"}


def test_the_density_is_that_of_independent_normal_distributions():
    rng = np.random.default_rng(0)
    location, mean, baseline = rng.normal(size=(B, 2)), rng.normal(size=(B, 2)), 0.2
    draw = location_record(jnp.asarray(location), jnp.asarray(mean), 0.3, baseline)
    expected = stats.norm(mean, 0.3).logpdf(location).sum(-1)
    np.testing.assert_allclose(draw.log_probability, expected, rtol=1e-4)
    entropy = 2 * stats.norm(0, 0.3).entropy()
    np.testing.assert_allclose(draw.entropy, entropy, rtol=1e-5)


def test_reinforce_estimates_the_exact_gradient_of_the_expected_reward():
    # The reward is 1 if both coordinates are above 0, so that E[R] is a product of two
    # normal distribution functions.
    mean, std, count = jnp.array([0.1, -0.2]), 0.3, 200_000
    noise = jax.random.normal(jax.random.key(0), (count, 2))
    location = mean + std * noise
    reward = (location > 0).all(-1).astype(jnp.float32)

    def density(mean, location):
        draw = location_record(location[None], mean[None], std, jnp.zeros(1))
        return draw.log_probability[0]

    slopes = jax.vmap(jax.grad(density), (None, 0))(mean, location)  # [count, 2]
    z = np.asarray(mean) / std
    exact = stats.norm.pdf(z) / std * stats.norm.cdf(z)[::-1]
    for baseline in (0.0, float(reward.mean())):
        estimates = np.asarray((reward - baseline)[:, None] * slopes)
        error = estimates.std(0) / math.sqrt(count)
        assert (abs(estimates.mean(0) - exact) <= 4 * error).all()


def test_training_draws_locations_around_the_means_within_the_image(image, params):
    _, sown = look(params, image)
    (record,), (draw,) = records_of(sown, GlimpseRecord), records_of(sown, SampleRecord)
    assert record.location.shape == (B, T, 2)
    assert draw.log_probability.shape == draw.baseline.shape == (B, T - 1)
    assert abs(np.asarray(record.location)).max() <= 1
    _, other = look(params, image, seed=1)
    assert not np.array_equal(
        record.location, records_of(other, GlimpseRecord)[0].location
    )


@pytest.mark.parametrize("policy", ["random", "centre"])
def test_policies_without_learning_draw_nothing_for_reinforce(image, params, policy):
    for train in (True, False):
        _, sown = look(params, image, train=train, policy=policy)
        (record,) = records_of(sown, GlimpseRecord)
        assert records_of(sown, SampleRecord) == []
        assert bool(np.any(record.location)) == (policy == "random")


def test_the_parameters_do_not_depend_on_the_size_of_the_image(params):
    model = RecurrentVisualAttention(**FIELDS)
    rngs = {"params": jax.random.key(0), "glimpse": jax.random.key(1)}
    large = jnp.zeros((1, 97, 89, 1))
    other = jax.eval_shape(lambda: model.init(rngs, large, train=True))["params"]
    assert jax.tree.map(jnp.shape, other) == jax.tree.map(jnp.shape, params)


def test_published_sizes_are_the_defaults():
    model = RecurrentVisualAttention(classes=10)
    sizes = model.glimpses, model.size, model.scales, model.locator_hidden
    assert sizes == (7, 8, 1, 0)
    assert (model.glimpse_hidden, model.glimpse_width, model.hidden) == (128, 256, 256)


def test_a_patch_must_have_a_centre(image):
    model = RecurrentVisualAttention(**FIELDS | {"size": 5})
    with pytest.raises(ValueError, match="^size is 5: must be even"):
        model.init(jax.random.key(0), image, train=False)


@pytest.mark.parametrize("channels", [(), (3, 5)])
def test_the_classifier_without_attention_has_its_layers(image, channels):
    model = ImageClassifier(CLASSES, K, layers=(11,), channels=channels)
    params = model.init(jax.random.key(0), image, train=False)["params"]
    assert len(params) == len(channels) + 2
    logits = model.apply({"params": params}, image, train=False)
    assert logits.shape == (B, K, CLASSES)


DEEP = dict(
    classes=CLASSES,
    outputs=K,
    glimpses=T,
    size=4,
    channels=(2, 3, 5),
    width=11,
    hidden=13,
    context=6,
    std=0.3,
)


@pytest.fixture(scope="module")
def deep(image):
    """A DRAM and its parameters."""
    model = DeepRecurrentAttention(**DEEP)
    rngs = {"params": jax.random.key(0), "glimpse": jax.random.key(1)}
    return model, model.init(rngs, image, train=True)["params"]


def test_each_loss_reaches_its_part_of_dram(image, deep):
    answers, locations, baseline = parts_reached(*deep, image)
    lower = {"image_network", "location_network", "lower"}
    assert answers == lower | {"classifier"}
    assert locations == {"upper", "context_network", "emission"}
    assert baseline == {"expected"}


def test_dram_answers_do_not_depend_on_the_context_but_by_locations(image, deep):
    model, params = deep
    logits, sown = applied(model, params, image, 0, train=False)
    assert logits.shape == (B, K, CLASSES)
    (record,) = records_of(sown, GlimpseRecord)
    assert record.location.shape == (B, K * T, 2)
    # With an emission of 0, every location is the centre whatever the context says.
    still = params | {"emission": jax.tree.map(jnp.zeros_like, params["emission"])}
    blind = still | {
        "context_network": jax.tree.map(jnp.zeros_like, params["context_network"])
    }
    centred, others = (
        applied(model, x, image, 0, train=False)[0] for x in (still, blind)
    )
    np.testing.assert_array_equal(centred, others)
    assert abs(centred - logits).max() > 1e-4


def test_an_answer_of_dram_depends_on_no_later_glimpse(image, deep):
    model, params = deep
    first = applied(model, params, image, 0, train=False)[0][:, 0]
    single = DeepRecurrentAttention(**DEEP | {"outputs": 1})
    alone = applied(single, params, image, 0, train=False)[0][:, 0]
    np.testing.assert_allclose(alone, first, atol=1e-6)


def test_dram_draws_a_location_for_each_glimpse(image, deep):
    model, params = deep
    _, sown = applied(model, params, image, 0, train=True)
    (draw,) = records_of(sown, SampleRecord)
    assert draw.log_probability.shape == draw.baseline.shape == (B, K * T)


def test_dram_needs_three_convolutions(image):
    model = DeepRecurrentAttention(**DEEP | {"channels": (3, 5)})
    with pytest.raises(
        ValueError, match=r"channels is \(3, 5\): must be three numbers"
    ):
        model.init(jax.random.key(0), image, train=False)
