import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attention import scores
from attention.core import attend
from attention.declaration import Scalar, score_function
from attention.scores import STEPWISE_SCORES as SCORES

B, H, Q, K, D, E, A, L, V, R, C = 2, 3, 5, 7, 11, 13, 17, 19, 23, 4, 29
NAMES = sorted(SCORES.keys() - {"concat"})  # another name of "additive"


def same_width(name):
    return SCORES[name].same_width


@pytest.fixture
def inputs(draw):
    """Query, key and parameters of a named score; `heads`: batch axes of the latter.

    The parameters of a stepwise score include `previous` weights.
    """

    def make(name, heads=()):
        key = draw(B, H, K, D if same_width(name) else E)
        sizes = {"D": D, "E": E, "A": A, "L": L, "R": R, "C": C}
        parameters = {
            parameter: 1 + jnp.abs(draw(*heads))
            if isinstance(axes, Scalar)
            else draw(*heads, *(sizes[axis] for axis in axes))
            for parameter, axes in SCORES[name].parameters.items()
        }
        if SCORES[name].stepwise:
            parameters["previous"] = jax.nn.softmax(draw(B, H, Q, K))
        return draw(B, H, Q, D), key, parameters

    return make


def loop_score(name, q, k, position, p):
    """Score of one query and one key vector, as printed in the papers."""
    if name == "dot":
        return sum(a * b for a, b in zip(q, k, strict=True))
    if name == "scaled_dot":
        return sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(D)
    if name == "general":
        return sum(q[d] * p["w"][d, e] * k[e] for d in range(D) for e in range(E))
    if name in ("multiplicative", "scaled_multiplicative"):
        product = (q @ p["w_query"]) @ (k @ p["w_key"])
        return product / (math.sqrt(A) if name.startswith("scaled") else 1)
    if name == "additive":
        stacked = np.concatenate([p["w_query"], p["w_key"]])  # Luong's W_a, [D + E, A]
        return p["v"] @ np.tanh(np.concatenate([q, k]) @ stacked)
    if name == "additive_relu":
        return p["v"] @ np.maximum(q @ p["w_query"] + k @ p["w_key"], 0)
    if name == "location":
        return sum(q[d] * p["w"][d, position] for d in range(D))
    if name == "location_aware":
        near = np.pad(p["previous"], R)[position + R - R // 2 :][:R]
        location = (near @ p["filters"]) @ p["w_location"]
        return p["v"] @ np.tanh(q @ p["w_query"] + k @ p["w_key"] + location)
    if name == "cosine":
        norms = math.sqrt(sum(a * a for a in q) * sum(b * b for b in k))
        return p["strength"] * sum(a * b for a, b in zip(q, k, strict=True)) / norms
    raise AssertionError(f"add a branch for {name} to loop_score in {__file__}")


@pytest.mark.parametrize("name", NAMES)
def test_score_equals_a_loop_with_parameters_per_head(x64, inputs, name):
    query, key, parameters = inputs(name, heads=(H,))
    actual = SCORES[name](query, key, **parameters)
    assert actual.shape == (B, H, Q, K)
    for b, h, i, j in np.ndindex(B, H, Q, K):
        q, k = np.asarray(query[b, h, i]), np.asarray(key[b, h, j])
        head = {n: np.asarray(p[h]) for n, p in parameters.items()}
        if "previous" in parameters:
            head["previous"] = np.asarray(parameters["previous"][b, h, i])
        expected = loop_score(name, q, k, j, head)
        np.testing.assert_allclose(actual[b, h, i, j], expected, atol=1e-12)


@pytest.mark.parametrize("heads", [(), (H,)])
@pytest.mark.parametrize("name", NAMES)
def test_projected_keys_and_parts_give_the_same_scores(x64, inputs, name, heads):
    query, key, parameters = inputs(name, heads)
    score = SCORES[name]
    expected = score(query, key, **parameters)
    query = score.project_query(query, **parameters)
    key = score.project(key, **parameters)
    compared = score.compare(query, key, **parameters)
    np.testing.assert_allclose(compared, expected, atol=1e-12)
    if score.parts is None:
        return
    parts = score.parts(query, key, **parameters)
    actual = parts.scale * parts.terms().sum(-1) + parts.bias
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_batched_equals_vmapped_and_jitted(x64, inputs, name):
    query, key, parameters = inputs(name, heads=(H,))
    expected = SCORES[name](query, key, **parameters)
    heads = jax.vmap(lambda q, k, p: SCORES[name](q, k, **p))
    axes = {n: 0 if n == "previous" else None for n in parameters}
    mapped = jax.vmap(heads, in_axes=(0, 0, axes))(query, key, parameters)
    np.testing.assert_allclose(mapped, expected, atol=1e-12)
    jitted = jax.jit(SCORES[name])(query, key, **parameters)
    np.testing.assert_allclose(jitted, expected, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_batch_axes_of_keys_and_parameters_broadcast(x64, inputs, name):
    query, key, shared = inputs(name)
    actual = SCORES[name](query, key[0, 0], **shared)
    repeated = jnp.broadcast_to(key[0, 0], key.shape)
    heads = {
        n: p if n == "previous" else jnp.broadcast_to(p, (H, *p.shape))
        for n, p in shared.items()
    }
    expected = SCORES[name](query, repeated, **heads)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(x64, inputs, name):
    query, key, parameters = inputs(name, heads=(H,))

    def score(query, key, parameters):
        return SCORES[name](query, key, **parameters)

    check_grads(jax.jit(score), (query, key, parameters), order=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_score_attends(inputs, draw, name):
    query, key, parameters = inputs(name, heads=(H,))
    value, mask = draw(B, H, K, V), (jnp.arange(K) < 4) & (jnp.arange(Q) != 1)[:, None]

    @jax.jit
    def read(query, key, value):
        return attend(SCORES[name](query, key, **parameters), value, mask=mask)

    context, weights = read(query, key, value)
    assert context.shape == (B, H, Q, V)
    assert (weights >= 0).all()
    np.testing.assert_array_equal(weights[..., 4:], 0)
    np.testing.assert_array_equal(context[:, :, 1], 0)
    sums = jnp.broadcast_to((jnp.arange(Q) != 1).astype(float), (B, H, Q))
    np.testing.assert_allclose(weights.sum(-1), sums, atol=1e-6)
    changed = read(query, key.at[:, :, 4:].add(9), value.at[:, :, 4:].add(1e30))
    np.testing.assert_allclose(changed.context, context, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda *x: read(*x).context.sum(), (0, 1, 2)))
    gradients = gradient(query, key, value)
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][:, :, 1], 0)


@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_that_of_the_inputs(inputs, name):
    arguments = jax.tree.map(lambda x: x.astype(jnp.bfloat16), inputs(name))
    query, key, parameters = arguments
    output = jax.eval_shape(SCORES[name], query, key, **parameters)
    assert output.dtype == jnp.bfloat16


def test_general_with_the_identity_is_dot(inputs):
    query, key, _ = inputs("dot")
    np.testing.assert_allclose(
        scores.general_scores(query, key, w=jnp.eye(D)),
        scores.dot_scores(query, key),
        atol=1e-5,
    )


def test_multiplicative_is_general_with_the_product_of_its_matrices(inputs):
    query, key, p = inputs("multiplicative")
    np.testing.assert_allclose(
        scores.multiplicative_scores(query, key, **p),
        scores.general_scores(query, key, w=p["w_query"] @ p["w_key"].T),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("keys", [1, K, L, L + 4])
def test_location_uses_the_first_scores_and_masks_keys_beyond_its_length(draw, keys):
    query, w = draw(B, Q, D), draw(D, L)
    actual = scores.location_scores(query, draw(B, keys, E), w=w)
    assert actual.shape == (B, Q, keys)
    length = min(keys, L)
    np.testing.assert_allclose(
        actual[..., :length], (query @ w)[..., :length], atol=1e-5
    )
    weights = attend(actual, draw(B, keys, V)).weights
    np.testing.assert_array_equal(weights[..., L:], 0)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_cosine_does_not_depend_on_the_norms(inputs):
    query, key, parameters = inputs("cosine")
    actual = scores.cosine_scores(1e-3 * query, 1e3 * key, **parameters)
    expected = scores.cosine_scores(query, key, **parameters)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert (jnp.abs(expected) <= jnp.abs(parameters["strength"]) + 1e-5).all()


def test_cosine_with_a_vector_of_zeros_is_zero_with_finite_gradients(draw):
    query, key = draw(Q, D).at[1].set(0), draw(K, D).at[2].set(0)
    similarities = scores.cosine_scores(query, key, strength=5.0)
    np.testing.assert_array_equal(similarities[1], 0)
    np.testing.assert_array_equal(similarities[:, 2], 0)
    gradient = jax.grad(lambda *x: scores.cosine_scores(*x, strength=5.0).sum(), (0, 1))
    gradients = jax.jit(gradient)(query, key)
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][1], 0)
    np.testing.assert_array_equal(gradients[1][2], 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_width_that_does_not_fit_is_refused(inputs, name):
    query, key, parameters = inputs(name)
    if same_width(name):
        with pytest.raises(ValueError, match=r"_scores: query \(.* differ in width"):
            SCORES[name](query, key[..., 1:], **parameters)
        return
    with pytest.raises(ValueError, match=r"must end in the axes \[D=10, "):
        SCORES[name](query[..., 1:], key, **parameters)


def test_parameters_that_disagree_or_lack_an_axis_are_refused(inputs):
    query, key, parameters = inputs("additive")
    short = parameters | {"v": parameters["v"][1:]}
    with pytest.raises(ValueError, match=r"v \(16,\) must end in the axes \[A=17\]"):
        scores.additive_scores(query, key, **short)
    with pytest.raises(ValueError, match=r"w \(11,\) must end in .* \[D=11, E=13\]"):
        scores.general_scores(query, key, w=jnp.ones(D))


@score_function(same_width=True, width=Scalar(), shift=Scalar())
def shifted_scores(query, key, width, shift):
    """Scores whose body divides keys, queries and scores by a learned number."""
    return (query * shift) @ jnp.swapaxes(key / width, -1, -2) + shift


@pytest.mark.parametrize("heads", [(), (H,), (B, H), (B, 1)])
def test_a_scalar_is_one_number_per_batch_element(x64, draw, heads):
    query, key = draw(B, H, Q, D), draw(B, H, H, D)  # as many keys as heads
    width, shift = 1 + jnp.abs(draw(*heads)), draw(*heads)
    actual = shifted_scores(query, key, width, shift=shift)
    compared = shifted_scores.compare(query, key, width=width, shift=shift)
    for b, h in np.ndindex(B, H):
        w, s = (np.broadcast_to(x, (B, H))[b, h] for x in (width, shift))
        expected = s * (query[b, h] @ key[b, h].T) / w + s
        np.testing.assert_allclose(actual[b, h], expected, atol=1e-12)
        np.testing.assert_allclose(compared[b, h], expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(K,), (Q,), (H, 1, 1), (1, B, H), (H, B)])
@pytest.mark.parametrize("way", ["call", "compare"])
def test_a_scalar_of_another_shape_is_refused(draw, shape, way):
    query, key = draw(B, H, Q, D), draw(B, H, K, D)
    score = shifted_scores if way == "call" else shifted_scores.compare
    message = (
        rf"^shifted_scores: width {re.escape(str(shape))} does not broadcast with the "
        rf"batch axes \({B}, {H}\) and \({B}, {H}\)$"
    )
    with pytest.raises(ValueError, match=message):
        score(query, key, width=jnp.ones(shape), shift=jnp.ones(H))


@pytest.mark.parametrize("heads", [(Q,), (B,), (K, H)])
def test_parameters_per_head_of_another_number_of_heads_are_refused(inputs, heads):
    query, key, _ = inputs("additive")
    _, _, parameters = inputs("additive", heads=heads)
    shape = re.escape(str((*heads, D, A)))
    message = rf"^additive_scores: w_query {shape} does not broadcast with the batch"
    with pytest.raises(ValueError, match=message):
        scores.additive_scores(query, key, **parameters)
    with pytest.raises(ValueError, match=message):
        scores.additive_scores.project(key, **parameters)


@pytest.mark.parametrize("parameters", [{"widht": Scalar()}, {"width": ()}])
def test_a_declaration_without_argument_or_axes_is_refused(parameters):
    (name,) = parameters
    with pytest.raises(ValueError, match=f"^score: {name} must be an argument with"):

        @score_function(**parameters)
        def score(query, key, width):
            return query


def test_a_projection_without_compare_is_refused():
    with pytest.raises(ValueError, match="^score: a projection needs compare$"):

        @score_function(project=lambda key: key)
        def score(query, key):
            return query


def test_parameters_name_their_axes():
    assert SCORES["concat"] is SCORES["additive"]
    assert SCORES["dot"].__name__ == "dot_scores"
    assert {name: SCORES[name].parameters for name in NAMES} == {
        "dot": {},
        "scaled_dot": {},
        "general": {"w": ("D", "E")},
        "multiplicative": {"w_query": ("D", "A"), "w_key": ("E", "A")},
        "scaled_multiplicative": {"w_query": ("D", "A"), "w_key": ("E", "A")},
        "additive": {"w_query": ("D", "A"), "w_key": ("E", "A"), "v": ("A",)},
        "additive_relu": {"w_query": ("D", "A"), "w_key": ("E", "A"), "v": ("A",)},
        "location_aware": {"w_query": ("D", "A"), "w_key": ("E", "A"), "v": ("A",)}
        | {"filters": ("R", "C"), "w_location": ("C", "A")},
        "location": {"w": ("D", "L")},
        "cosine": {"strength": Scalar(start=math.sqrt)},
    }
    assert set(filter(same_width, NAMES)) == {"dot", "scaled_dot", "cosine"}
