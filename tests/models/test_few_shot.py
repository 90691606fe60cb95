"""Classifiers of episodes: the null label, batch norm, matching networks, sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from translators import quick_jit

from base.records import AttentionRecord, records_of
from configs.snail_fewshot import get_config
from models.few_shot import Embedding, LSTMClassifier, MatchingNetwork, SnailClassifier

B, SIDE, WAYS, SHOTS = 2, 8, 3, 2
T = WAYS * SHOTS + 1
FIELDS = dict(ways=WAYS, shots=SHOTS, channels=(2, 5), embedding=7)
MODELS = {
    "snail": SnailClassifier(**FIELDS, blocks=((5, 3), 2)),
    "lstm": LSTMClassifier(**FIELDS, hidden=11, layers=2),
    "matching": MatchingNetwork(**FIELDS),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """A model, its variables with other batch statistics, images and labels."""
    model, rng = MODELS[request.param], np.random.default_rng(0)
    image = jnp.asarray(rng.random((B, T, SIDE, SIDE)), jnp.float32)
    label = jnp.asarray(rng.integers(0, WAYS, (B, T)))
    init = quick_jit(functools.partial(model.init, train=False))
    variables = dict(init(jax.random.key(0), image, label))
    variables.pop("attention", None)
    variables["batch_stats"] = jax.tree.map(
        lambda x: x - 0.3 * rng.random(x.shape), variables["batch_stats"]
    )
    return model, variables, image, label


@functools.partial(quick_jit, static_argnums=0)
def classify(model, variables, image, label):
    return model.apply(variables, image, label, train=False)


def test_the_label_of_the_query_is_not_read(case):
    model, variables, image, label = case
    logits = classify(*case)
    assert logits.shape == (B, WAYS)
    other = label.at[:, -1].set((label[:, -1] + 1) % WAYS)
    np.testing.assert_array_equal(logits, classify(model, variables, image, other))
    another = label.at[:, 0].set((label[:, 0] + 1) % WAYS)
    changed = classify(model, variables, image, another)
    assert abs(logits - changed).max() > 1e-6


def test_an_answer_depends_on_its_own_episode_only(case):
    model, variables, image, label = case
    logits = classify(*case)
    changed = classify(model, variables, image.at[0].multiply(-1), label)
    np.testing.assert_array_equal(changed[1:], logits[1:])
    assert abs(changed[0] - logits[0]).max() > 1e-6


def test_training_normalises_by_the_batch_and_moves_the_averages(case):
    model, variables, image, label = case
    _, new = model.apply(
        variables, image, label, train=True, mutable=["batch_stats", "attention"]
    )
    (old,), (first,) = (
        [x["mean"] for name, x in stats["Embedding_0"].items() if name[-1] == "0"]
        for stats in (variables["batch_stats"], new["batch_stats"])
    )
    kernel = variables["params"]["Embedding_0"]["Conv_0"]["kernel"]
    pixels = image.reshape(-1, SIDE, SIDE, 1)
    convolved = jax.lax.conv_general_dilated(
        pixels, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    expected = 0.9 * old + 0.1 * convolved.mean((0, 1, 2))
    np.testing.assert_allclose(first, expected, atol=1e-5)


@pytest.mark.parametrize("case", ["matching"], indirect=True)
def test_a_matching_network_sums_the_weights_of_each_class(case):
    model, variables, image, label = case
    logits, sown = model.apply(
        variables,
        image,
        label,
        train=False,
        capture_intermediates=lambda module, _: isinstance(module, Embedding),
        mutable=["attention", "intermediates"],
    )
    (record,) = records_of(sown, AttentionRecord)
    assert record.weights.shape == (B, 1, 1, T - 1)
    (x,) = jax.tree.leaves(sown["intermediates"])  # [B T, C]
    unit = (x / np.linalg.norm(x, axis=-1, keepdims=True)).reshape(B, T, -1)
    strength = np.sqrt(7)  # its initial value
    for b in range(B):
        e = np.exp(strength * unit[b, :-1] @ unit[b, -1])
        a = np.asarray(e / e.sum())
        p = [a[label[b, :-1] == n].sum() for n in range(WAYS)]
        np.testing.assert_allclose(record.weights[b, 0, 0], a, atol=1e-5)
        np.testing.assert_allclose(np.exp(logits[b]), np.maximum(p, 1e-7), atol=1e-5)


def test_the_lstm_of_the_config_has_the_size_of_snail():
    sizes = []
    for variant in ("", "lstm"):
        config = get_config(variant)
        data = config.data
        model = config.architecture(**config.model, ways=data.ways, shots=data.shots)
        image = jnp.zeros((1, data.ways + 1, 28, 28))
        label = jnp.zeros(image.shape[:2], jnp.int32)
        shapes = jax.eval_shape(
            lambda m=model, x=image, y=label: m.init(
                jax.random.key(0), x, y, train=False
            )
        )
        sizes.append(sum(x.size for x in jax.tree.leaves(shapes["params"])))
    assert 0.9 < sizes[0] / sizes[1] < 1.1


def test_odd_rows_and_columns_are_cropped_as_by_a_pooling_of_the_library():
    image = jax.random.uniform(jax.random.key(0), (3, 7, 5, 1))
    embed = Embedding((2, 3), 4)
    variables = embed.init(jax.random.key(1), image, train=False)
    actual = embed.apply(variables, image, train=False)
    x, params = image, variables["params"]
    for i in range(2):
        kernel = params[f"Conv_{i}"]["kernel"]
        x = nn.Conv(kernel.shape[-1], (3, 3), use_bias=False).apply(
            {"params": {"kernel": kernel}}, x
        )
        norm = nn.BatchNorm(use_running_average=True)
        stats = {k: variables[k][f"BatchNorm_{i}"] for k in ("params", "batch_stats")}
        x = nn.max_pool(nn.relu(norm.apply(stats, x)), (2, 2), (2, 2))
    dense = params["Dense_0"]
    expected = x.reshape(3, -1) @ dense["kernel"] + dense["bias"]
    np.testing.assert_allclose(actual, expected, atol=1e-5)
