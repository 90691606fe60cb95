import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import EMBEDDING, HIDDEN, SUTSKEVER, UNITS
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    WORDS,
    affine,
    check_a_field_is_refused,
    check_dropout_needs_its_stream_and_changes_with_it,
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
from models.recurrent import reverse_words
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


@pytest.mark.parametrize("rows", [1, 3])
@PAPERS
def test_steps_along_beams_equal_the_full_pass(paper, rows):
    check_steps_equal_the_full_pass(*build(paper), rows)


@pytest.mark.parametrize("feed", FEEDS)
def test_a_source_can_be_fed_in_four_ways(feed):
    model, variables, batch = build(SUTSKEVER, dict(layers=1, feed=(feed,)))
    check_steps_equal_the_full_pass(model, variables, batch, 3)
    logits = forward(model, variables, batch)
    assert logits.shape == (BATCH, TARGET, WORDS)
    other = forward(model, variables, dict(batch, source=batch["source"][::-1]))
    assert (np.abs(other - logits)[:2].max((0, 2)) > 1e-3).all()


@PAPERS
def test_padding_changes_nothing(paper):
    check_padding_changes_nothing(*build(paper))


@PAPERS
def test_a_later_target_token_changes_no_earlier_logits(paper):
    check_no_later_token_changes_earlier_logits(*build(paper))


@PAPERS
def test_logits_depend_on_the_source_through_the_vector_alone(paper):
    model, variables, batch = build(paper)
    words = batch["source"]
    other = dict(batch, source=jnp.where(words == 0, 0, WORDS + 3 - words))
    found = forward(model, variables, batch)
    assert np.abs(forward(model, variables, other) - found).max() > 1e-2
    # An encoder that does not hear words has one vector for sources of one length.
    deaf = jax.tree.map(lambda x: x, variables)
    first = deaf["params"]["encoder"]["forward_0"]["input"]
    first["kernel"] = jnp.zeros_like(first["kernel"])
    vectors = [encode(model, deaf, b["source"]).vector for b in (batch, other)]
    np.testing.assert_array_equal(*vectors)
    assert np.abs(vectors[0]).max() > 1e-2
    np.testing.assert_array_equal(
        forward(model, deaf, batch), forward(model, deaf, other)
    )


@PAPERS
def test_whoever_has_the_memory_of_a_source_translates_it(paper):
    model, variables, batch = build(paper)
    swapped = jnp.asarray([1, 0, 2])
    memory = encode(model, variables, batch["source"])
    memory = jax.tree.map(lambda x: x[swapped], memory)
    carry = start(model, variables, memory, 1)
    expected = forward(model, variables, dict(batch, source=batch["source"][swapped]))
    token = jnp.ones((BATCH, 1), jnp.int32)
    for t in range(TARGET):
        carry, logits, attention = step(model, variables, carry, token, memory)
        np.testing.assert_allclose(logits[:, 0], expected[:, t], atol=1e-5)
        assert attention is None
        token = batch["target"][:, t : t + 1]


@pytest.mark.parametrize("feed", ["first_step", "every_step"])
def test_what_is_fed_first_acts_on_the_gates_of_the_first_step_alone(feed):
    model, variables, batch = build(SUTSKEVER, dict(layers=1, feed=(feed,)))
    memory = encode(model, variables, batch["source"])
    assert not any(np.any(x) for x in memory.start)  # nor does the state begin with it
    without = memory._replace(fed=jnp.zeros_like(memory.fed))
    carry = start(model, variables, memory, 1)
    token = jnp.ones((BATCH, 1), jnp.int32)
    for t in range(3):
        following, logits, _ = step(model, variables, carry, token, memory)
        _, other, _ = step(model, variables, carry, token, without)
        acts = np.abs(other - logits).max() > 1e-3
        assert acts == (t == 0 or feed == "every_step")
        carry = following


def test_reversal_turns_round_the_source_and_leaves_the_target_alone():
    model, variables, batch = build(SUTSKEVER)
    plain, _, _ = build(SUTSKEVER, dict(reverse_source=False))
    source = reverse_words(batch["source"], batch["source"] != 0)
    np.testing.assert_array_equal(
        forward(model, variables, batch),
        forward(plain, variables, dict(batch, source=source)),
    )


def test_cho_equals_a_loop_of_the_printed_equations():
    model, variables, batch = build(CHO)
    params = jax.tree.map(np.asarray, variables["params"])
    source, target = np.asarray(batch["source"]), np.asarray(batch["target"])
    words = params["embedding_table"]
    expected = np.zeros((BATCH, TARGET, WORDS))
    for row in range(BATCH):
        h = np.zeros(HIDDEN)
        for word in source[row][source[row] != 0]:
            gates = affine(words[word], params["encoder"]["forward_0"]["input"])
            h = gru(gates, h, params["encoder"]["forward_0"]["state"])
        c = np.tanh(affine(h, params["summarise"]))
        h = np.tanh(affine(c, params["bridge"]))
        for t, word in enumerate([1, *target[row, :-1]]):
            gates = affine(words[word], params["gates"]) + c @ params["fed"]["kernel"]
            h = gru(gates, h, params["stack"]["states_0"])
            pieces = np.concatenate([h, words[word], c])
            pieces = affine(pieces, params["deep"]["Dense_0"])
            units = np.maximum(pieces[:UNITS], pieces[UNITS:])
            expected[row, t] = params["output"] @ units
    found = forward(model, variables, batch)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # float32, values up to 10


def count(fields):
    """Parameters by a formula."""
    m, n, units, layers = EMBEDDING, HIDDEN, fields["maxout"], fields["layers"]
    cell = CELLS[fields["cell"]]
    first, later = (cell.gates * n * (width + n + 1) for width in (m, n))
    total = WORDS * m * (2 - fields["share_embeddings"])
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
    return total + (units or n) * WORDS


@pytest.mark.parametrize(
    "changes",
    [
        SUTSKEVER,
        CHO,
        SUTSKEVER | {"layers": 5, "feed": ("first_step",), "maxout": 3},
        CHO | {"layers": 3, "share_embeddings": False},
        SUTSKEVER | {"cell": "gru", "feed": ("feed_forward",)},
    ],
)
def test_the_number_of_parameters_is_that_of_a_formula(changes):
    assert parameter_count(Seq2Seq(**changes)) == count(changes)


def test_the_size_of_the_paper_is_that_of_sutskever():
    fields = seq2seq_nmt.get_config("paper").model.to_dict()
    model = Seq2Seq(vocab_size=80_000, **fields)
    params = shapes_of(model)
    squares = [x.size for x in jax.tree.leaves(params) if x.shape == (1000, 4000)]
    # Section 3.4: 64M parameters in the LSTMs, 8000 numbers for a sentence.
    assert sum(squares) == 64_000_000
    memory = jax.eval_shape(
        lambda params, source: model.apply(params, source, method="encode"),
        *({"params": params}, jnp.ones((BATCH, SOURCE), jnp.int32)),
    )
    assert memory.vector.shape == (BATCH, 8000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "rnn"}, "cell is 'rnn': must be one of gru, lstm"),
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
            "must be with initial_state or feed_forward, not both",
        ),
        ({"summary": "tanh"}, "must be with feed_forward instead of initial_state"),
        ({"feed": ("every_step", "first_step")}, "every_step is also the first"),
        (
            {"summary": "tanh", "feed": ("every_step",), "init_scheme": "paper"},
            "init_scheme is 'paper': must be 'standard' where summary is 'tanh'",
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
