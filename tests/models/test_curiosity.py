"""The intrinsic curiosity module: its equations, and which loss reaches what."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from translators import affine, quick_jit, reached

from models.curiosity import (
    CuriousAgent,
    curiosity_loss,
    forward_loss,
    intrinsic_reward,
    inverse_loss,
)

B, ROWS, COLUMNS, C, A, D = 7, 11, 5, 3, 6, 13
FIELDS = dict(actions=A, layers=2, filters=2, hidden=D)


@pytest.fixture(scope="module")
def transition():
    rng = np.random.default_rng(0)
    image, following = jnp.asarray(rng.random((2, B, ROWS, COLUMNS, C)), jnp.float32)
    return image, following, jnp.asarray(rng.integers(0, A, B))


@functools.partial(quick_jit, static_argnums=0)
def created(model, transition):
    return model.init(jax.random.key(0), *transition, method="transition")["params"]


@functools.partial(quick_jit, static_argnums=0)
def predict(model, params, transition):
    return model.apply({"params": params}, *transition, method="transition")


def convolve(x, p):
    """A convolution of 3 x 3, a stride of 2 and a margin of 1, by a loop."""
    batch, rows, columns, _ = x.shape
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    out = np.zeros((batch, -(-rows // 2), -(-columns // 2), p["kernel"].shape[-1]))
    for i, j in np.ndindex(*out.shape[1:3]):
        patch = padded[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
        out[:, i, j] = affine(patch.reshape(batch, -1), p)
    return out


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def test_losses_and_reward_equal_a_loop(draw):
    predicted, features, logits = draw(B, D), draw(B, D), draw(B, A)
    action, eta, beta = np.arange(B) % A, 0.7, 0.2
    forward = forward_loss(predicted, features)
    inverse = inverse_loss(logits, jnp.asarray(action))
    for b in range(B):
        half = sum((p - f) ** 2 for p, f in zip(predicted[b], features[b], strict=True))
        np.testing.assert_allclose(forward[b], half / 2, rtol=1e-5)
        nats = logsumexp(logits[b]) - logits[b, action[b]]
        np.testing.assert_allclose(inverse[b], nats, rtol=1e-5)
    reward = intrinsic_reward(predicted, features, eta)
    np.testing.assert_allclose(reward, eta * forward, rtol=1e-6)
    loss = curiosity_loss(inverse, forward, beta)
    np.testing.assert_allclose(loss, 0.8 * inverse + 0.2 * forward, rtol=1e-5)


def test_the_reward_has_no_gradient(draw):
    reward = lambda x, y: intrinsic_reward(x, y, 1.0).sum()  # noqa: E731
    for gradient in jax.grad(reward, (0, 1))(draw(B, D), draw(B, D)):
        np.testing.assert_array_equal(gradient, 0)


def test_predictions_follow_the_equations(transition):
    model = CuriousAgent(**FIELDS)
    params = created(model, transition)
    image, following, action = map(np.asarray, transition)

    def phi(x):
        for name in ("Dense_0", "Dense_1"):
            x = elu(convolve(x, params["encoder"][name]))
        return x.reshape(B, -1)

    def layers(x, p):
        return affine(np.maximum(affine(x, p["Dense_0"]), 0), p["Dense_1"])

    now, features = phi(image), phi(following)
    actual = predict(model, params, transition)
    np.testing.assert_allclose(actual.features, features, atol=1e-5)
    logits = layers(np.concatenate([now, features], 1), params["inverse"])
    np.testing.assert_allclose(actual.logits, logits, atol=1e-5)
    taken = np.concatenate([now, np.eye(A)[action]], 1)
    predicted = layers(taken, params["forward"])
    np.testing.assert_allclose(actual.predicted, predicted, atol=1e-5)


def test_the_inverse_model_starts_near_chance(transition):
    model = CuriousAgent(**FIELDS)
    logits = predict(model, created(model, transition), transition).logits
    loss = inverse_loss(logits, transition[2]).mean()
    assert abs(loss - math.log(A)) < 0.3


@pytest.mark.parametrize(
    ("features", "inverse", "forward"),
    [
        ("icm", {"encoder", "inverse"}, {"encoder", "forward"}),
        ("pixels", set(), {"forward"}),
        ("random", set(), {"forward"}),
    ],
)
def test_each_loss_reaches_its_part(transition, features, inverse, forward):
    model = CuriousAgent(**FIELDS, features=features)
    params = created(model, transition)

    def losses(params):
        variables = {"params": params}
        predictions = model.apply(variables, *transition, method="transition")
        nats = jnp.zeros(())
        if predictions.logits is not None:
            nats = inverse_loss(predictions.logits, transition[2]).sum()
        return jnp.stack(
            [nats, forward_loss(predictions.predicted, predictions.features).sum()]
        )

    gradients = quick_jit(jax.jacrev(losses))(params)
    for k, expected in enumerate([inverse, forward]):
        assert reached(jax.tree.map(lambda x, k=k: x[k], gradients)) == expected
    if features == "pixels":
        pixels = predict(model, params, transition).features
        np.testing.assert_array_equal(pixels, transition[1].reshape(B, -1))
        assert "encoder" not in params


@pytest.mark.parametrize("memory", ["lstm", "none"])
def test_the_policy_has_parameters_of_its_own(transition, memory):
    model, observation = CuriousAgent(**FIELDS, memory=memory), {"image": transition[0]}
    start = model.start(B)
    created_policy = model.init(jax.random.key(1), start, observation, method="step")
    params = created_policy["params"]
    assert params.keys().isdisjoint(created(model, transition))
    variables = {"params": params}
    memory_after, logits, value = model.apply(
        variables, start, observation, method="step"
    )
    assert logits.shape == (B, A) and value.shape == (B,)
    _, again, _ = model.apply(variables, memory_after, observation, method="step")
    assert np.array_equal(logits, again) == (memory == "none")  # it remembers


def test_published_sizes_are_the_defaults():
    model = CuriousAgent(actions=A)
    assert (model.layers, model.filters, model.hidden) == (4, 32, 256)
    assert (model.features, model.memory) == ("icm", "lstm")
