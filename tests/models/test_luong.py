import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU, EMBEDDING, HIDDEN, SCORE
from fields import LUONG as PAPER
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    VOCAB,
    affine,
    check_a_field_is_refused,
    check_dropout_sites,
    check_no_later_token_changes_earlier_logits,
    check_padding_changes_nothing,
    check_steps_equal_the_full_pass,
    encode,
    forward,
    forward_with_records,
    lstm,
    overfit,
    parameter_count,
    quick_jit,
    start,
    step,
    translator,
)

from models.bahdanau import Bahdanau
from models.cells import CELLS
from models.luong import Luong

OTHER = PAPER | dict(
    cell="gru",
    bidirectional=True,
    reverse_source=False,
    input_feeding=False,
    score="concat",
    alignment="local_p",
)
DEEP = PAPER | dict(cell="rnn", layers=2, decoder_layers=3, residual="dense")
BOTH = pytest.mark.parametrize("fields", [PAPER, OTHER], ids=["paper", "other"])
SINGLE_LAYER = {"layers": 1}
LENGTHS = np.asarray([7, 4, 7])  # of the sources


def build(*changes):
    return translator(Luong, *changes)


@pytest.mark.parametrize(
    ("fields", "hypotheses"),
    [(PAPER, 1), (PAPER, 3), (OTHER, 1), (OTHER, 3), (DEEP, 3)],
)
def test_steps_along_beams_equal_the_full_pass(fields, hypotheses):
    check_steps_equal_the_full_pass(*build(fields), hypotheses=hypotheses)


@BOTH
def test_padding_changes_nothing(fields):
    check_padding_changes_nothing(*build(fields))


@BOTH
def test_a_later_target_token_changes_no_earlier_logits(fields):
    check_no_later_token_changes_earlier_logits(*build(fields))


def test_the_model_equals_a_loop_of_section_3():
    model, variables, batch = build(PAPER)
    params = jax.tree.map(np.asarray, variables["params"])
    table, stack, w = params["embedding_table"], params["stack"], params["feed"]
    encoder = [params["encoder"][f"forward_{layer}"] for layer in range(2)]
    score = params["cross_attention"]["scores"]["w"]
    expected = np.zeros((BATCH, TARGET, VOCAB))
    for b in range(BATCH):
        source = [table[token] for token in batch["source"][b] if token]
        states, annotations = [np.zeros(2 * HIDDEN)] * 2, []
        for x in source[-2::-1] + source[-1:]:  # reversed, except for EOS
            for layer, cell in enumerate(encoder):
                states[layer] = lstm(
                    affine(x, cell["input"]), states[layer], cell["state"]
                )
                x = states[layer][:HIDDEN]
            annotations.append(x)
        attentional = np.zeros(HIDDEN)
        for t, token in enumerate([1, *np.asarray(batch["target"])[b, :-1]]):
            gates = affine(table[token], params["gates"]) + attentional @ w
            states[0] = lstm(gates, states[0], stack["states_0"])
            gates = affine(states[0][:HIDDEN], stack["gates_0"])
            states[1] = lstm(gates, states[1], stack["states_1"])
            query = states[1][:HIDDEN]
            e = [query @ score @ annotation for annotation in annotations]
            a = np.exp(e) / np.exp(e).sum()
            c = sum(x * h for x, h in zip(a, annotations, strict=True))
            attentional = c @ params["attend_context"] + query @ params["attend_state"]
            attentional = np.tanh(attentional)
            expected[b, t] = params["output"] @ attentional
    logits = forward(model, variables, batch)
    np.testing.assert_allclose(logits, expected, atol=1e-4)  # float32, values up to 10


@pytest.mark.parametrize("layers, decoder_layers", [(1, 3), (3, 1), (2, 0)])
def test_layers_of_the_decoder_start_from_their_counterparts_from_the_last_down(
    layers, decoder_layers
):
    sizes = {"layers": layers, "decoder_layers": decoder_layers}
    model, variables, batch = build(DEEP, sizes)
    equal, _, _ = build(DEEP, {"layers": layers, "decoder_layers": 0})
    carries = encode(equal, variables, batch["source"]).start
    actual = encode(model, variables, batch["source"]).start
    assert len(actual) == (decoder_layers or layers)
    for i, carry in enumerate(reversed(actual)):
        expected = carries[max(layers - 1 - i, 0)]
        np.testing.assert_array_equal(carry, expected)


@pytest.mark.parametrize("family", [Luong, Bahdanau])
def test_without_its_score_gradient_the_encoder_learns_from_contexts_only(family):
    fields = PAPER | dict(layers=1) if family is Luong else BAHDANAU
    model, variables, batch = translator(family, fields)
    stopped = model.clone(score_gradient=False)

    def gradient(model):
        def loss(params):
            logits = model.apply({"params": params}, batch, train=False)
            return jnp.sum(jnp.sin(logits))

        return quick_jit(jax.value_and_grad(loss))(variables["params"])

    (value, full), (same, cut) = gradient(model), gradient(stopped)
    np.testing.assert_allclose(same, value, rtol=1e-6)
    for name in full:
        changed = any(
            np.abs(x - y).max() > 1e-3
            for x, y in zip(*map(jax.tree.leaves, (full[name], cut[name])), strict=True)
        )
        assert changed == (name in ("encoder", "embedding_table")), name


def test_the_query_is_the_state_after_the_previous_token_is_read():
    model, variables, batch = build(PAPER)
    _, records = forward_with_records(model, variables, batch)
    for t in range(1, TARGET):
        # Token t - 1 is an input of step t and of its weights.
        target = batch["target"].at[:, t - 1].set(9)
        _, changed = forward_with_records(model, variables, dict(batch, target=target))
        change = np.abs(changed["weights"] - records["weights"])[:2, 0].max((0, 2))
        assert not np.any(change[:t])
        assert change[t] > 1e-5


def test_input_feeding_changes_only_later_steps():
    model, variables, batch = build(PAPER)
    off, _, _ = build(PAPER, {"input_feeding": False})
    params = dict(variables["params"])
    feed = params.pop("feed")
    with_feeding = forward(model, variables, batch)
    without_feeding = forward(off, {"params": params}, batch)
    change = np.abs(with_feeding - without_feeding).max((0, 2))
    assert change[0] < 1e-5 and (change[1:] > 1e-3).all()
    zero = {"params": params | {"feed": jnp.zeros_like(feed)}}
    np.testing.assert_allclose(forward(model, zero, batch), without_feeding, atol=1e-5)
    # The attentional vector that gives a step's logits is fed to the next step.
    memory = encode(model, variables, batch["source"])
    carry = start(model, variables, memory, hypotheses=1)
    assert not np.any(carry.feed)
    token = jnp.ones((BATCH, 1), jnp.int32)
    carry, logits, _ = step(model, variables, carry=carry, token=token, memory=memory)
    np.testing.assert_allclose(carry.feed @ params["output"].T, logits, atol=1e-5)


def test_dot_is_general_with_w_the_identity():
    model, variables, batch = build(PAPER)
    dot, _, _ = build(PAPER, {"score": "dot"})
    identity = {"scores": {"w": jnp.eye(HIDDEN)}}
    general = {"params": variables["params"] | {"cross_attention": identity}}
    np.testing.assert_allclose(
        forward(dot, variables, batch), forward(model, general, batch), atol=1e-5
    )


def test_local_m_with_a_window_over_the_sentence_is_global():
    model, variables, batch = build(PAPER)
    wide, _, _ = build(PAPER, {"alignment": "local_m", "window": SOURCE})
    np.testing.assert_allclose(
        forward(wide, variables, batch), forward(model, variables, batch), atol=1e-5
    )


def test_local_m_attends_to_a_window_around_the_step():
    _, records = forward_with_records(*build(PAPER, {"alignment": "local_m"}))
    weights = records["weights"][:, 0]
    for b, length in enumerate(LENGTHS):
        for t in range(TARGET):
            center = min(t, length - 1)  # the target may be longer than the source
            for s in range(SOURCE):
                inside = abs(s - center) <= PAPER["window"] and s < length
                assert (weights[b, t, s] > 0) == inside
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_local_p_attends_to_a_window_around_its_predicted_position():
    model, variables, batch = build(PAPER, {"alignment": "local_p"})
    _, records = forward_with_records(model, variables, batch)
    weights, position = records["weights"][:, 0], records["position"][:, 0]
    assert position.shape == (BATCH, TARGET)
    assert (position > 0).all() and (position < LENGTHS[:, None]).all()
    far = np.abs(np.arange(SOURCE) - position[..., None]) > PAPER["window"]
    assert far.any() and not np.any(weights[far])
    assert not np.any(weights[1, :, LENGTHS[1] :])
    # As in eq. 10, weights are not normalised again after the Gaussian.
    sums = weights.sum(-1)
    assert (sums < 1).all() and sums.max() > 0.1


def test_the_parameters_of_local_p_have_a_gradient():
    model, variables, batch = build(PAPER, SINGLE_LAYER, {"alignment": "local_p"})

    def loss(align):
        attention = variables["params"]["cross_attention"] | {"align": align}
        params = variables["params"] | {"cross_attention": attention}
        return jnp.sin(model.apply({"params": params}, batch, train=False)).sum()

    align = variables["params"]["cross_attention"]["align"]
    gradients = quick_jit(jax.grad(loss))(align)
    assert set(gradients) == {"position_w", "position_v"}
    assert all(np.abs(x).max() > 1e-3 for x in gradients.values())


def test_a_hard_alignment_without_a_stream_takes_the_most_probable_position():
    fields = PAPER | SINGLE_LAYER
    model, variables, batch = build(fields, {"alignment": "hard"})
    logits, records = forward_with_records(model, variables, batch)
    assert set(records) == {"weights"}
    weights = records["weights"][:, 0]
    np.testing.assert_array_equal(np.sort(weights)[..., -1], 1)
    np.testing.assert_array_equal(weights.sum(-1), 1)
    # The first step does not depend on earlier attention.
    _, soft = forward_with_records(*build(fields))
    highest = soft["weights"][:, 0, 0].argmax(-1)
    np.testing.assert_array_equal(weights[:, 0].argmax(-1), highest)
    gumbel, _, _ = build(fields, {"alignment": "gumbel"})
    np.testing.assert_array_equal(forward(gumbel, variables, batch), logits)


def test_a_hard_alignment_draws_with_its_stream_and_records_the_log_probability():
    fields = PAPER | SINGLE_LAYER
    model, variables, batch = build(fields, {"alignment": "hard"})
    _, soft = forward_with_records(*build(fields))
    first = np.asarray(soft["weights"][:, 0, 0])  # no draw precedes the first step
    log_first = np.log(first, where=first > 0, out=0 * first)
    first_entropy = -np.sum(first * log_first, axis=-1)
    draws = []
    for seed in range(5):
        rngs = {"alignment": jax.random.key(seed)}
        _, records = forward_with_records(model, variables, batch, rngs=rngs)
        assert set(records) == {"weights", "log_probability", "entropy"}
        weights = records["weights"][:, 0]
        np.testing.assert_array_equal(np.sort(weights)[..., -1], 1)
        np.testing.assert_array_equal(weights.sum(-1), 1)
        assert not np.any(weights[1, :, LENGTHS[1] :])
        probability = np.sum(weights[:, 0] * first, axis=-1)
        log_prob, entropy = records["log_probability"], records["entropy"]
        assert log_prob.shape == entropy.shape == (BATCH, 1, TARGET)
        np.testing.assert_allclose(log_prob[:, 0, 0], np.log(probability), atol=1e-5)
        np.testing.assert_allclose(entropy[:, 0, 0], first_entropy, atol=1e-5)
        draws.append(weights.argmax(-1))
    assert (np.stack(draws).std(0) > 0).mean() > 0.5


def count(fields):
    """Number of parameters by a formula."""
    m, n, a, sides = EMBEDDING, HIDDEN, SCORE, 1 + fields["bidirectional"]
    cell, layers = CELLS[fields["cell"]], fields["layers"]
    first, upper, encoder = (
        cell.gates * n * (width + n + 1) for width in (m, n, sides * n)
    )
    total = VOCAB * m * (2 - fields["share_embeddings"])
    total += sides * (first + (layers - 1) * encoder)
    total += first + (layers - 1) * upper  # decoder
    if fields["bidirectional"]:
        states = cell.states * n
        total += layers * (2 * states + 1) * states
    if fields["input_feeding"]:
        total += n * cell.gates * n
    match fields["score"]:
        case "general":
            total += n * sides * n
        case "concat":
            total += (n + sides * n + 1) * a
        case "dot" if sides == 2:  # projects annotations to the width of states
            total += 2 * n * n
    if fields["alignment"] == "local_p":
        total += n * a + a
    return total + (n + sides * n) * n + n * VOCAB  # W_c, W_s


@pytest.mark.parametrize(
    "fields",
    [
        PAPER,
        OTHER,
        PAPER | {"score": "dot", "layers": 4, "share_embeddings": False},
        PAPER | {"score": "dot", "bidirectional": True},
    ],
)
def test_the_number_of_parameters_equals_a_formula(fields):
    assert parameter_count(Luong(**fields)) == count(fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "elman"}, "cell is 'elman': must be one of gru, lstm, rnn"),
        ({"score": "dto"}, "score is 'dto': must be one of dot, scaled_dot"),
        ({"alignment": "soft"}, "alignment is 'soft': must be one of global, local_m"),
        ({"init_scheme": "zero"}, "init_scheme is 'zero': must be one of standard, pa"),
        ({"layers": 0}, "layers is 0: must be at least 1"),
        ({"max_length": 0}, "max_length is 0: must be at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0: must be at least 0 and below 1"),
    ],
)
def test_a_field_out_of_range_is_refused(changes, message):
    check_a_field_is_refused(Luong, PAPER | changes, message)


def test_it_overfits_one_batch():
    losses = overfit(Luong(**PAPER | SINGLE_LAYER))
    assert losses[0] > 2.5 and losses[-1] < 0.05


@pytest.mark.parametrize("bidirectional", [False, True])
def test_dropout_applies_to_embeddings_between_layers_and_before_the_output(
    bidirectional,
):
    fields = dict(bidirectional=bidirectional, dropout=0.25, layers=3)
    model, variables, batch = build(PAPER, fields)
    annotation = HIDDEN * (1 + bidirectional)
    check_dropout_sites(
        model,
        variables,
        batch,
        {
            (BATCH, SOURCE, EMBEDDING): 1,
            (BATCH, SOURCE, annotation): 2,
            (BATCH, TARGET, EMBEDDING): 1,
            (TARGET, BATCH, 1, 2 * HIDDEN): 1,  # a mask per step and layer
            (BATCH, TARGET, HIDDEN): 1,
        },
    )
