import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attention.masks import (
    causal_mask,
    distances,
    later_mask,
    padding_mask,
    segment_mask,
    window_mask,
)


def test_padding_mask_allows_every_token_to_every_query():
    tokens = jnp.array([[4, 5, 2, 0, 0], [6, 2, 0, 0, 0]])
    mask = padding_mask(tokens != 0)
    assert mask.shape == (2, 1, 5)
    expected = [[True] * 3 + [False] * 2, [True] * 2 + [False] * 3]
    np.testing.assert_array_equal(mask[:, 0], expected)


@pytest.mark.parametrize("offset", [0, 3, 11])
@pytest.mark.parametrize("queries, keys", [(5, 5), (5, 7), (7, 5), (1, 11)])
def test_causal_mask_allows_a_query_its_own_and_earlier_positions(
    queries, keys, offset
):
    expected = np.zeros((queries, keys), bool)
    for i, j in np.ndindex(queries, keys):
        expected[i, j] = j <= offset + i
    np.testing.assert_array_equal(causal_mask(queries, keys, offset), expected)


def test_causal_mask_takes_a_traced_offset():
    step = jax.jit(lambda time: causal_mask(1, 7, time))
    whole = causal_mask(7, 7)
    for time in range(7):
        np.testing.assert_array_equal(step(time)[0], whole[time])


@pytest.mark.parametrize("window", [0, 2, 13])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32])
def test_window_mask_allows_a_query_the_keys_around_its_centre(dtype, window):
    centre = np.array([[0, 2.5, 4.75, 7, 10], [3, 9.5, 11, 12.5, 40]]).astype(dtype)
    expected = np.zeros((2, 5, 11), bool)
    for b, i, j in np.ndindex(expected.shape):
        expected[b, i, j] = abs(j - float(centre[b, i])) <= window
    mask = window_mask(jnp.asarray(centre), 11, window)
    np.testing.assert_array_equal(mask, expected)
    mapped = jax.vmap(lambda c: window_mask(c, 11, window))(jnp.asarray(centre))
    np.testing.assert_array_equal(mapped, expected)


def test_window_mask_is_exact_for_positions_that_bfloat16_rounds():
    # From 256 to 512, bfloat16 represents only the even integers.
    mask = window_mask(jnp.array([300], jnp.bfloat16), 331, 3)
    np.testing.assert_array_equal(np.flatnonzero(mask[0]), np.arange(297, 304))


def test_a_negative_window_is_refused():
    with pytest.raises(ValueError, match="^window is -1: must be at least 0$"):
        window_mask(jnp.arange(7), 11, -1)


def test_segment_mask_allows_a_query_the_keys_of_its_segment():
    query = np.array([[0, 0, 1, 2, -1], [0, 1, 1, 1, -1]])
    key = np.array([[0, 1, 1, 2, 2, -1, -1], [0, 0, 0, 1, -1, -1, -1]])
    expected = np.zeros((2, 5, 7), bool)
    for b, i, j in np.ndindex(expected.shape):
        expected[b, i, j] = query[b, i] == key[b, j]
    mask = segment_mask(jnp.asarray(query), jnp.asarray(key))
    np.testing.assert_array_equal(mask, expected)
    np.testing.assert_array_equal(
        jax.vmap(segment_mask)(jnp.asarray(query), jnp.asarray(key)), expected
    )


def test_later_mask_allows_a_step_itself_and_the_rest_of_its_segment():
    ends = np.zeros((2, 3, 7), bool)
    ends[0, 0, [1, 4]] = ends[0, 1, 0] = ends[1, 2, [2, 3, 6]] = True
    expected = np.zeros((2, 3, 7, 7), bool)
    for b, i, t, u in np.ndindex(expected.shape):
        expected[b, i, t, u] = u >= t and not ends[b, i, t:u].any()
    np.testing.assert_array_equal(later_mask(jnp.asarray(ends)), expected)


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        ("uint8", "int32"),
        ("int32", "int32"),
        ("int64", "int64"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_distances_are_signed_and_wide_enough_for_all_positions(x64, dtype, wide):
    centre = jnp.array([[3, 0], [5, 250]], dtype)
    actual = distances(centre, 11)
    assert actual.dtype == wide
    expected = np.arange(11) - np.array([[3, 0], [5, 250]])[..., None]
    np.testing.assert_array_equal(actual, expected)


def test_token_ids_are_refused_as_a_mask():
    with pytest.raises(TypeError, match="valid must be bool .* got int32"):
        padding_mask(jnp.array([[4, 2, 0]]))
