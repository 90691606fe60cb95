import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import CHO, HIDDEN, SUTSKEVER, UNITS
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    VOCAB,
    affine,
    check_steps_equal_the_full_pass,
    encode,
    forward,
    gru,
    shapes_of,
    start,
    step,
    translator,
)

from configs import seq2seq_nmt
from models.recurrent import reverse_tokens
from models.seq2seq import Seq2Seq

PAPERS = pytest.mark.parametrize("paper", [SUTSKEVER, CHO], ids=["sutskever", "cho"])


def build(*changes):
    return translator(Seq2Seq, *changes)


@pytest.mark.parametrize(
    ("first_state", "fed_steps"),
    [("vector", "none"), ("layer", "none"), ("zero", "all")],
)
def test_a_source_enters_the_decoder_in_three_ways(first_state, fed_steps):
    fields = dict(layers=1, first_state=first_state, fed_steps=fed_steps)
    model, variables, batch = build(SUTSKEVER, fields)
    check_steps_equal_the_full_pass(model, variables, batch, hypotheses=3)
    logits = forward(model, variables, batch)
    assert logits.shape == (BATCH, TARGET, VOCAB)
    swapped = forward(model, variables, dict(batch, source=batch["source"][::-1]))
    assert (np.abs(swapped - logits)[:2].max((0, 2)) > 1e-3).all()


@PAPERS
def test_logits_depend_on_the_source_through_the_vector_alone(paper):
    model, variables, batch = build(paper)
    source = batch["source"]
    other = dict(batch, source=jnp.where(source == 0, 0, VOCAB + 3 - source))
    change = forward(model, variables, other) - forward(model, variables, batch)
    assert np.abs(change).max() > 1e-2
    # An encoder without token inputs has equal vectors for sources of equal length.
    blind = jax.tree.map(lambda x: x, variables)
    gates = blind["params"]["encoder"]["forward_0"]["input"]
    gates["kernel"] = jnp.zeros_like(gates["kernel"])
    vectors = [encode(model, blind, b["source"]).vector for b in (batch, other)]
    np.testing.assert_array_equal(*vectors)
    assert np.abs(vectors[0]).max() > 1e-2
    np.testing.assert_array_equal(
        forward(model, blind, batch), forward(model, blind, other)
    )


def test_a_fed_vector_enters_the_gates_of_all_steps():
    fields = dict(layers=1, first_state="zero", fed_steps="all")
    model, variables, batch = build(SUTSKEVER, fields)
    memory = encode(model, variables, batch["source"])
    assert not any(np.any(x) for x in memory.start)
    without_vector = memory._replace(fed=jnp.zeros_like(memory.fed))
    carry = start(model, variables, memory, hypotheses=1)
    token = jnp.ones((BATCH, 1), jnp.int32)
    for _ in range(3):
        inputs = dict(carry=carry, token=token)
        carry, logits, _ = step(model, variables, **inputs, memory=memory)
        _, changed, _ = step(model, variables, **inputs, memory=without_vector)
        assert np.abs(changed - logits).max() > 1e-3


def test_reversal_applies_to_the_source_and_not_to_the_target():
    model, variables, batch = build(SUTSKEVER)
    plain, _, _ = build(SUTSKEVER, dict(reverse_source=False))
    source = reverse_tokens(batch["source"], batch["source"] != 0)
    np.testing.assert_array_equal(
        forward(model, variables, batch),
        forward(plain, variables, dict(batch, source=source)),
    )


def test_cho_equals_a_loop_of_the_printed_equations():
    model, variables, batch = build(CHO)
    params = jax.tree.map(np.asarray, variables["params"])
    source, target = np.asarray(batch["source"]), np.asarray(batch["target"])
    table, encoder = params["embedding_table"], params["encoder"]["forward_0"]
    expected = np.zeros((BATCH, TARGET, VOCAB))
    for b in range(BATCH):
        h = np.zeros(HIDDEN)
        for token in source[b][source[b] != 0]:
            h = gru(affine(table[token], encoder["input"]), h, encoder["state"])
        c = np.tanh(affine(h, params["summarise"]))
        h = np.tanh(affine(c, params["bridge"]))
        for t, token in enumerate([1, *target[b, :-1]]):
            gates = affine(table[token], params["gates"]) + c @ params["fed"]["kernel"]
            h = gru(gates, h, params["stack"]["states_0"])
            pieces = np.concatenate([h, table[token], c])
            pieces = affine(pieces, params["deep"]["Dense_0"])
            units = np.maximum(pieces[:UNITS], pieces[UNITS:])
            expected[b, t] = params["output"] @ units
    logits = forward(model, variables, batch)
    np.testing.assert_allclose(logits, expected, atol=1e-4)  # float32, values up to 10


def test_the_paper_config_has_the_sizes_of_sutskever():
    fields = seq2seq_nmt.get_config("paper").model.to_dict()
    model = Seq2Seq(vocab_size=80_000, **fields)
    params = shapes_of(model)
    sizes = [x.size for x in jax.tree.leaves(params) if x.shape == (1000, 4000)]
    # Section 3.4: 64M parameters in the LSTMs, 8000 numbers per sentence.
    assert sum(sizes) == 64_000_000
    memory = jax.eval_shape(
        lambda variables, source: model.apply(variables, source, method="encode"),
        {"params": params},
        jnp.ones((BATCH, SOURCE), jnp.int32),
    )
    assert memory.vector.shape == (BATCH, 8000)


def test_the_tanh_summary_is_of_the_last_layer():
    """So it is 0 if the last layer's parameters are 0."""
    model, variables, batch = build(CHO, dict(layers=2))
    for layer, is_zero in ((0, False), (1, True)):
        params = jax.tree.map(jnp.asarray, variables["params"])
        encoder = dict(params["encoder"])
        name = f"forward_{layer}"
        encoder[name] = jax.tree.map(jnp.zeros_like, encoder[name])
        summarise = dict(params["summarise"], bias=jnp.zeros(HIDDEN))
        params = params | {"encoder": encoder, "summarise": summarise}
        vector = encode(model, {"params": params}, batch["source"]).vector
        assert (np.abs(vector).max() == 0) == is_zero
