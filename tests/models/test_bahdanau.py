import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU as PAPER
from fields import HIDDEN, UNITS
from translators import (
    BATCH,
    TARGET,
    VOCAB,
    affine,
    forward,
    forward_with_records,
    gru,
    initial,
    translator,
)

from models.bahdanau import Bahdanau


def build(*changes):
    return translator(Bahdanau, *changes)


def test_the_model_equals_a_loop_of_the_appendix():
    model, variables, batch = build(PAPER)
    params = jax.tree.map(np.asarray, variables["params"])
    encoder, score = params["encoder"], params["cross_attention"]["scores"]
    table = params["embedding_table"]
    expected = np.zeros((BATCH, TARGET, VOCAB))
    for b in range(BATCH):
        source = [table[token] for token in batch["source"][b] if token]
        annotations = np.zeros((len(source), 2 * HIDDEN))
        halves = slice(0, HIDDEN), slice(HIDDEN, None)
        for side, half in zip(("forward_0", "backward_0"), halves, strict=True):
            h, cell = np.zeros(HIDDEN), encoder[side]
            for j in range(len(source))[:: 1 if side == "forward_0" else -1]:
                h = gru(affine(source[j], cell["input"]), h, cell["state"])
                annotations[j, half] = h
        s = np.tanh(affine(annotations[0, HIDDEN:], params["bridge"]))
        for t, token in enumerate([1, *np.asarray(batch["target"])[b, :-1]]):
            e = [
                score["v"] @ np.tanh(s @ score["w_query"] + h @ score["w_key"])
                for h in annotations
            ]
            alpha = np.exp(e) / np.exp(e).sum()
            c = sum(a * h for a, h in zip(alpha, annotations, strict=True))
            pieces = np.concatenate([s, table[token], c])  # s_{i-1}, as printed
            pieces = affine(pieces, params["deep"]["Dense_0"])
            units = np.maximum(pieces[:UNITS], pieces[UNITS:])
            expected[b, t] = params["output"] @ units
            gates = affine(table[token], params["gates"]) + c @ params["context"]
            s = gru(gates, s, params["stack"]["states_0"])
    logits = forward(model, variables, batch)
    np.testing.assert_allclose(logits, expected, atol=1e-4)  # float32, values up to 10


def test_with_the_paper_s_init_attention_is_uniform_over_the_unmasked_positions():
    model, _, batch = build(PAPER, {"init_scheme": "paper"})
    params = initial(model)
    assert not np.any(params["cross_attention"]["scores"]["v"])
    _, records = forward_with_records(model, {"params": params}, batch)
    weights = records["weights"]
    assert weights.shape == (BATCH, 1, TARGET, batch["source"].shape[1])
    mask = (batch["source"] != 0)[:, None, None]
    np.testing.assert_array_equal(weights, weights[..., :1] * mask)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    # Appendix B.1: standard deviations 0.001 and 0.01, orthogonal recurrent matrices.
    assert 5e-4 < params["cross_attention"]["scores"]["w_key"].std() < 2e-3
    assert 5e-3 < params["context"].std() < 2e-2
    u = params["stack"]["states_0"]["candidate"]
    np.testing.assert_allclose(u.T @ u, np.eye(HIDDEN), atol=1e-5)


@pytest.mark.parametrize("readout_state", ["previous", "new"])
def test_the_readout_reads_the_state_before_or_after_the_step(readout_state):
    # In the first step, only the new state depends on the recurrent matrices.
    model, variables, batch = build(PAPER, {"readout_state": readout_state})
    params = variables["params"]
    negated = params | {"stack": jax.tree.map(jnp.negative, params["stack"])}
    changed = forward(model, {"params": negated}, batch)
    change = np.abs(changed - forward(model, variables, batch)).max((0, 2))
    assert (change[0] == 0) == (readout_state == "previous")
    assert (change[1:] > 1e-3).all()


def test_dot_of_a_state_and_a_projected_annotation_is_general():
    # Annotations of a bidirectional encoder are twice as wide as the state.
    model, variables, batch = build(PAPER, {"score": "dot"})
    general, _, _ = build(PAPER, {"score": "general"})
    params = variables["params"]
    narrow = params["cross_attention"]["narrow"]["kernel"]
    params = params | {"cross_attention": {"scores": {"w": narrow.T}}}
    np.testing.assert_allclose(
        forward(model, variables, batch),
        forward(general, {"params": params}, batch),
        atol=1e-5,
    )
