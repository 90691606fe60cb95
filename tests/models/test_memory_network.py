"""End-to-end memory network: encodings, tying, linear start, padding."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from translators import descend

from attention.scores import SCORES
from base.errors import FieldError
from base.records import AttentionRecord, records_of
from models.memory_network import MEMORY_ALIGNMENTS, MemoryNetwork, position_encoding

B, N, J, W, T, D, K = 3, 7, 5, 13, 11, 4, 2
LENGTHS = [7, 5, 1]  # statements of each story


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    sentences = rng.integers(1, W, (B, N, J)).astype(np.int32)
    sentences[:, ::2, 3:] = 0
    times = np.zeros((B, N), np.int32)
    for row, n in enumerate(LENGTHS):
        sentences[row, n:] = 0
        times[row, :n] = np.arange(n, 0, -1)
    question = rng.integers(1, W, (B, J)).astype(np.int32)
    question[:, 4:] = 0
    return {"sentences": sentences, "times": times, "question": question}


def build(batch, **fields):
    fields = {"init_scale": 0.7, "hops": K} | fields
    model = MemoryNetwork(vocab_size=W, memory=T, width=D, **fields)
    params = model.init(jax.random.key(1), batch, train=False)["params"]
    return model, {"params": params}


def outputs(model, variables, batch, **arguments):
    logits, sown = model.apply(
        variables, batch, train=False, mutable=["attention"], **arguments
    )
    (record,) = records_of(sown, AttentionRecord)
    assert (record.kind, record.queries, record.keys) == ("memory", "hops", "sentences")
    return logits, record.weights


def sentence(table, ids, time, encoding):
    """A sentence vector by the sums of the paper."""
    ids = [x for x in ids if x]
    total = np.zeros(D)
    for j, word in enumerate(ids, 1):
        for k in range(1, D + 1):
            weight = (1 - j / len(ids)) - (k / D) * (1 - 2 * j / len(ids))
            weight = 2 * weight if encoding == "position" else 1
            total[k - 1] += weight * table[word, k - 1]
    return total + (table[W + time - 1] if time else 0)


def reference(params, batch, row, *, encoding, tying, empty_slots, linear=False):
    """Logits and weights of a question by loops, in float64."""
    p = {n: np.array(x, float) for n, x in params.items()}
    tables = [p.get(f"embedding_{k}") for k in range(K + 1)]
    if tying == "layerwise":
        a, c = p["memory_embedding"], p["output_embedding"]
        query, answers = p["query_embedding"], p["answer_kernel"]
    else:
        query, answers = tables[0], tables[K].T
    u = sentence(query, batch["question"][row], 0, encoding)
    weights = []
    for hop in range(K):
        if tying == "adjacent":
            a, c = tables[hop], tables[hop + 1]
        valid = range(N if empty_slots else LENGTHS[row])
        entries = [(batch["sentences"][row, i], batch["times"][row, i]) for i in valid]
        scores = np.array([u @ sentence(a, *x, encoding) for x in entries])
        p_i = scores if linear else np.exp(scores) / np.exp(scores).sum()
        o = sum(
            w * sentence(c, *x, encoding) for w, x in zip(p_i, entries, strict=True)
        )
        u = (u if tying == "adjacent" else u @ p["state_kernel"]) + o
        weights.append(np.pad(p_i, (0, N - len(p_i))))
    return (u @ answers)[1:W], np.array(weights)


@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
@pytest.mark.parametrize("empty_slots", [True, False])
def test_slots_of_numbered_sentences_are_the_sentences(batch, tying, empty_slots):
    model, variables = build(batch, tying=tying, empty_slots=empty_slots)
    texts = np.concatenate([np.zeros((1, J), np.int32), *batch["sentences"]])
    slots = 1 + np.arange(B * N).reshape(B, N)
    slots[batch["times"] == 0] = 0
    numbers = batch | {"sentences": texts, "slots": slots}
    for expected, actual in zip(
        outputs(model, variables, batch),
        outputs(model, variables, numbers),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
@pytest.mark.parametrize("encoding", ["position", "bag"])
@pytest.mark.parametrize("empty_slots", [False, True])
def test_equals_a_loop(batch, empty_slots, encoding, tying, linear):
    fields = {"encoding": encoding, "tying": tying, "empty_slots": empty_slots}
    model, variables = build(batch, **fields)
    logits, weights = outputs(model, variables, batch, linear=linear)
    assert weights.shape == (B, 1, K, N)
    for row in range(B):
        expected, hops = reference(
            variables["params"],
            batch,
            row,
            linear=linear,
            **fields,
        )
        np.testing.assert_allclose(weights[row, 0], hops, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(logits[row, 1:], expected, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("maximum", [5, 7])
def test_the_position_encoding_can_be_that_of_the_authors_code(maximum, batch):
    def weight(j, k):
        return 1 + 4 * (k - (D + 1) / 2) * (j - (maximum + 1) / 2) / (D * maximum)

    fields = {"position_length": maximum, "position_scale": 2.0, "hops": 1}
    model, variables = build(batch, **fields)
    (embed,) = model.apply(
        variables,
        batch["sentences"][0],
        variables["params"]["embedding_0"],
        method="_embed",
    )
    table = np.array(variables["params"]["embedding_0"], float)
    for row, ids in enumerate(batch["sentences"][0]):
        expected = np.zeros(D)
        for j, word in enumerate(ids[ids > 0], 1):
            for k in range(1, D + 1):
                expected[k - 1] += weight(j, k) * table[word, k - 1]
        np.testing.assert_allclose(embed[row], expected, rtol=1e-5, atol=1e-5)
    mean = np.mean(
        [weight(j, k) for j in range(1, maximum + 1) for k in range(1, D + 1)]
    )
    assert mean == pytest.approx(1)  # as in a bag of words


def test_a_sentence_longer_than_the_fixed_length_has_its_own():
    lengths = np.array([J, 2])
    (fixed, _), (plain, _) = (
        position_encoding(lengths, J, D, max_length=n) for n in (3, J)
    )
    np.testing.assert_allclose(fixed[0], plain[0])
    assert not np.allclose(fixed[1, :2], plain[1, :2])


def test_adjacent_tying_shares_arrays(batch):
    for hops in (1, 2, 3):
        _, variables = build(batch, hops=hops)
        shapes = {n: x.shape for n, x in variables["params"].items()}
        names = [f"embedding_{k}" for k in range(hops + 1)]
        assert shapes == dict.fromkeys(names, (W + T, D))
        _, variables = build(batch, hops=hops, tying="layerwise")
        assert {n: x.shape for n, x in variables["params"].items()} == {
            "memory_embedding": (W + T, D),
            "output_embedding": (W + T, D),
            "query_embedding": (W + T, D),
            "answer_kernel": (D, W + T),
            "state_kernel": (D, D),
        }


@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
def test_nil_is_0_has_no_gradient_and_is_no_answer(batch, tying):
    model, variables = build(batch, tying=tying)

    def loss(params):
        logits = model.apply({"params": params}, batch, train=True)
        return -jax.nn.log_softmax(logits)[:, 3].sum()

    gradients = jax.grad(loss)(variables["params"])
    tables = [name for name in gradients if "embedding" in name]
    assert len(tables) == 3
    for name in tables:
        np.testing.assert_array_equal(variables["params"][name][0], 0)
        np.testing.assert_array_equal(gradients[name][0], 0)
        assert np.abs(gradients[name][1:]).max() > 0
    assert (outputs(model, variables, batch)[0][:, 0] < -1e8).all()


@pytest.mark.parametrize("linear", [False, True])
def test_a_permutation_of_slots_and_padding_changes_nothing(batch, linear):
    model, variables = build(batch, empty_slots=False)
    logits, weights = outputs(model, variables, batch, linear=linear)
    order = np.random.default_rng(2).permutation(N + 4)
    padded = dict(batch)
    for name in ("sentences", "times"):
        widths = [(0, 0), (0, 4)] + [(0, 2)] * (batch[name].ndim - 2)
        padded[name] = np.pad(batch[name], widths)[:, order]
    padded["question"] = np.pad(batch["question"], [(0, 0), (0, 3)])
    again, mixed = outputs(model, variables, padded, linear=linear)
    np.testing.assert_allclose(again, logits, rtol=1e-4, atol=1e-4)
    full = np.pad(weights, [(0, 0)] * 3 + [(0, 4)])
    np.testing.assert_allclose(mixed, full[..., order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("score", "alignment"),
    [
        *((score, "global") for score in SCORES),
        *(("dot", x) for x in MEMORY_ALIGNMENTS[1:]),
    ],
)
def test_every_score_and_alignment_attends(batch, score, alignment):
    fields = {"score": score, "alignment": alignment, "empty_slots": False}
    model, variables = build(batch, **fields)
    _, weights = outputs(model, variables, batch)
    assert (weights >= 0).all()
    for row, n in enumerate(LENGTHS):
        np.testing.assert_array_equal(weights[row, :, :, n:], 0)
    # A local window leaves out weight, and gumbel selects one statement.
    total = weights.sum(-1)
    assert (total > 0).all() and (total < 1 + 1e-5).all()
    if alignment != "local_p":
        np.testing.assert_allclose(total, 1, atol=1e-5)

    def loss(params):
        rngs = {"alignment": jax.random.key(3)}
        logits = model.apply({"params": params}, batch, train=True, rngs=rngs)
        return jax.nn.log_softmax(logits)[:, 1].sum()

    gradients = jax.grad(loss)(variables["params"])
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.isfinite(leaf).all(), path
        if "scores" in jax.tree_util.keystr(path):
            assert np.abs(leaf).max() > 0, path


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alignment": "hard"}, "alignment is 'hard': must be one of global, "),
        ({"hops": 0}, "hops is 0: must be at least 1"),
    ],
)
def test_a_wrong_field_is_rejected(batch, fields, message):
    with pytest.raises(FieldError, match="must be") as error:
        build(batch, **fields)
    assert message in str(error.value)


@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
def test_it_overfits_one_batch(batch, tying):
    model, variables = build(batch, tying=tying)
    answer = jnp.array([2, 11, 7])

    def loss(params):
        logits = model.apply({"params": params}, batch, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, answer).mean()

    losses = descend(loss, variables["params"], 0.02, 200)
    assert losses[0] > 1.5 and losses[-1] < 0.05


def widened(batch, words):
    pad = [(0, 0), (0, 0), (0, words - J)]
    return batch | {
        "sentences": np.pad(batch["sentences"], pad),
        "question": np.pad(batch["question"], pad[1:]),
    }


@pytest.mark.parametrize("field", ["sentences", "question"])
def test_the_program_of_a_long_sentence_is_no_longer(batch, field):
    model, variables = build(batch)

    def equations(words):
        longer = batch | {field: widened(batch, words)[field]}
        return str(
            jax.make_jaxpr(lambda x: outputs(model, variables, x)[0])(longer)
        ).count("\n")

    assert equations(101) == equations(10_007) < 3 * equations(J)


def test_without_times_the_order_of_statements_is_unknown(batch):
    model, variables = build(batch)
    for times, equal in [(batch["times"], False), (0 * batch["times"], True)]:
        timed = batch | {"times": times}
        turned = dict(timed)
        turned["sentences"] = batch["sentences"].copy()
        turned["sentences"][0] = batch["sentences"][0, ::-1]
        pair = [outputs(model, variables, x)[0] for x in (timed, turned)]
        assert np.allclose(*pair, atol=1e-5) == equal
