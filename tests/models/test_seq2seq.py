import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import EMBEDDING, HIDDEN, SUTSKEVER, UNITS
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    VOCAB,
    affine,
    check_a_field_is_refused,
    check_dropout_needs_its_stream_and_changes_with_it,
    check_dropout_sites,
    check_no_later_token_changes_earlier_logits,
    check_padding_changes_nothing,
    check_steps_equal_the_full_pass,
    encode,
    forward,
    gru,
    overfit,
    parameter_count,
    shapes_of,
    start,
    step,
    translator,
)

from configs import seq2seq_nmt
from models.cells import CELLS
from models.recurrent import reverse_tokens
from models.seq2seq import FEEDS, Seq2Seq

CHO = SUTSKEVER | dict(
    cell="gru",
    layers=1,
    reverse_source=False,
    summary="tanh",
    feed=("every_step", "feed_forward"),
    maxout=UNITS,
)
PAPERS = pytest.mark.parametrize("paper", [SUTSKEVER, CHO], ids=["sutskever", "cho"])


def build(*changes):
    return translator(Seq2Seq, *changes)


@pytest.mark.parametrize("hypotheses", [1, 3])
@PAPERS
def test_steps_along_beams_equal_the_full_pass(paper, hypotheses):
    check_steps_equal_the_full_pass(*build(paper), hypotheses=hypotheses)


@pytest.mark.parametrize("feed", FEEDS)
def test_a_source_can_be_fed_in_four_ways(feed):
    model, variables, batch = build(SUTSKEVER, dict(layers=1, feed=(feed,)))
    check_steps_equal_the_full_pass(model, variables, batch, hypotheses=3)
    logits = forward(model, variables, batch)
    assert logits.shape == (BATCH, TARGET, VOCAB)
    swapped = forward(model, variables, dict(batch, source=batch["source"][::-1]))
    assert (np.abs(swapped - logits)[:2].max((0, 2)) > 1e-3).all()


@PAPERS
def test_padding_changes_nothing(paper):
    check_padding_changes_nothing(*build(paper))


@PAPERS
def test_a_later_target_token_changes_no_earlier_logits(paper):
    check_no_later_token_changes_earlier_logits(*build(paper))


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


@PAPERS
def test_swapped_memories_give_the_logits_of_swapped_sources(paper):
    model, variables, batch = build(paper)
    swapped = jnp.asarray([1, 0, 2])
    memory = encode(model, variables, batch["source"])
    memory = jax.tree.map(lambda x: x[swapped], memory)
    carry = start(model, variables, memory, hypotheses=1)
    expected = forward(model, variables, dict(batch, source=batch["source"][swapped]))
    token = jnp.ones((BATCH, 1), jnp.int32)
    for t in range(TARGET):
        carry, logits, attention = step(
            model, variables, carry=carry, token=token, memory=memory
        )
        np.testing.assert_allclose(logits[:, 0], expected[:, t], atol=1e-5)
        assert attention is None
        token = batch["target"][:, t : t + 1]


@pytest.mark.parametrize("feed", ["first_step", "every_step"])
def test_the_vector_enters_the_gates_of_the_first_step_or_of_every_step(feed):
    model, variables, batch = build(SUTSKEVER, dict(layers=1, feed=(feed,)))
    memory = encode(model, variables, batch["source"])
    assert not any(np.any(x) for x in memory.start)
    without_vector = memory._replace(gates=jnp.zeros_like(memory.gates))
    carry = start(model, variables, memory, hypotheses=1)
    token = jnp.ones((BATCH, 1), jnp.int32)
    for t in range(3):
        inputs = dict(carry=carry, token=token)
        carry, logits, _ = step(model, variables, **inputs, memory=memory)
        _, changed, _ = step(model, variables, **inputs, memory=without_vector)
        depends = np.abs(changed - logits).max() > 1e-3
        assert depends == (t == 0 or feed == "every_step")


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


def count(fields):
    """Number of parameters by a formula."""
    m, n, units, layers = EMBEDDING, HIDDEN, fields["maxout"], fields["layers"]
    cell = CELLS[fields["cell"]]
    first, later = (cell.gates * n * (width + n + 1) for width in (m, n))
    total = VOCAB * m * (2 - fields["share_embeddings"])
    total += 2 * (first + (layers - 1) * later)
    vector = layers * cell.states * n
    if fields["summary"] == "tanh":
        total += n * n + n
        vector = n
    if {"every_step", "first_step"} & set(fields["feed"]):
        total += vector * cell.gates * n
    if "feed_forward" in fields["feed"]:
        total += (vector + 1) * layers * cell.states * n
    if units:
        total += (n + m + vector + 1) * 2 * units
    return total + (units or n) * VOCAB


@pytest.mark.parametrize(
    "fields",
    [
        SUTSKEVER,
        CHO,
        SUTSKEVER | {"layers": 5, "feed": ("first_step",), "maxout": 3},
        CHO | {"layers": 3, "share_embeddings": False},
        SUTSKEVER | {"cell": "gru", "feed": ("feed_forward",)},
    ],
)
def test_the_number_of_parameters_equals_a_formula(fields):
    assert parameter_count(Seq2Seq(**fields)) == count(fields)


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "elman"}, "cell is 'elman': must be one of gru, lstm, rnn"),
        ({"summary": "mean"}, "summary is 'mean': must be one of state, tanh"),
        ({"init_scheme": "zero"}, "init_scheme is 'zero': must be one of standard, pa"),
        ({"layers": 0}, "layers is 0: must be at least 1"),
        ({"hidden": 0}, "hidden is 0: must be at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0: must be at least 0 and below 1"),
        ({"maxout": -1}, "maxout is -1: must be at least 0"),
        ({"feed": ()}, r"feed is \(\): must be one or more of every_step, first_step"),
        ({"feed": ("never",)}, r"feed is \('never',\): must be one or more of"),
        (
            {"feed": ("initial_state", "feed_forward")},
            "must be a choice with at most one of initial_state and feed_forward",
        ),
        (
            {"summary": "tanh"},
            "must be a choice with feed_forward instead of initial_state",
        ),
        (
            {"feed": ("every_step", "first_step")},
            "must be a choice with at most one of every_step and first_step",
        ),
        (
            {"summary": "tanh", "feed": ("every_step",), "init_scheme": "paper"},
            "init_scheme is 'paper': must be 'standard' if summary is 'tanh'",
        ),
    ],
)
def test_a_field_out_of_range_is_refused(changes, message):
    check_a_field_is_refused(Seq2Seq, SUTSKEVER | changes, message)


@PAPERS
def test_it_overfits_one_batch(paper):
    losses = overfit(Seq2Seq(**paper | {"layers": 1}))
    assert losses[0] > 2.5 and losses[-1] < 0.05


def test_dropout_needs_its_stream_and_changes_with_it():
    check_dropout_needs_its_stream_and_changes_with_it(
        *build(SUTSKEVER, dict(dropout=0.3))
    )


@PAPERS
def test_dropout_applies_to_embeddings_between_layers_and_before_the_output(paper):
    layers = 3 if paper is SUTSKEVER else 2
    model, variables, batch = build(paper, dict(dropout=0.25, layers=layers))
    check_dropout_sites(
        model,
        variables,
        batch,
        {
            (BATCH, SOURCE, EMBEDDING): 1,
            (BATCH, SOURCE, HIDDEN): layers - 1,
            (BATCH, TARGET, EMBEDDING): 1,
            # A mask per step, none over time: Zaremba et al. (2014).
            (TARGET, BATCH, 1, (layers - 1) * HIDDEN): 1,
            (BATCH, TARGET, paper["maxout"] or HIDDEN): 1,
        },
    )


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
