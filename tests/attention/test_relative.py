import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attention import relative as plain
from attention.core import Attention, attend
from attention.fast import relative as fast
from attention.masks import causal_mask
from attention.scores import scaled_dot_scores

B, H, Q, K, D, V = 2, 3, 5, 7, 11, 13


def row(i, j, k):
    """Row of the table for a query at position i and a key at position j."""
    return max(-k, min(k, j - i)) + k


def loop_attention(query, key, value, key_table, value_table, mask, offset):
    """Shaw et al. (2018), eqs. 3 and 4, for one head, in two loops."""
    k_key, k_value = len(key_table) // 2, len(value_table) // 2
    context, weights = np.zeros((Q, V)), np.zeros((Q, K))
    for i in range(Q):
        scores = np.full(K, -np.inf)
        for j in range(K):
            if mask[i, j]:
                relative = key_table[row(offset + i, j, k_key)]
                scores[j] = query[i] @ (key[j] + relative) / math.sqrt(D)
        weights[i] = np.exp(scores) / np.exp(scores).sum()
        for j in range(K):
            relative = value_table[row(offset + i, j, k_value)]
            context[i] += weights[i, j] * (value[j] + relative)
    return context, weights


def fast_attention(query, key, value, key_table, value_table, mask=None, offset=0):
    """`attention.relative.relative_attention`, by the fast forms."""
    scaled = query / math.sqrt(query.shape[-1])
    scores = scaled_dot_scores(query, key)
    scores += fast.relative_scores(scaled, key_table, key.shape[-2], offset)
    context, weights = attend(scores, value, mask=mask)
    return Attention(
        context + fast.relative_values(weights, value_table, offset), weights
    )


FAST = SimpleNamespace(
    relative_scores=fast.relative_scores,
    relative_values=fast.relative_values,
    relative_attention=fast_attention,
)


@pytest.fixture(params=[plain, FAST], ids=["plain", "fast"])
def form(request):
    """A form of the functions."""
    return request.param


def modes(form):
    """Modes of differentiation that a form supports."""
    return ("rev",) if form is FAST else ("fwd", "rev")


@pytest.fixture
def inputs(draw):
    def make(k=2, heads=(H,)):
        tables = draw(*heads, 2 * k + 1, D), draw(*heads, 2 * k + 1, V)
        return draw(B, H, Q, D), draw(B, H, K, D), draw(B, H, K, V), *tables

    return make


@pytest.mark.parametrize("offset", [0, 3, 40, -3])
@pytest.mark.parametrize("k", [0, 1, 2, 4, 17])
def test_attention_equals_a_loop(form, x64, inputs, draw, k, offset):
    arguments = inputs(k)
    mask = (draw(B, 1, Q, K) > -0.5).at[..., 0].set(True)
    attention = jax.jit(form.relative_attention)(*arguments, mask=mask, offset=offset)
    for b, h in np.ndindex(B, H):
        head = [x[b, h] for x in arguments[:3]] + [x[h] for x in arguments[3:]]
        expected = loop_attention(*map(np.asarray, head), mask[b, 0], offset)
        np.testing.assert_allclose(attention.context[b, h], expected[0], atol=1e-12)
        np.testing.assert_allclose(attention.weights[b, h], expected[1], atol=1e-12)


@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 7), (5, 1), (7, 5), (3, 3)])
def test_any_lengths(form, x64, draw, queries, keys):
    query, table, weights = draw(queries, D), draw(5, D), draw(queries, keys)
    scores = jax.jit(form.relative_scores, static_argnums=2)(query, table, keys, 1)
    values = jax.jit(form.relative_values)(weights, table, 1)
    query, weights = np.asarray(query), np.asarray(weights)
    for i in range(queries):
        rows = np.asarray(table)[[row(1 + i, j, 2) for j in range(keys)]]
        np.testing.assert_allclose(scores[i], rows @ query[i], atol=1e-12)
        np.testing.assert_allclose(values[i], weights[i] @ rows, atol=1e-12)


@pytest.mark.parametrize("k", [0, 2])
def test_gradients_are_those_of_finite_differences(form, x64, inputs, k):
    mask = causal_mask(Q, K, 1)

    def attention(*arguments):
        return form.relative_attention(*arguments, mask=mask, offset=1)

    check_grads(jax.jit(attention), inputs(k), order=1, modes=modes(form))


def test_weights_sum_to_one_and_a_masked_key_has_no_effect(inputs):
    query, key, value, *tables = inputs()
    mask = jnp.arange(K) < 4
    attention = plain.relative_attention(query, key, value, *tables, mask=mask)
    assert (attention.weights >= 0).all()
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_array_equal(attention.weights[..., 4:], 0)
    changed = key.at[:, :, 4:].add(9), value.at[:, :, 4:].add(1e30)
    unaffected = plain.relative_attention(query, *changed, *tables, mask=mask)
    np.testing.assert_allclose(unaffected.context, attention.context, atol=1e-5)


def test_a_fully_masked_row_is_zero_with_finite_gradients(form, inputs):
    mask = jnp.ones((Q, K), bool).at[2].set(False)

    def read(*arguments):
        return form.relative_attention(*arguments, mask=mask).context

    arguments = inputs()
    np.testing.assert_array_equal(read(*arguments)[:, :, 2], 0)
    gradient = jax.jit(jax.grad(lambda *x: jnp.sum(read(*x) ** 2), range(5)))
    gradients = gradient(*arguments)
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][:, :, 2], 0)


def test_batched_equals_vmapped(form, x64, inputs):
    arguments = inputs()
    expected = form.relative_attention(*arguments)
    heads = jax.vmap(form.relative_attention)
    mapped = jax.jit(jax.vmap(heads, in_axes=(0, 0, 0, None, None)))(*arguments)
    for a, b in zip(mapped, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_gradients_pass_through_jit_scan_and_rematerialisation(draw):
    query, tables = draw(Q, D), (draw(5, D), draw(5, D))

    def layer(x, offset):
        return fast_attention(x, x, x, *tables, offset=offset).context

    def scanned(x):
        wrapped = jax.checkpoint(jax.jit(layer))
        return jnp.sum(jax.lax.scan(lambda x, t: (wrapped(x, t), None), x, steps)[0])

    steps = jnp.array([0, 2])
    expected = jax.grad(lambda x: jnp.sum(layer(layer(x, 0), 2)))(query)
    gradient = jax.jit(jax.grad(scanned))(query)
    np.testing.assert_allclose(gradient, expected, atol=1e-4)  # float32 products


def test_tables_may_be_shared_by_the_heads(form, x64, inputs):
    *arrays, key_table, value_table = inputs(heads=())
    tables = [jnp.broadcast_to(t, (H, *t.shape)) for t in (key_table, value_table)]
    expected = form.relative_attention(*arrays, *tables)
    for a, b in zip(
        form.relative_attention(*arrays, key_table, value_table), expected, strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_one_query_at_a_time_equals_all_at_once(form, x64, inputs):
    query, key, value, *tables = inputs()
    step = jax.jit(
        lambda q, time: form.relative_attention(
            q, key, value, *tables, mask=causal_mask(1, K, time), offset=time
        )
    )
    whole = form.relative_attention(query, key, value, *tables, mask=causal_mask(Q, K))
    for time in range(Q):
        single = step(query[:, :, time : time + 1], time)
        for a, b in zip(single, whole, strict=True):
            np.testing.assert_allclose(a[:, :, 0], b[:, :, time], atol=1e-12)


def test_offsets_may_differ_per_batch_element(form, x64, draw):
    query, table, weights = draw(B, Q, D), draw(5, D), draw(B, Q, K)
    offsets = jnp.array([4, 1])

    def both(query, weights, offset):
        scores = form.relative_scores(query, table, K, offset)
        return scores, form.relative_values(weights, table, offset)

    mapped = jax.vmap(both)(query, weights, offsets)
    for b in range(B):
        expected = both(query[b], weights[b], int(offsets[b]))
        for a, e in zip(mapped, expected, strict=True):
            np.testing.assert_allclose(a[b], e, atol=1e-12)
    mapped = jax.jit(lambda q, w: jax.vmap(both)(q, w, offsets))
    check_grads(mapped, (query, weights), order=1, modes=modes(form))


def test_zero_tables_give_plain_attention(inputs):
    query, key, value, *tables = inputs()
    actual = plain.relative_attention(query, key, value, *(0 * t for t in tables))
    expected = attend(scaled_dot_scores(query, key), value)
    np.testing.assert_allclose(actual.context, expected.context, atol=1e-6)
    np.testing.assert_allclose(actual.weights, expected.weights, atol=1e-6)


def test_with_k_of_0_the_order_of_the_keys_has_no_effect(x64, inputs):
    query, key, value, *tables = inputs(k=0)
    order = np.random.default_rng(1).permutation(K)
    actual = plain.relative_attention(
        query, key[:, :, order], value[:, :, order], *tables
    )
    expected = plain.relative_attention(query, key, value, *tables)
    np.testing.assert_allclose(actual.context, expected.context, atol=1e-12)


def test_shifting_queries_and_keys_together_changes_nothing(x64, draw):
    query, key, value = draw(Q, D), draw(K, D), draw(K, V)
    tables, shift = (draw(5, D), draw(5, V)), 3
    moved = [jnp.pad(x, ((shift, 0), (0, 0))) for x in (key, value)]
    mask = jnp.arange(K + shift) >= shift
    attention = jax.jit(plain.relative_attention)
    actual = attention(query, *moved, *tables, mask=mask, offset=1 + shift)
    expected = attention(query, key, value, *tables, offset=1)
    np.testing.assert_allclose(actual.context, expected.context, atol=1e-12)


def test_tables_that_do_not_fit_are_refused(form, draw):
    with pytest.raises(
        ValueError, match=r"table \(4, 11\) must have an odd number of rows, 2k \+ 1"
    ):
        form.relative_scores(draw(Q, D), draw(4, D), K)
    with pytest.raises(
        ValueError, match=r"table \(11,\) must have an odd number of rows, 2k \+ 1"
    ):
        form.relative_values(draw(Q, K), draw(D))
    with pytest.raises(ValueError, match=r"\(5, 11\) and table \(3, 13\) differ"):
        form.relative_scores(draw(Q, D), draw(3, V), K)
