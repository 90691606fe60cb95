"""Models of visual question answering: their equations, and inputs without effect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import affine, lstm, normal_like, softmax

from base.errors import FieldError
from base.records import AttentionRecord, records_of
from models.attention import MATCHING_SCORES
from models.visual_questions import (
    ShowAskAttendAnswer,
    SpatialMemoryNetwork,
    word_guided_scores,
)

B, SIDE, DEPTH, E, T, N, D, A, G, W, WORDS = 2, 3, 5, 7, 4, 11, 13, 17, 3, 19, 23
REGIONS = SIDE**2
COMMON = dict(
    vocab_size=WORDS,
    answers=W,
    objects=0,
    encoder="maps",
    channels=(E,),
    embedding=N,
    dropout=0.0,
)
ASK = COMMON | dict(glimpses=G, score_hidden=A, hidden=D, classifier=29)
SPATIAL = COMMON | dict(hops=3, score_hidden=A)
QUESTION = jnp.array([[5, 9, 4, 8], [22, 6, 0, 0]])


@pytest.fixture(scope="module")
def maps():
    values = np.random.default_rng(0).normal(size=(B, SIDE, SIDE, DEPTH))
    return jnp.asarray(values, jnp.float32)


def build(architecture, fields, maps):
    """A model with random parameters."""
    model = architecture(**fields)
    shapes = jax.eval_shape(
        lambda: model.init(jax.random.key(0), maps, QUESTION, train=False)["params"]
    )
    return model, normal_like(shapes)


def answer(model, params, maps, question=QUESTION, *, train=False, seed=0):
    """Logits and the weights [B, G, L], None without attention."""
    rngs = {"alignment": jax.random.key(seed), "dropout": jax.random.key(seed)}
    logits, sown = model.apply(
        {"params": params},
        maps,
        question,
        train=train,
        rngs=rngs,
        mutable=["attention"],
    )
    records = records_of(sown, AttentionRecord)
    return logits, records[0].weights[:, 0] if records else None


@pytest.fixture(scope="module")
def ask(maps):
    return build(ShowAskAttendAnswer, ASK, maps)


@pytest.fixture(scope="module")
def spatial(maps):
    return build(SpatialMemoryNetwork, SPATIAL, maps)


def test_stacked_glimpses_follow_the_equations(maps, ask):
    model, params = ask
    logits, weights = answer(model, params, maps)
    p = jax.tree.map(np.asarray, params)
    for b in range(B):
        phi = affine(np.asarray(maps[b]).reshape(-1, DEPTH), p["annotate"]["project"])
        phi = phi / np.sqrt((phi**2).sum(-1, keepdims=True))
        carry = np.zeros(2 * D)
        for word in QUESTION[b][QUESTION[b] > 0]:
            x = affine(np.tanh(p["embedding_table"][word]), p["lstm"]["input"])
            carry = lstm(x, carry, p["lstm"]["state"])
        s, read = carry[D:], []  # the cell state
        hidden = phi @ p["key"]["kernel"] + affine(s, p["query"])
        for g in range(G):
            alpha = softmax(np.maximum(hidden, 0) @ p["v"][g])
            np.testing.assert_allclose(weights[b, g], alpha, atol=1e-4)
            read.append(alpha @ phi)
        units = np.maximum(affine(np.concatenate([*read, s]), p["layer"]), 0)
        np.testing.assert_allclose(logits[b], affine(units, p["output"]), atol=1e-3)


def test_spatial_memory_follows_the_equations(maps, spatial):
    model, params = spatial
    logits, weights = answer(model, params, maps)
    p = jax.tree.map(np.asarray, params)
    for b in range(B):
        phi = affine(np.asarray(maps[b]).reshape(-1, DEPTH), p["annotate"]["project"])
        words = p["embedding_table"][QUESTION[b][QUESTION[b] > 0]]
        correlation = words @ affine(phi, p["attention"]).T  # of words and regions
        o, scores = p["bag"][: len(words)] @ words, correlation.max(0)
        for hop in range(3):
            memory = affine(phi, p[f"evidence_{hop}"])
            alpha = softmax(scores)
            np.testing.assert_allclose(weights[b, hop], alpha, atol=1e-4)
            o = alpha @ memory + o
            scores = memory @ o  # the evidence of this hop is the memory of the next
        expected = affine(np.maximum(o, 0), p["output"])
        np.testing.assert_allclose(logits[b], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["ask", "spatial"])
def test_weights_sum_to_1_and_the_order_of_regions_does_not_matter(name, maps, request):
    model, params = request.getfixturevalue(name)
    logits, weights = answer(model, params, maps)
    assert weights.shape == (B, 3, REGIONS) and (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert abs(weights[:, 0] - weights[:, 1]).max() > 0.01
    turned, other = answer(model, params, maps[:, ::-1])
    np.testing.assert_allclose(turned, logits, rtol=1e-4, atol=1e-3)
    rows = weights.reshape(B, 3, SIDE, SIDE)[:, :, ::-1]
    np.testing.assert_allclose(other.reshape(rows.shape), rows, atol=1e-4)


@pytest.mark.parametrize("name", ["ask", "spatial"])
def test_padding_has_no_effect(name, maps, request):
    model, params = request.getfixturevalue(name)
    logits, weights = answer(model, params, maps)
    table = params["embedding_table"].at[0].add(100.0)
    changed, other = answer(model, params | {"embedding_table": table}, maps)
    np.testing.assert_allclose(changed, logits, atol=1e-5)
    np.testing.assert_allclose(other, weights, atol=1e-6)


@pytest.mark.parametrize("name", ["ask", "spatial"])
def test_a_model_without_an_input_does_not_depend_on_it(name, maps, request):
    model, params = request.getfixturevalue(name)
    for inputs in ("both", "image", "question"):
        blind = model.clone(inputs=inputs)
        logits = answer(blind, params, maps)[0]
        image = answer(blind, params, maps + 1)[0]
        question = answer(blind, params, maps, QUESTION.at[:, :2].set(7))[0]
        assert np.array_equal(image, logits) == (inputs == "question")
        assert np.array_equal(question, logits) == (inputs == "image")
        if inputs == "image":  # nor on the length of the question
            length = answer(blind, params, maps, QUESTION.at[:, 1:].set(0))[0]
            np.testing.assert_array_equal(length, logits)


def test_without_glimpses_the_regions_are_averaged(maps):
    model, params = build(ShowAskAttendAnswer, ASK | {"glimpses": 1}, maps)
    equal = params | {"v": jnp.zeros((1, A))}  # equal scores
    expected, weights = answer(model, equal, maps)
    np.testing.assert_allclose(weights, 1 / REGIONS, atol=1e-6)
    rest = {name: params[name] for name in params.keys() - {"v", "query", "key"}}
    logits, weights = answer(model.clone(glimpses=0), rest, maps)
    assert weights is None
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("score", MATCHING_SCORES)
def test_every_score_gives_different_glimpses(score, maps):
    model, params = build(ShowAskAttendAnswer, ASK | {"score": score}, maps)
    weights = answer(model, params, maps)[1]
    assert abs(weights[:, 0] - weights[:, 1]).max() > 1e-3


def test_gumbel_selects_one_region_at_random_in_training(maps, spatial):
    model, params = spatial
    model = model.clone(alignment="gumbel")
    drawn = [answer(model, params, maps, train=True, seed=i)[1] for i in range(3)]
    for weights in drawn:
        np.testing.assert_array_equal(weights.max(-1), 1)
        np.testing.assert_allclose(weights.sum(-1), 1)
    first, again = (answer(model, params, maps, seed=i)[1] for i in range(2))
    np.testing.assert_array_equal(first, again)


def test_the_best_word_scores_a_region_and_padding_does_not():
    correlation = jnp.array([[[1.0, 5.0], [3.0, 2.0], [9.0, 9.0]]])
    scores = word_guided_scores(correlation, jnp.array([[True, True, False]]))
    np.testing.assert_array_equal(scores, [[[3.0, 5.0]]])


def test_the_first_hop_starts_with_weight_on_many_regions():
    maps = jax.random.normal(jax.random.key(0), (B, 8, 8, DEPTH))
    fields = SPATIAL | dict(channels=(64,), embedding=128)
    model = SpatialMemoryNetwork(**fields)
    params = model.init(jax.random.key(1), maps, QUESTION, train=False)["params"]
    _, weights = answer(model, params, maps)
    assert weights[:, 0].max() < 0.2


def test_published_sizes_are_the_defaults():
    model = ShowAskAttendAnswer(vocab_size=WORDS, answers=W, objects=0)
    sizes = model.embedding, model.hidden, model.score_hidden, model.classifier
    assert sizes == (300, 1024, 512, 1024)
    assert (model.glimpses, model.dropout, model.score) == (2, 0.5, "additive_relu")
    assert SpatialMemoryNetwork(vocab_size=WORDS, answers=W, objects=0).hops == 2


def test_objects_are_named_on_request(maps, ask):
    model, params = build(ShowAskAttendAnswer, ASK | {"objects": 5}, maps)
    variables = {"params": params}
    logits, sown = model.apply(
        variables, maps, QUESTION, train=False, mutable="objects"
    )
    (names,) = jax.tree.leaves(sown)
    assert names.shape == (B, REGIONS, 5)
    del params["name_objects"]
    same = ask[0].apply({"params": params}, maps, QUESTION, train=False)
    np.testing.assert_array_equal(logits, same)


@pytest.mark.parametrize(
    ("field", "problem"),
    [({"score": "dot"}, "^score is 'dot': must be one of"), ({"channels": ()}, "list")],
)
def test_fields_are_checked(maps, field, problem):
    model = ShowAskAttendAnswer(**ASK | field)
    with pytest.raises(FieldError, match=problem):
        model.init(jax.random.key(0), maps, QUESTION, train=False)
