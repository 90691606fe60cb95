"""Memory network as a language model: its equations, its window, its steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from states import stepped, task_of

from base.records import AttentionRecord, records_of
from configs import lstmn_text
from models.memory_network_language import MemoryNetworkLanguageModel
from tasks.common.vocabulary import PAD
from training import evaluate

B, T, W, D, K, P = 2, 11, 19, 5, 3, 2


def build(tokens, **fields):
    fields = {"width": D, "hops": K, "memory": 4, "init_scale": 0.7} | fields
    model = MemoryNetworkLanguageModel(W, **fields)
    init = jax.jit(functools.partial(model.init, train=False))
    return model, {"params": init(jax.random.key(0), tokens)["params"]}


def draw_tokens(seed=1):
    return jax.random.randint(jax.random.key(seed), (B, T), 4, W)


def outputs(model, variables, tokens, carry=None):
    read = functools.partial(model.apply, train=False, mutable=["attention"])
    (logits, carry), sown = jax.jit(read)(variables, tokens, carry)
    return logits, carry, records_of(sown, AttentionRecord)


def reference(params, text, t, memory, hops):
    """Logits after token t of a text, and the weights by hop and distance."""
    p = {name: np.array(x, float) for name, x in params.items()}
    distances = [d for d in range(memory) if d <= t]
    m = [p["memory_embedding"][text[t - d]] + p["memory_times"][d] for d in distances]
    c = [p["output_embedding"][text[t - d]] + p["output_times"][d] for d in distances]
    u, weights = np.full(D, 0.1), []
    for _ in range(hops):
        exps = np.exp([u @ m_i for m_i in m])
        p_k = exps / exps.sum()
        o = sum(w * c_i for w, c_i in zip(p_k, c, strict=True))
        u = u @ p["state_kernel"] + o
        for unit in range(D // 2, D):
            u[unit] = max(u[unit], 0)
        weights.append(p_k)
    return p["output"] @ u, weights


@pytest.mark.parametrize("memory", [1, 3, T, T + 6])
def test_equals_a_loop_over_the_equations_of_the_paper(memory):
    tokens = draw_tokens()
    model, variables = build(tokens, memory=memory)
    logits, _, records = outputs(model, variables, tokens)
    assert [(r.kind, r.layer) for r in records] == [("memory", k) for k in range(K)]
    for row in range(B):
        for t in range(T):
            expected, weights = reference(
                variables["params"], tokens[row], t, memory, K
            )
            np.testing.assert_allclose(logits[row, t], expected, atol=2e-5)
            for record, p_k in zip(records, weights, strict=True):
                row_weights = np.zeros(T)
                row_weights[t - np.arange(len(p_k))] = p_k
                np.testing.assert_allclose(
                    record.weights[row, 0, t], row_weights, atol=1e-6
                )


def test_a_token_is_predicted_from_the_words_of_its_memory_alone():
    """Also with several hops, as all of them read the same memory."""
    tokens = draw_tokens()
    model, variables = build(tokens)
    before, *_ = outputs(model, variables, tokens)
    changed = tokens.at[:, P].set((tokens[:, P] + 1) % W)
    after, *_ = outputs(model, variables, changed)
    differs = (before != after).any(-1)
    np.testing.assert_array_equal(
        differs, np.broadcast_to((P <= np.arange(T)) & (np.arange(T) < P + 4), (B, T))
    )


@pytest.mark.parametrize("memory", [1, 4, T + 6])
def test_the_carry_is_the_words_that_later_memories_hold(memory):
    tokens = draw_tokens()
    model, variables = build(tokens, memory=memory)
    _, carry, _ = outputs(model, variables, tokens)
    assert carry.shape == model.start(B).shape == (B, memory - 1)
    full = np.pad(tokens, ((0, 0), (memory, 0)), constant_values=PAD)
    np.testing.assert_array_equal(carry, full[:, full.shape[1] - memory + 1 :])
    # The maps of a later part leave out the words before it.
    *_, records = outputs(model, variables, tokens[:, :3], carry)
    assert {record.weights.shape for record in records} == {(B, 1, 3, 3)}


def test_padding_has_no_weight():
    tokens = draw_tokens().at[1, :2].set(PAD).at[1, T - 3 :].set(PAD)
    model, variables = build(tokens)
    logits, _, records = outputs(model, variables, tokens)
    for record in records:
        np.testing.assert_array_equal(record.weights[1, ..., :2], 0)
        np.testing.assert_array_equal(record.weights[1, ..., T - 3 :], 0)
        np.testing.assert_allclose(record.weights[1, 0, 2:].sum(-1), 1, atol=1e-6)
    alone, *_ = outputs(model, variables, tokens[:, 2:])
    np.testing.assert_allclose(logits[1, 2:], alone[1], atol=1e-6)
    assert np.isfinite(logits).all()


def test_all_hops_share_their_parameters():
    for hops in (1, 6):
        shapes = jax.eval_shape(lambda hops=hops: build(draw_tokens(), hops=hops)[1])
        assert {name: x.shape for name, x in shapes["params"].items()} == {
            "memory_embedding": (W, D),
            "output_embedding": (W, D),
            "memory_times": (4, D),
            "output_times": (4, D),
            "state_kernel": (D, D),
            "output": (W, D),
        }


def test_dropout_is_on_in_training_only():
    tokens = draw_tokens()
    model, variables = build(tokens, dropout=0.5)

    def read(seed, *, train):
        rngs = {"dropout": jax.random.key(seed)}
        return model.apply(variables, tokens, train=train, rngs=rngs)[0]

    evaluated, trained = (
        jax.jit(jax.vmap(functools.partial(read, train=train)))(jnp.arange(1, 3))
        for train in (False, True)
    )
    np.testing.assert_array_equal(*evaluated)
    assert abs(np.diff(trained, axis=0)).max() > 0.1


def test_a_run_carries_words_and_its_predictions_have_a_map_for_each_hop(tmp_path):
    task = task_of(lstmn_text.get_config("smoke_memory_network"), tmp_path)
    state = jax.jit(task.objective.init)(jax.random.key(0))
    data = task.train_data()
    state, _ = stepped(task, state, [data[0], data[1]])
    # As many words as a batch has.
    np.testing.assert_array_equal(state.extra, data[1]["before"])
    (prediction,) = evaluate.predict(
        task, state, {1: "the dogs"}, task.Options(length=3), True
    )
    assert [(x.name, x.layer) for x in prediction.attention] == [
        ("memory", 0),
        ("memory", 1),
    ]
    assert task.draw(prediction, "Line 1", tmp_path / "line.png").exists()
