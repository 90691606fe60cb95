"""LSTMN: its equations, the limit that is an LSTM, causality, fusion, and its steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from translators import descend, sigmoid

from attention.core import attend
from attention.scores import SCORES
from attention.tape import Tape
from base.errors import FieldError
from base.records import AttentionRecord, records_of
from models import lstmn
from models.attention import MATCHING_SCORES
from models.cells import LSTMMatrices, lstm
from models.lstm_language import LSTMLanguageModel
from models.lstmn import (
    LSTMNLanguageModel,
    LSTMNLayer,
    LSTMNState,
    TapeMatrices,
)
from models.memory_network_language import MemoryNetworkLanguageModel
from models.transformer_language import TransformerLanguageModel

B, T, S, K, C, D, A, W = 2, 7, 5, 11, 3, 13, 17, 19


def layer(**fields):
    return LSTMNLayer(**{"features": D, "memory": K, "score": "additive"} | fields)


def build(draw, x, **fields):
    module = layer(score_hidden=A, **fields)
    state = LSTMNState.start(B, module.memory, D)
    params = jax.jit(module.init)(jax.random.key(0), x, state)["params"]
    return module, {"params": as_drawn(params, x)}, state


def as_drawn(params, x):
    return jax.tree.map(lambda leaf: leaf.astype(x.dtype), params)


def read_in_a_loop(query, summary, key, value, valid, *, w, v):
    """The read vectors and the weights of one token, by eqs. 4 to 6."""
    scores = [
        np.tanh(k + query + summary @ w.summary) @ v if inside else -np.inf
        for k, inside in zip(key, valid, strict=True)
    ]
    s = np.exp(scores) / np.exp(scores).sum()
    context = sum(p * np.asarray(x) for p, x in zip(s, value, strict=True))
    return *np.split(context, 2), s


@pytest.mark.parametrize("deep", [False, True])
def test_a_step_equals_its_equations_in_a_python_loop(draw, x64, deep):
    def tape_weights():
        return TapeMatrices(draw(D, A), draw(D, A))

    w = lstmn.Matrices(draw(D, 4 * D), tape_weights())
    shared, carry = lstmn.Shared(draw(A)), lstmn.Carry(draw(B, D))
    x = lstmn.Token(draw(B, 4 * D), draw(B, A))
    key, value = draw(B, K, A), draw(B, K, 2 * D)
    valid = jnp.arange(K) >= jnp.array([[0], [4]])
    if deep:
        present = (jnp.arange(S) < jnp.array([[S], [2]])).astype(jnp.float64)
        other = Tape(draw(B, S, A), draw(B, S, 2 * D), present)
        w = w._replace(inter=tape_weights(), fuse=draw(D, D))
        shared = shared._replace(source=other, u=draw(A))
        x = x._replace(inter=draw(B, A), fuse=draw(B, D))
        carry = carry._replace(gamma=draw(B, D))
    following, entry, (hidden, attended), weights = lstmn.lstmn(
        w, shared, (key, value), valid, carry, x
    )
    for b in range(B):
        summary, previous, s = read_in_a_loop(
            x.intra[b], carry.h[b], key[b], value[b], valid[b], w=w.intra, v=shared.v
        )
        gates = np.asarray(x.gates[b] + summary @ w.gates)
        i, f, o, g = gates.reshape(4, D)
        c = sigmoid(f) * previous + sigmoid(i) * np.tanh(g)
        if deep:
            text = [leaf[b] for leaf in other]
            gamma, alpha, p = read_in_a_loop(
                x.inter[b], carry.gamma[b], *text, w=w.inter, v=shared.u
            )
            c += sigmoid(np.asarray(x.fuse[b] + gamma @ w.fuse)) * alpha
            np.testing.assert_allclose(attended[b], p, atol=1e-12)
            np.testing.assert_allclose(following.gamma[b], gamma, atol=1e-12)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(weights[b], s, atol=1e-12)
        np.testing.assert_allclose(following.h[b], summary, atol=1e-12)
        np.testing.assert_allclose(hidden[b], h, atol=1e-12)
        np.testing.assert_allclose(entry[0][b], h @ w.intra.key, atol=1e-12)
        np.testing.assert_allclose(entry[1][b], np.concatenate([h, c]), atol=1e-12)


@pytest.mark.parametrize("name", MATCHING_SCORES)
def test_a_score_is_that_of_token_and_summary_as_one_query(draw, x64, name):
    x, summary, h = draw(B, C), draw(B, D), draw(B, K, D)
    w_x, w_summary, w_h, v = draw(C, A), draw(D, A), draw(D, A), draw(A)
    projected = (x @ w_x + summary @ w_summary)[:, None]
    actual = MATCHING_SCORES[name].compare(projected, h @ w_h, v=v)
    query, matrix = jnp.concatenate([x, summary], -1), jnp.concatenate([w_x, w_summary])
    parameters = (matrix, w_h, v) if "v" in SCORES[name].parameters else (matrix, w_h)
    expected = SCORES[name](query[:, None], h, *parameters)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_weights_on_the_last_token_alone_make_it_an_lstm_to_the_last_bit(
    draw, monkeypatch
):
    """Everything in the cell except the attention must equal an LSTM."""

    def last(scores, mask):
        slots = scores.shape[-1]  # token t is in slot t, as there are K > T slots
        return jax.nn.one_hot(mask.sum(-1) - 1, slots) * mask

    forced = functools.partial(attend, align=last)
    monkeypatch.setattr("attention.tape.attend", forced)
    x = draw(B, T, C)
    module, variables, state = build(draw, x)
    params = variables["params"]
    tape, _ = module.apply(variables, x, state)
    carry = jnp.zeros((B, 2 * D))
    u = LSTMMatrices(params["state"]["gates"])
    gates = x @ params["input"]["kernel"] + params["input"]["bias"]
    step = jax.jit(lambda x, carry: lstm(x, carry, u))  # rounds as the compiled scan
    for t in range(T):
        carry = step(gates[:, t], carry)
        np.testing.assert_array_equal(tape.value[:, t], carry)


def test_a_tape_of_one_slot_is_an_lstm():
    sizes = {"vocab_size": W, "embedding": C, "hidden": D, "layers": 2}
    model = LSTMNLanguageModel(**sizes, memory=1, score_hidden=A)
    params = initial(model)["params"]
    plain = {
        name: {n: x for n, x in leaves.items() if n != "intra"}
        if name.startswith("stack")
        else leaves
        for name, leaves in params.items()
    }
    actual, _ = model.apply({"params": params}, TOKENS, train=False)
    expected, _ = LSTMLanguageModel(**sizes).apply(
        {"params": plain}, TOKENS, train=False
    )
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("slots", "score"),
    [(3, "additive"), (T, "additive"), (K, "additive"), (3, "scaled_multiplicative")],
)
def test_a_layer_equals_its_steps(draw, slots, score):
    x = draw(B, T, C)
    module, variables, state = build(draw, x, memory=slots, score=score)
    read = jax.jit(module.apply)
    whole, last = read(variables, x, state)
    for t in range(T):
        step, state = read(variables, x[:, t : t + 1], state)
        for all_steps, single in zip(whole, step, strict=True):
            np.testing.assert_allclose(all_steps[:, t], single[:, 0], atol=2e-6)
    for x, y in zip(last, state, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-6)


TOKENS = jax.random.randint(jax.random.key(1), (B, T), 4, W)


def initial(model):
    init = jax.jit(functools.partial(model.init, train=False))
    return {"params": init(jax.random.key(0), TOKENS)["params"]}


def models():
    sizes = {"vocab_size": W, "layers": 2, "memory": K}
    recurrent = {"embedding": C, "hidden": D}
    lstmn_fields = sizes | recurrent | {"score_hidden": A}
    return {
        "lstmn": LSTMNLanguageModel(**lstmn_fields),
        "no_skip": LSTMNLanguageModel(**lstmn_fields, skip=False),
        "lstm": LSTMLanguageModel(W, C, D, 2),
        **{
            positions: TransformerLanguageModel(
                **sizes,
                d_model=12,
                heads=2,
                d_ff=D,
                positions=positions,
                max_distance=K,
            )
            for positions in ("relative", "sinusoidal", "rotary")
        },
        "memory_network": MemoryNetworkLanguageModel(W, D, 2, K, init_scale=0.5),
        "short_memory": MemoryNetworkLanguageModel(W, D, 2, 4, init_scale=0.5),
    }


@pytest.fixture(scope="module", params=models())
def reader(request):
    """A language model and a function that reads a part of each text."""
    model = models()[request.param]
    apply = jax.jit(functools.partial(model.apply, train=False))
    return model, functools.partial(apply, initial(model))


def test_a_later_token_changes_nothing_before_it(reader):
    _, read = reader
    before, _ = read(TOKENS)
    after, _ = read(TOKENS.at[:, 4].set((TOKENS[:, 4] + 1) % W))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (abs(before[:, 4:] - after[:, 4:]).max(-1) > 0).all()


def test_a_text_in_parts_equals_the_whole(reader):
    model, read = reader
    whole, _ = read(TOKENS)
    carry, parts = model.start(B), []
    for part in jnp.split(TOKENS, [1, 5], 1):
        part_logits, carry = read(part, carry)
        parts.append(part_logits)
    np.testing.assert_allclose(jnp.concatenate(parts, 1), whole, atol=2e-5)


def test_a_transformer_with_a_short_memory_reads_its_tokens_as_a_text():
    memory = 3
    model = models()["sinusoidal"].clone(memory=memory)
    variables = initial(model)
    read = jax.jit(functools.partial(model.apply, variables, train=False))
    _, carry = read(TOKENS[:, :5])
    part, _ = read(TOKENS[:, 5:], carry)
    window, _ = read(TOKENS[:, 5 - memory :])
    np.testing.assert_allclose(part, window[:, memory:], atol=2e-5)


@pytest.mark.parametrize("name", ["lstmn", "memory_network"])
def test_it_overfits_one_batch(name):
    model = models()[name].clone(layers=1) if name == "lstmn" else models()[name]
    assert len(set(TOKENS[:, 0].tolist())) == B  # tells the texts apart

    def loss(params):
        logits, _ = model.apply({"params": params}, TOKENS[:, :-1], train=True)
        return optax.softmax_cross_entropy_with_integer_labels(
            logits, TOKENS[:, 1:]
        ).mean()

    losses = descend(loss, initial(model)["params"], 0.02, 200)
    assert losses[0] > 1.5 and losses[-1] < 0.05


def test_padding_is_not_stored(draw):
    x = draw(B, T, C)
    module, variables, state = build(draw, x)
    mask = jnp.arange(T) < jnp.array([[T], [4]])
    junk = jnp.where(mask[..., None], x, 1e3)
    tape, state_after = module.apply(variables, junk, state, mask)
    short, _ = module.apply(variables, x[:, :4], state)
    np.testing.assert_array_equal(tape.key[1, :4], short.key[1])
    np.testing.assert_array_equal(state_after.valid[1].sum(), 4)
    np.testing.assert_array_equal(tape.valid, mask)


def fused(draw, x, source):
    module = layer(score_hidden=A)
    state = LSTMNState.start(B, module.memory, D)
    params = jax.jit(module.init)(jax.random.key(0), x, state, None, source)["params"]
    return module, {"params": as_drawn(params, x)}, state


def test_deep_fusion_with_its_gate_at_0_is_the_shallow_cell(draw):
    x, source = draw(B, T, C), read_source(draw)
    module, variables, state = fused(draw, x, source)
    params = variables["params"]
    closed = params | {
        "gate": jnp.zeros((D, D)),
        "input_gate": {"kernel": jnp.zeros((C, D)), "bias": jnp.full(D, -1e4)},
    }
    tape, _ = module.apply({"params": closed}, x, state, None, source)
    shallow, _ = module.apply(variables, x, state)
    np.testing.assert_array_equal(tape.value, shallow.value)
    opened, _ = module.apply(variables, x, state, None, source)
    assert abs(opened.value - shallow.value).max() > 0.01


def read_source(draw):
    source, variables, state = build(draw, draw(B, S, C))
    mask = jnp.arange(S) < jnp.array([[S], [2]])
    return source.apply(variables, draw(B, S, C), state, mask)[0]


@pytest.mark.parametrize("slots", [3, T, K])
def test_no_state_is_the_state_at_the_beginning(draw, slots):
    x, source = draw(B, T, C), read_source(draw)
    module = layer(score_hidden=A, memory=slots)
    state = LSTMNState.start(B, slots, D)
    init = jax.jit(module.init)
    params = init(jax.random.key(0), x, state, None, source)["params"]
    mask = jnp.arange(T) < jnp.array([[T], [4]])

    @functools.partial(jax.value_and_grad, has_aux=True)
    def read(params, state):
        (tape, last), sown = module.apply(
            {"params": params}, x, state, mask, source, mutable=["attention"]
        )
        loss = jnp.sin(3 * tape.value).sum() + last.summary.sum()
        weights = [r.weights for r in records_of(sown, AttentionRecord)]
        valid = last.valid[..., None]
        return loss, (tape, last.valid, last.value * valid, last.summary, weights)

    actual, expected = (jax.jit(read)(params, start) for start in (None, state))
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5),
        actual,
        expected,
    )


def test_padding_of_the_other_text_has_no_effect(draw):
    x, source = draw(B, T, C), read_source(draw)
    module, variables, state = fused(draw, x, source)
    empty = ~source.valid[..., None]
    junk = source._replace(
        key=jnp.where(empty, 1e3, source.key),
        value=jnp.where(empty, 1e3, source.value),
    )
    (tape, _), sown = module.apply(
        variables, x, state, None, junk, mutable=["attention"]
    )
    expected, _ = module.apply(variables, x, state, None, source)
    np.testing.assert_array_equal(tape.value, expected.value)
    cross, intra = records_of(sown, AttentionRecord)
    assert (cross.kind, cross.weights.shape) == ("cross", (B, 1, T, S))
    np.testing.assert_array_equal(cross.weights[1, ..., 2:], 0)
    np.testing.assert_allclose(cross.weights.sum(-1), 1, atol=1e-6)
    assert (intra.kind, intra.weights.shape) == ("intra", (B, 1, T, T))
    np.testing.assert_array_equal(intra.weights, jnp.tril(intra.weights, -1))
    np.testing.assert_allclose(intra.weights[:, :, 1:].sum(-1), 1, atol=1e-6)


def test_the_gradient_of_a_layer_is_that_of_finite_differences(draw, x64):
    x, source = draw(B, T, C), read_source(draw)
    module, variables, state = fused(draw, x, source)

    def loss(params, x):
        tape, last = module.apply({"params": params}, x, state, None, source)
        return jnp.sin(3 * tape.value).sum() + last.summary.sum()

    params = variables["params"]
    loss = jax.jit(loss)
    gradient = jax.jit(jax.grad(loss, (0, 1)))(params, x)
    direction = jax.tree.map(lambda leaf: draw(*leaf.shape), (params, x))

    def along(step):
        return loss(*jax.tree.map(lambda p, d: p + step * d, (params, x), direction))

    slope = (along(1e-5) - along(-1e-5)) / 2e-5
    products = jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)
    # `Dense` layers compute in float32.
    np.testing.assert_allclose(sum(jax.tree.leaves(products)), slope, rtol=1e-4)


def test_a_score_of_another_kind_is_refused():
    model = LSTMNLanguageModel(W, score="dot")
    message = "^score is 'dot': must be one of multiplicative"
    with pytest.raises(FieldError, match=message):
        model.init(jax.random.key(0), TOKENS, train=False)


def test_the_heads_of_the_transformer_divide_its_width():
    with pytest.raises(FieldError, match="^heads is 3: must be a divisor of d_model"):
        model = TransformerLanguageModel(W, heads=3)
        model.init(jax.random.key(0), TOKENS, train=False)
    with pytest.raises(FieldError, match="^heads is 4: must be of even width"):
        model = TransformerLanguageModel(W, 12, heads=4, positions="rotary")
        model.init(jax.random.key(0), TOKENS, train=False)
