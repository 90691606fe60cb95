"""What the tests of the translators share: a batch, variables, whole passes, steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import errors

from models.records import AttentionRecord, DrawRecord, collect

BATCH, SOURCE, TARGET, WORDS = 3, 7, 5, 23

# Most of the time of these tests is compilation, which this cuts to less than half.
OPTIONS = {"xla_backend_optimization_level": 0}
if jax.__version_info__ < (0, 12):  # later ones do not know it
    OPTIONS["xla_cpu_use_fusion_emitters"] = False
quick_jit = functools.partial(jax.jit, compiler_options=OPTIONS)


def sentences():
    """A batch in which source 1 and target 2 have padding."""
    rng = np.random.default_rng(0)
    source = rng.integers(4, WORDS, (BATCH, SOURCE))
    target = rng.integers(4, WORDS, (BATCH, TARGET))
    source[1, 4:] = 0
    target[2, 3:] = 0
    return {"source": jnp.asarray(source), "target": jnp.asarray(target)}


def shapes_of(model):
    return jax.eval_shape(
        lambda: model.init(jax.random.key(0), sentences(), train=False)["params"]
    )


def normal_like(shapes, dtype=None):
    """Normal values, around 1 for the scale of a norm, so wide that all parts show."""
    rng = np.random.default_rng(1)

    def draw(path, x):
        values = 0.5 * rng.standard_normal(x.shape)
        return jnp.asarray(values + (path[-1].key == "scale"), dtype or x.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def parameter_count(model):
    return sum(x.size for x in jax.tree.leaves(shapes_of(model)))


@functools.cache
def variables_of(model):
    return {"params": normal_like(shapes_of(model))}


def translator(family, *changes):
    """A model of fields that change from left to right, its variables and a batch."""
    model = family(**functools.reduce(lambda a, b: a | b, changes))
    return model, variables_of(model), sentences()


@functools.partial(quick_jit, static_argnums=0)
def look(model, variables, batch, rngs=None):
    """Logits of a whole pass, and what a recurrent translator sowed, by name."""
    logits, sown = model.apply(
        variables, batch, train=False, mutable=["attention", "reinforce"], rngs=rngs
    )
    records = [*collect(sown, AttentionRecord), *collect(sown, DrawRecord)]
    names = ("weights", "position", "log_probability", "entropy")
    return logits, {
        name: getattr(record, name)
        for record in records
        for name in names
        if getattr(record, name, None) is not None
    }


def forward(model, variables, batch):
    """Logits of a whole pass."""
    return look(model, variables, batch)[0]


@functools.partial(quick_jit, static_argnums=0)
def encode(model, variables, source):
    return model.apply(variables, source, method="encode")


@functools.partial(quick_jit, static_argnums=0)
def step(model, variables, carry, token, memory):
    return model.apply(variables, carry, token, memory, method="step")


def start(model, variables, memory, rows):
    return model.apply(variables, memory, rows, TARGET + 2, method="start")


def decode(model, variables, batch, rows):
    """Steps of `rows` hypotheses, each from a random parent: [B, R, T, W] and tokens.

    Logits and tokens are those on the path of each row at the end.
    """
    memory = encode(model, variables, batch["source"])
    carry = start(model, variables, memory, rows)
    rng = np.random.default_rng(2)
    history = np.zeros((BATCH, rows, 0), np.int32)
    token = np.full((BATCH, rows), 1)
    logits = np.zeros((BATCH, rows, 0, WORDS))
    for _ in range(TARGET):
        carry, out, attention = step(
            model, variables, carry, jnp.asarray(token), memory
        )
        if attention is not None:
            assert attention.weights.shape == (BATCH, rows, SOURCE)
        logits = np.concatenate([logits, out[:, :, None]], axis=2)
        parent = rng.integers(0, rows, (BATCH, rows))
        token = rng.integers(4, WORDS, (BATCH, rows))
        carry = carry.take(jnp.asarray(parent))
        history = np.take_along_axis(history, parent[..., None], axis=1)
        logits = np.take_along_axis(logits, parent[..., None, None], axis=1)
        history = np.concatenate([history, token[..., None]], axis=2)
    return logits, history


def full_pass(model, variables, batch, history):
    rows = [
        forward(model, variables, dict(batch, target=jnp.asarray(h)))
        for h in np.moveaxis(history, 1, 0)
    ]
    return np.stack(rows, axis=1)


def check_steps_equal_the_full_pass(model, variables, batch, rows):
    logits, history = decode(model, variables, batch, rows)
    expected = full_pass(model, variables, batch, history)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(logits, expected, atol=2e-5)  # sums in other order


def check_padding_changes_nothing(model, variables, batch):
    """Neither columns of padding at the end nor whole rows of it."""
    logits = forward(model, variables, batch)
    padded = {name: jnp.pad(x, ((0, 2), (0, 3))) for name, x in batch.items()}
    other = forward(model, variables, padded)
    assert np.isfinite(other).all()
    real = batch["target"] != 0
    other = other[:BATCH, :TARGET]
    np.testing.assert_allclose(other[real], logits[real], atol=1e-5)


def check_no_later_token_changes_earlier_logits(model, variables, batch):
    logits = forward(model, variables, batch)
    for t in range(TARGET):
        changed = dict(batch, target=batch["target"].at[:, t].set(9))
        other = forward(model, variables, changed)
        # Token t is an input from step t + 1 on.
        np.testing.assert_array_equal(other[:2, : t + 1], logits[:2, : t + 1])
        if t + 1 < TARGET:
            assert np.abs(other[:2, t + 1] - logits[:2, t + 1]).max() > 1e-3


def check_dropout_needs_its_stream_and_changes_with_it(model, variables, batch):
    def logits(seed=None):
        rngs = None if seed is None else {"dropout": jax.random.key(seed)}
        return model.apply(variables, batch, train=True, rngs=rngs)

    with pytest.raises(errors.InvalidRngError, match="dropout"):
        jax.eval_shape(logits)
    logits = quick_jit(logits)
    np.testing.assert_array_equal(logits(0), logits(0))
    assert np.abs(logits(0) - logits(1)).max() > 1e-2


def check_a_field_is_refused(family, fields, message):
    with pytest.raises(ValueError, match=message):
        parameter_count(family(**fields))


@functools.partial(quick_jit, static_argnums=0)
def initial(model):
    """The parameters that a model starts with."""
    return model.init(jax.random.key(0), sentences(), train=False)["params"]


def descend(loss, params, rate, updates):
    """The loss of parameters before each of some steps of Adam."""
    optimizer = optax.adam(rate)

    def update(state, _):
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params)
        changes, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(params, changes), moments), value

    @quick_jit
    def train(params):
        return jax.lax.scan(update, (params, optimizer.init(params)), length=updates)[1]

    return train(params)


def overfit(model, updates=150, rate=0.03):
    """The loss a token of `sentences` before each of some steps of Adam."""
    batch = sentences()

    def loss(params):
        logits = model.apply({"params": params}, batch, train=False)
        words = jax.nn.one_hot(batch["target"], WORDS)
        real = batch["target"] != 0
        losses = -jnp.sum(words * jax.nn.log_softmax(logits), axis=-1)
        return jnp.sum(losses, where=real) / real.sum()

    return descend(loss, variables_of(model)["params"], rate, updates)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(x, state, weights):
    """Bahdanau et al. (2015), A.1.1, for one sentence; x is W x + b of r, z and s~."""
    n = state.shape[-1]
    u_r, u_z = weights["gates"][:, :n], weights["gates"][:, n:]
    r = sigmoid(x[:n] + state @ u_r)
    z = sigmoid(x[n : 2 * n] + state @ u_z)
    candidate = np.tanh(x[2 * n :] + (r * state) @ weights["candidate"])
    return (1 - z) * state + z * candidate


def lstm(x, carry, weights):
    """An LSTM without peepholes, for one sentence; carry is (h, c) end to end."""
    h, c = np.split(carry, 2)
    i, f, o, g = np.split(x + h @ weights["gates"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(c), c])


LOOPS = {"gru": gru, "lstm": lstm}


def affine(x, params):
    return x @ params["kernel"] + params["bias"]
