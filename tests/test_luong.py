import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import EMBEDDING, HIDDEN, SCORE
from fields import LUONG as PAPER
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    WORDS,
    affine,
    check_a_field_is_refused,
    check_no_later_token_changes_earlier_logits,
    check_padding_changes_nothing,
    check_steps_equal_the_full_pass,
    encode,
    forward,
    look,
    lstm,
    overfit,
    parameter_count,
    quick_jit,
    start,
    step,
    translator,
)

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
BOTH = pytest.mark.parametrize("fields", [PAPER, OTHER], ids=["paper", "other"])
ONE = {"layers": 1}
LENGTHS = np.asarray([7, 4, 7])  # of the sources


def build(*changes):
    return translator(Luong, *changes)


@pytest.mark.parametrize("rows", [1, 3])
@BOTH
def test_steps_along_beams_equal_the_full_pass(fields, rows):
    check_steps_equal_the_full_pass(*build(fields), rows)


@BOTH
def test_padding_changes_nothing(fields):
    check_padding_changes_nothing(*build(fields))


@BOTH
def test_a_later_target_token_changes_no_earlier_logits(fields):
    check_no_later_token_changes_earlier_logits(*build(fields))


def test_the_model_equals_a_loop_of_section_3():
    model, variables, batch = build(PAPER)
    params = jax.tree.map(np.asarray, variables["params"])
    words, stack, w = params["embedding_table"], params["stack"], params["feed"]
    encoder = [params["encoder"][f"forward_{layer}"] for layer in range(2)]
    score = params["cross_attention"]["scores"]["w"]
    expected = np.zeros((BATCH, TARGET, WORDS))
    for row in range(BATCH):
        source = [words[word] for word in batch["source"][row] if word]
        states, annotations = [np.zeros(2 * HIDDEN)] * 2, []
        for x in source[-2::-1] + source[-1:]:  # reversed, but for its end
            for layer, cell in enumerate(encoder):
                states[layer] = lstm(
                    affine(x, cell["input"]), states[layer], cell["state"]
                )
                x = states[layer][:HIDDEN]
            annotations.append(x)
        attentional = np.zeros(HIDDEN)
        for t, word in enumerate([1, *np.asarray(batch["target"])[row, :-1]]):
            gates = affine(words[word], params["gates"]) + attentional @ w
            states[0] = lstm(gates, states[0], stack["states_0"])
            gates = affine(states[0][:HIDDEN], stack["gates_0"])
            states[1] = lstm(gates, states[1], stack["states_1"])
            query = states[1][:HIDDEN]
            e = [query @ score @ annotation for annotation in annotations]
            a = np.exp(e) / np.exp(e).sum()
            c = sum(x * h for x, h in zip(a, annotations, strict=True))
            attentional = c @ params["attend_context"] + query @ params["attend_state"]
            attentional = np.tanh(attentional)
            expected[row, t] = params["output"] @ attentional
    found = forward(model, variables, batch)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # float32, values up to 10


def test_the_query_is_the_state_after_the_last_word_is_read():
    model, variables, batch = build(PAPER)
    _, seen = look(model, variables, batch)
    for t in range(1, TARGET):
        # An input of step t: the weights of step t are made with it.
        changed = batch["target"].at[:, t - 1].set(9)
        _, other = look(model, variables, dict(batch, target=changed))
        change = np.abs(other["weights"] - seen["weights"])[:2, 0].max((0, 2))
        assert not np.any(change[:t])
        assert change[t] > 1e-5


def test_input_feeding_changes_the_next_step_and_not_its_own():
    model, variables, batch = build(PAPER)
    off, _, _ = build(PAPER, {"input_feeding": False})
    params = dict(variables["params"])
    feed = params.pop("feed")
    found = forward(model, variables, batch)
    without = forward(off, {"params": params}, batch)
    change = np.abs(found - without).max((0, 2))
    assert change[0] < 1e-5 and (change[1:] > 1e-3).all()
    deaf = {"params": params | {"feed": jnp.zeros_like(feed)}}
    np.testing.assert_allclose(forward(model, deaf, batch), without, atol=1e-5)
    # What is fed to a step is the attentional vector of the one before.
    memory = encode(model, variables, batch["source"])
    carry = start(model, variables, memory, 1)
    assert not np.any(carry.feed)
    token = jnp.ones((BATCH, 1), jnp.int32)
    carry, logits, _ = step(model, variables, carry, token, memory)
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


def test_local_m_goes_along_the_sentence_and_sees_its_window_alone():
    _, seen = look(*build(PAPER, {"alignment": "local_m"}))
    weights = seen["weights"][:, 0]
    for row, length in enumerate(LENGTHS):
        for t in range(TARGET):
            center = min(t, length - 1)  # the target may be the longer one
            for s in range(SOURCE):
                inside = abs(s - center) <= PAPER["window"] and s < length
                assert (weights[row, t, s] > 0) == inside
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_local_p_sees_a_window_around_the_position_it_predicts():
    model, variables, batch = build(PAPER, {"alignment": "local_p"})
    _, seen = look(model, variables, batch)
    weights, position = seen["weights"][:, 0], seen["position"][:, 0]
    assert position.shape == (BATCH, TARGET)
    assert (position > 0).all() and (position < LENGTHS[:, None]).all()
    far = np.abs(np.arange(SOURCE) - position[..., None]) > PAPER["window"]
    assert far.any() and not np.any(weights[far])
    assert not np.any(weights[1, :, LENGTHS[1] :])
    # Not normalised again after the Gaussian, as in eq. 10.
    sums = weights.sum(-1)
    assert (sums < 1).all() and sums.max() > 0.1


def test_the_gradient_of_local_p_reaches_what_predicts_the_position():
    model, variables, batch = build(PAPER, ONE, {"alignment": "local_p"})

    def loss(align):
        attention = variables["params"]["cross_attention"] | {"align": align}
        params = variables["params"] | {"cross_attention": attention}
        return jnp.sin(model.apply({"params": params}, batch, train=False)).sum()

    align = variables["params"]["cross_attention"]["align"]
    gradients = quick_jit(jax.grad(loss))(align)
    assert set(gradients) == {"position_w", "position_v"}
    assert all(np.abs(x).max() > 1e-3 for x in gradients.values())


def test_a_hard_alignment_without_a_stream_takes_the_most_probable_word():
    fields = PAPER | ONE
    model, variables, batch = build(fields, {"alignment": "hard"})
    logits, seen = look(model, variables, batch)
    assert set(seen) == {"weights"}
    weights = seen["weights"][:, 0]
    np.testing.assert_array_equal(np.sort(weights)[..., -1], 1)
    np.testing.assert_array_equal(weights.sum(-1), 1)
    # Before anything that was attended to is fed back.
    _, soft = look(*build(fields))
    highest = soft["weights"][:, 0, 0].argmax(-1)
    np.testing.assert_array_equal(weights[:, 0].argmax(-1), highest)
    gumbel, _, _ = build(fields, {"alignment": "gumbel"})
    np.testing.assert_array_equal(forward(gumbel, variables, batch), logits)


def test_a_hard_alignment_draws_with_its_stream_and_says_how_probable_that_was():
    fields = PAPER | ONE
    model, variables, batch = build(fields, {"alignment": "hard"})
    _, soft = look(*build(fields))
    first = np.asarray(soft["weights"][:, 0, 0])  # nothing was drawn before
    words = first > 0
    spread = -np.sum(first * np.log(first, where=words, out=0 * first), axis=-1)
    draws = []
    for seed in range(5):
        rngs = {"alignment": jax.random.key(seed)}
        _, seen = look(model, variables, batch, rngs)
        assert set(seen) == {"weights", "log_probability", "entropy"}
        weights = seen["weights"][:, 0]
        np.testing.assert_array_equal(np.sort(weights)[..., -1], 1)
        np.testing.assert_array_equal(weights.sum(-1), 1)
        assert not np.any(weights[1, :, LENGTHS[1] :])
        drawn = np.sum(weights[:, 0] * first, axis=-1)
        chosen, entropy = seen["log_probability"], seen["entropy"]
        assert chosen.shape == entropy.shape == (BATCH, 1, TARGET)
        np.testing.assert_allclose(chosen[:, 0, 0], np.log(drawn), atol=1e-5)
        np.testing.assert_allclose(entropy[:, 0, 0], spread, atol=1e-5)
        draws.append(weights.argmax(-1))
    assert (np.stack(draws).std(0) > 0).mean() > 0.5


def count(fields):
    """Parameters by a formula."""
    m, n, a, both = EMBEDDING, HIDDEN, SCORE, 1 + fields["bidirectional"]
    cell, layers = CELLS[fields["cell"]], fields["layers"]
    first, upper, encoder = (
        cell.gates * n * (width + n + 1) for width in (m, n, both * n)
    )
    total = WORDS * m * (2 - fields["share_embeddings"])
    total += both * (first + (layers - 1) * encoder)
    total += first + (layers - 1) * upper  # decoder
    if fields["bidirectional"]:
        states = cell.states * n
        total += layers * (2 * states + 1) * states
    if fields["input_feeding"]:
        total += n * cell.gates * n
    match fields["score"]:
        case "general":
            total += n * both * n
        case "concat":
            total += (n + both * n + 1) * a
        case "dot" if both == 2:  # makes annotations as narrow as states
            total += 2 * n * n
    if fields["alignment"] == "local_p":
        total += n * a + a
    return total + (n + both * n) * n + n * WORDS  # W_c, W_s


@pytest.mark.parametrize(
    "fields",
    [
        PAPER,
        OTHER,
        PAPER | {"score": "dot", "layers": 4, "share_embeddings": False},
        PAPER | {"score": "dot", "bidirectional": True},
    ],
)
def test_the_number_of_parameters_is_that_of_a_formula(fields):
    assert parameter_count(Luong(**fields)) == count(fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "rnn"}, "cell is 'rnn': must be one of gru, lstm"),
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
    losses = overfit(Luong(**PAPER | ONE))
    assert losses[0] > 2.5 and losses[-1] < 0.05
