"""Helpers for tests of translators: corpora, batches, full passes, decoding steps."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import errors

from base.fields import defaults
from base.records import AttentionRecord, SampleRecord, records_of
from models import layers, recurrent
from tasks.translation import parallel_text
from tasks.translation.corpus import TranslationData

BATCH, SOURCE, TARGET, VOCAB = 3, 7, 5, 23

# These tests mostly compile. With these options they take less than half the time.
COMPILER_OPTIONS = {"xla_backend_optimization_level": 0}
if jax.__version_info__ < (0, 12):  # later versions reject it
    COMPILER_OPTIONS["xla_cpu_use_fusion_emitters"] = False
quick_jit = functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)


def load(corpus, source, target, files=None, **fields):
    """Reads a corpus, by default without made-up names."""
    data = defaults(TranslationData)
    languages = {"source_language": source, "target_language": target}
    data.update({"corpus": corpus, "made_up_names": 0.0} | languages | fields)
    data.files.update(files or {})
    return parallel_text.load(data)


def sentences():
    """A batch in which source 1 and target 2 have padding."""
    rng = np.random.default_rng(0)
    source = rng.integers(4, VOCAB, (BATCH, SOURCE))
    target = rng.integers(4, VOCAB, (BATCH, TARGET))
    source[1, 4:] = 0
    target[2, 3:] = 0
    return {"source": jnp.asarray(source), "target": jnp.asarray(target)}


def instances(size=7):
    """A batch of sets of points; the second and third are smaller and padded."""
    rng = np.random.default_rng(0)
    lengths = np.array([size, size - 2, size - 1])
    inputs = rng.random((BATCH, size, 2), np.float32)
    target = np.zeros((BATCH, size + 1), np.int32)
    for b, n in enumerate(lengths):
        inputs[b, n:] = 0
        target[b, :n] = 1 + rng.permutation(n)
    return {
        "inputs": jnp.asarray(inputs),
        "lengths": jnp.asarray(lengths, jnp.int32),
        "target": jnp.asarray(target),
    }


def inputs_of(model):
    """A batch: `sentences`, feature maps, images, spectrograms or `instances`."""
    rng, batch = np.random.default_rng(0), sentences()
    if hasattr(model, "process_steps"):
        return instances()
    if hasattr(model, "listener"):
        frames = jnp.asarray(rng.standard_normal((BATCH, 11, 5)), jnp.float32)
        batch["source"] = {"frames": frames, "lengths": jnp.array([11, 8, 5])}
    elif getattr(model, "encoder", "") == "maps":
        maps = rng.standard_normal((BATCH, 2, 3, 5))
        batch["source"] = jnp.asarray(maps, jnp.float32)
    elif getattr(model, "encoder", "") == "cnn":
        batch["source"] = jnp.asarray(rng.integers(0, 256, (BATCH, 8, 12, 3)), "uint8")
    return batch


def shapes_of(model):
    return jax.eval_shape(
        lambda: model.init(jax.random.key(0), inputs_of(model), train=False)["params"]
    )


def normal_like(shapes, dtype=None):
    """Normal parameters, large enough that each affects the output.

    The scale of a norm has mean 1, all others mean 0.
    """
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
    """Returns a model, its variables and a batch; later `changes` override earlier."""
    model = family(**functools.reduce(lambda a, b: a | b, changes))
    return model, variables_of(model), inputs_of(model)


@functools.partial(quick_jit, static_argnums=0)
def forward_with_records(model, variables, batch, rngs=None):
    """Logits of a full pass, and the arrays of a recurrent model's records by name."""
    logits, sown = model.apply(
        variables, batch, train=False, mutable=["attention", "reinforce"], rngs=rngs
    )
    records = [*records_of(sown, AttentionRecord), *records_of(sown, SampleRecord)]
    names = ("weights", "position", "log_probability", "entropy")
    return logits, {
        name: getattr(record, name)
        for record in records
        for name in names
        if getattr(record, name, None) is not None
    }


def forward(model, variables, batch):
    """Logits of a full pass."""
    return forward_with_records(model, variables, batch)[0]


@functools.partial(quick_jit, static_argnums=0)
def encode(model, variables, source):
    return model.apply(variables, source, method="encode")


@functools.partial(quick_jit, static_argnums=0)
def step(model, variables, carry, token, memory):
    return model.apply(variables, carry, token, memory, method="step")


def start(model, variables, memory, *, hypotheses):
    return model.apply(
        variables, memory, rows=hypotheses, length=TARGET + 2, method="start"
    )


def decode(model, variables, batch, hypotheses):
    """Decodes step by step, where each hypothesis continues a random parent.

    Args:
        model: a translator.
        variables: of the model.
        batch: see `sentences`; only the source is used.
        hypotheses: R.

    Returns:
        Logits [B, R, T, W] and tokens [B, R, T] on the path of each final hypothesis.
    """
    shape = (BATCH, hypotheses)
    memory = encode(model, variables, batch["source"])
    carry = start(model, variables, memory, hypotheses=hypotheses)
    rng = np.random.default_rng(2)
    tokens = np.zeros((*shape, 0), np.int32)
    token = np.full(shape, 1)
    logits = np.zeros((*shape, 0, VOCAB))
    for _ in range(TARGET):
        carry, step_logits, weights = step(
            model, variables, carry=carry, token=jnp.asarray(token), memory=memory
        )
        if weights is not None:
            assert weights.shape[:2] == shape
        logits = np.concatenate([logits, step_logits[:, :, None]], axis=2)
        parent = rng.integers(0, hypotheses, shape)
        token = rng.integers(4, VOCAB, shape)
        carry = carry.take(jnp.asarray(parent))
        tokens = np.take_along_axis(tokens, parent[..., None], axis=1)
        logits = np.take_along_axis(logits, parent[..., None, None], axis=1)
        tokens = np.concatenate([tokens, token[..., None]], axis=2)
    return logits, tokens


def check_steps_equal_the_full_pass(model, variables, batch, *, hypotheses):
    logits, tokens = decode(model, variables, batch, hypotheses=hypotheses)
    passes = [  # one for each hypothesis
        forward(model, variables, dict(batch, target=jnp.asarray(target)))
        for target in np.moveaxis(tokens, 1, 0)
    ]
    expected = np.stack(passes, axis=1)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(logits, expected, atol=2e-5)  # another order of sums


def check_padding_changes_nothing(model, variables, batch):
    """Pads the sequences of a batch and adds sentences that are all padding."""
    logits = forward(model, variables, batch)
    padded = {name: jnp.pad(x, ((0, 2), (0, 3))) for name, x in batch.items()}
    padded_logits = forward(model, variables, padded)
    assert np.isfinite(padded_logits).all()
    mask = batch["target"] != 0
    padded_logits = padded_logits[:BATCH, :TARGET]
    np.testing.assert_allclose(padded_logits[mask], logits[mask], atol=1e-5)


def check_no_later_token_changes_earlier_logits(model, variables, batch):
    logits = forward(model, variables, batch)
    for t in range(TARGET):
        changed = dict(batch, target=batch["target"].at[:, t].set(9))
        change = np.abs(forward(model, variables, changed) - logits)[:2]
        # Token t is an input from step t + 1 on.
        np.testing.assert_array_equal(change[:, : t + 1], 0)
        if t + 1 < TARGET:
            assert change[:, t + 1].max() > 1e-3


def check_dropout_needs_its_stream_and_changes_with_it(model, variables, batch):
    def logits(seed=None):
        rngs = None if seed is None else {"dropout": jax.random.key(seed)}
        return model.apply(variables, batch, train=True, rngs=rngs)

    with pytest.raises(errors.InvalidRngError, match="dropout"):
        jax.eval_shape(logits)
    logits = quick_jit(logits)
    np.testing.assert_array_equal(logits(0), logits(0))
    assert np.abs(logits(0) - logits(1)).max() > 1e-2


def check_dropout_sites(model, variables, batch, sites):
    """Checks that dropout applies to arrays of these shapes, and that each matters.

    Args:
        model: a model with a dropout rate above 0.
        variables: of the model.
        batch: its input.
        sites: {shape: number of arrays}.
    """
    shapes = []

    def logits(zeroed):
        """Logits if dropout sets one array to 0 and changes no other."""
        shapes.clear()

        def dropout(x, rate, rng):
            assert rate == model.dropout
            shapes.append(x.shape)
            return jnp.where(zeroed == len(shapes) - 1, 0, x)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layers, "dropout", dropout)
            patch.setattr(recurrent, "dropout", dropout)
            rngs = {"dropout": jax.random.key(0)}
            return model.apply(variables, batch, train=True, rngs=rngs)

    logits = quick_jit(logits)
    expected = logits(-1)
    assert collections.Counter(shapes) == sites
    for index, shape in enumerate(shapes):
        assert np.abs(logits(index) - expected).max() > 1e-3, (index, shape)


def check_a_field_is_refused(family, fields, message):
    with pytest.raises(ValueError, match=message):
        parameter_count(family(**fields))


@functools.partial(quick_jit, static_argnums=0)
def initial(model):
    """The initial parameters of a model."""
    return model.init(jax.random.key(0), inputs_of(model), train=False)["params"]


def descend(loss, params, rate, updates):
    """Returns the loss before each of `updates` steps of Adam."""
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


def overfit(model):
    """Trains on `inputs_of`; returns the loss per token before each update."""
    batch = inputs_of(model)

    def loss(params):
        logits = model.apply({"params": params}, batch, train=False)
        labels = jax.nn.one_hot(batch["target"], VOCAB)
        mask = batch["target"] != 0
        losses = -jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1)
        return jnp.sum(losses, where=mask) / mask.sum()

    return descend(loss, variables_of(model)["params"], rate=0.03, updates=150)


def reached(gradient):
    """Names of the parts of a model whose gradient is not 0."""
    leaves = {name: jax.tree.leaves(part) for name, part in gradient.items()}
    return {name for name, each in leaves.items() if any(map(np.any, each))}


def plain_scan(step, matrices, shared, carry, inputs):
    """`attention.fast.scan.scan` by the library's."""
    return jax.lax.scan(
        lambda carry, x: step(matrices, shared, carry, x), carry, inputs
    )


def softmax(x):
    """Softmax of one row."""
    exps = np.exp(x - np.max(x))
    return exps / exps.sum()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(x, state, weights):
    """Bahdanau et al. (2015), A.1.1, unbatched; x is W y + b for r, z and s~."""
    n = state.shape[-1]
    u_r, u_z = weights["gates"][:, :n], weights["gates"][:, n:]
    r = sigmoid(x[:n] + state @ u_r)
    z = sigmoid(x[n : 2 * n] + state @ u_z)
    candidate = np.tanh(x[2 * n :] + (r * state) @ weights["candidate"])
    return (1 - z) * state + z * candidate


def lstm(x, carry, weights):
    """LSTM without peepholes, unbatched; carry is h and c side by side."""
    h, c = np.split(carry, 2)
    i, f, o, g = np.split(x + h @ weights["gates"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(c), c])


def rnn(x, state, weights):
    """Elman (1990), unbatched."""
    return np.tanh(x + state @ weights["state"])


LOOPS = {"rnn": rnn, "gru": gru, "lstm": lstm}


def affine(x, params):
    return x @ params["kernel"] + params["bias"]
