import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attention import alignments, core
from attention.alignments import ALIGNMENTS, reinforce, update_baseline
from attention.core import attend

# Compiled as a whole, which is faster than one operation at a time.
masked_softmax = jax.jit(core.masked_softmax)
local_m_alignment = jax.jit(alignments.local_m_alignment, static_argnames="window")
local_p_alignment = jax.jit(alignments.local_p_alignment, static_argnames="window")
predicted_position = jax.jit(alignments.predicted_position)
hard_alignment = jax.jit(alignments.hard_alignment)
gumbel_alignment = jax.jit(alignments.gumbel_alignment)
log_probability = jax.jit(alignments.log_probability)
entropy = jax.jit(alignments.entropy)

B, Q, K, V, D, A = 2, 3, 11, 7, 5, 13
WINDOW = 2
# Positions at and between keys, at the ends and beyond them.
POSITION = np.array([[0.3, 4.0, 9.6], [11.0, 5.5, 2.25]])

SEED = 3

# Options of each alignment by the name of the case.
CASES = {
    "global": {},
    "local_m": {"position": POSITION, "window": WINDOW},
    "local_p": {"position": POSITION, "window": WINDOW},
    "hard": {},
    "hard drawn": {"rng": SEED},
    "gumbel": {"temperature": 0.7},
    "gumbel drawn": {"rng": SEED, "temperature": 0.7},
}


@pytest.fixture(params=CASES)
def case(request):
    return request.param


def prng(seed):
    """A PRNG key of a generator that compiles faster than the default."""
    return jax.random.key(seed, impl="rbg")


@cache
def compiled(case, dtype):
    options = dict(CASES[case])
    if "rng" in options:
        options["rng"] = prng(options["rng"])
    if "position" in options:
        options["position"] = options["position"].astype(dtype)
    return jax.jit(partial(ALIGNMENTS[case.split()[0]], **options))


def aligner(case):
    """The alignment function of a case, with its options bound."""
    return compiled(case, jnp.zeros(()).dtype)


@pytest.fixture
def mask(draw):
    """A random mask; every key of row [1, 2] is masked."""
    mask = np.array(draw(B, Q, K) > -0.5)
    mask[1, 2] = False
    return jnp.asarray(mask)


def loop_row(case, scores, mask, position, noise):
    """Weights of one query, computed one key at a time."""
    name = case.split()[0]
    allowed = [k for k in range(K) if mask[k]]
    if name.startswith("local"):
        allowed = [k for k in allowed if position - WINDOW <= k <= position + WINDOW]
    weights = np.zeros(K)
    if name in ("hard", "gumbel"):
        if allowed:
            weights[max(allowed, key=lambda k: scores[k] + noise[k])] = 1
        return weights
    for k in allowed:
        weights[k] = math.exp(scores[k]) / sum(math.exp(scores[i]) for i in allowed)
        if name == "local_p":
            weights[k] *= math.exp(-((k - position) ** 2) / (2 * (WINDOW / 2) ** 2))
    return weights


def test_every_alignment_equals_a_loop(x64, draw, mask, case):
    scores, noise = draw(B, Q, K), np.zeros((B, Q, K))
    weights = np.asarray(aligner(case)(scores, mask=mask))
    if "rng" in CASES[case]:
        noise = np.asarray(jax.random.gumbel(prng(SEED), (B, Q, K)))
    scores, mask = np.asarray(scores), np.asarray(mask)
    for b, q in np.ndindex(B, Q):
        expected = loop_row(case, scores[b, q], mask[b, q], POSITION[b, q], noise[b, q])
        np.testing.assert_allclose(weights[b, q], expected, atol=1e-12)


def test_masked_keys_have_no_weight_and_no_gradient(draw, mask, case):
    scores, align = draw(B, Q, K), aligner(case)
    masked = ~np.asarray(mask)
    weights = np.asarray(align(scores, mask=mask))
    assert (weights >= 0).all() and (weights[masked] == 0).all()
    assert (weights.sum(-1) <= 1 + 1e-6).all()
    if "local" not in case:
        np.testing.assert_allclose(weights.sum(-1), ~masked.all(-1), atol=1e-6)
    gains = np.cos(np.arange(K))
    slope = jax.jit(jax.grad(lambda s: jnp.sum(gains * align(s, mask=mask))))
    for inputs in (scores, jnp.where(mask, scores, -jnp.inf)):
        gradient = np.asarray(slope(inputs))
        assert np.isfinite(gradient).all()
        assert (gradient[masked] == 0).all()
        assert gradient.any() == ("hard" not in case)


def test_a_masked_value_or_score_has_no_effect(draw, case):
    scores, value = np.array(draw(B, Q, K)), np.array(draw(B, K, V))
    mask = jnp.asarray(np.broadcast_to(np.arange(K) < 7, (B, Q, K)))
    expected = attend(
        jnp.array(scores), jnp.array(value), mask=mask, align=aligner(case)
    )
    scores[..., 7:], value[:, 7:] = np.nan, 1e30
    actual = attend(jnp.array(scores), jnp.array(value), mask=mask, align=aligner(case))
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_score_of_minus_infinity_counts_as_masked(draw, mask, case):
    scores, align = draw(B, Q, K), aligner(case)
    infinite = jnp.where(mask, scores, -jnp.inf)
    expected = align(scores, mask=mask)
    weights = align(infinite, mask=jnp.ones((B, Q, K), bool))
    np.testing.assert_array_equal(weights, expected)
    np.testing.assert_array_equal(align(infinite), expected)


def test_a_nan_score_gives_nan_weights(draw, case):
    scores = np.array(draw(B, Q, K))
    scores[0, 1, 4] = np.nan
    weights = np.asarray(aligner(case)(jnp.asarray(scores)))
    assert np.isnan(weights[0, 1]).any()
    assert np.isfinite(weights[1]).all() and np.isfinite(weights[0, [0, 2]]).all()


def test_weights_have_the_dtype_of_the_scores_and_are_computed_in_float32(draw, case):
    scores = draw(B, Q, K).astype(jnp.bfloat16)
    weights = aligner(case)(scores)
    assert weights.dtype == jnp.bfloat16
    expected = aligner(case)(scores.astype(jnp.float32)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_batched_equals_vmapped(x64, draw, mask, name):
    scores, options = draw(B, Q, K), dict(CASES[name])
    expected = ALIGNMENTS[name](scores, mask=mask, **options)
    position = jnp.asarray(options.pop("position", POSITION))

    def single(scores, mask, position):
        positions = {"position": position} if "local" in name else {}
        return ALIGNMENTS[name](scores, mask=mask, **positions, **options)

    mapped = jax.vmap(single)(scores, mask, position)
    np.testing.assert_allclose(mapped, expected, atol=1e-12)


def test_a_mask_can_bring_batch_axes(draw, mask, case):
    scores, align = draw(Q, K), aligner(case)
    expected = align(jnp.broadcast_to(scores, (B, Q, K)), mask=mask)
    np.testing.assert_array_equal(align(scores, mask=mask), expected)


def test_wrong_masks_and_scores_are_refused(draw, case):
    scores, align = draw(B, Q, K), aligner(case)
    with pytest.raises(TypeError, match="mask must be bool .* got float32"):
        align(scores, mask=jnp.ones((Q, K)))
    with pytest.raises(ValueError, match=r"mask \(5,\) does not broadcast to scores"):
        align(scores, mask=jnp.ones(5, bool))
    with pytest.raises(TypeError, match="scores must be floating, got int32"):
        align(jnp.ones((B, Q, K), jnp.int32))


# Local attention.


def test_a_window_over_the_whole_sentence_is_global(draw, mask):
    scores, value = draw(B, Q, K), draw(B, K, V)
    position = jnp.array([0, K // 2, K - 1])
    align = partial(local_m_alignment, position=position, window=K - 1)
    local = attend(scores, value, mask=mask, align=align)
    for a, b in zip(local, attend(scores, value, mask=mask), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_window_of_size_0_reads_the_key_at_its_centre(draw):
    align = partial(local_m_alignment, position=jnp.arange(Q) + 4, window=0)
    context = attend(draw(B, Q, K), value := draw(B, K, V), align=align).context
    np.testing.assert_array_equal(context, value[:, 4 : 4 + Q])


def test_local_gradients_are_those_of_finite_differences(x64, draw, mask):
    scores = draw(B, Q, K)
    position = jnp.asarray(POSITION + 0.1)  # no key enters or leaves the window
    for align in (local_m_alignment, local_p_alignment):
        align = partial(align, window=WINDOW, mask=mask)
        f = jax.jit(lambda s, p, align=align: align(s, position=p))
        check_grads(f, (scores, position), order=1)


def test_the_gradient_of_the_position_is_that_of_the_gaussian(x64, draw):
    scores, position = draw(B, Q, K), jnp.asarray(POSITION + 0.1)

    def read(position, align):
        weights = align(scores, position=position, window=WINDOW)
        return jnp.sum(weights * jnp.arange(K))

    slope = jax.jit(jax.grad(read), static_argnums=1)
    gradient = np.asarray(slope(position, local_p_alignment))
    assert (gradient != 0).all()
    np.testing.assert_array_equal(slope(position, local_m_alignment), 0)
    # d/dp exp(-(s - p)^2 / 2) = (s - p) exp(...), with sigma = window / 2 = 1.
    weights = np.asarray(local_p_alignment(scores, position=position, window=WINDOW))
    distance = np.arange(K) - np.asarray(position)[..., None]
    expected = (weights * distance * np.arange(K)).sum(-1)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_a_position_beyond_the_sentence_by_more_than_the_window_has_zero_weights(draw):
    position = jnp.array([-2.5, K + 1.5, 4.0])
    for align in (local_m_alignment, local_p_alignment):
        weights = np.asarray(align(draw(B, Q, K), position=position, window=WINDOW))
        np.testing.assert_array_equal(weights[:, :2], 0)
        assert (weights[:, 2].sum(-1) > 0).all()


def test_local_alignments_refuse_invalid_windows_and_positions(draw):
    scores = draw(B, 1, K)
    with pytest.raises(ValueError, match="^window is -1: must be at least 0"):
        local_m_alignment(scores, position=jnp.ones((B, 1)), window=-1)
    with pytest.raises(ValueError, match="^window is 0: must be at least 1"):
        local_p_alignment(scores, position=jnp.ones((B, 1)), window=0)
    for align in (local_m_alignment, local_p_alignment):
        for shape in [(B,), (3, 1, 1, 1, 2)]:
            with pytest.raises(ValueError, match=r"position .* the queries \(2, 1\)"):
                align(scores, position=jnp.ones(shape), window=2)


def test_predicted_position_equals_a_loop(x64, draw):
    query, w, v = draw(B, Q, D), draw(D, A), draw(A)
    length = np.array([[11], [17]])
    position = predicted_position(query, jnp.asarray(length), w, v)
    query, w, v = map(np.asarray, (query, w, v))
    for b, q in np.ndindex(B, Q):
        total = 0.0
        for a in range(A):
            total += v[a] * math.tanh(sum(query[b, q, d] * w[d, a] for d in range(D)))
        expected = length[b, 0] / (1 + math.exp(-total))
        np.testing.assert_allclose(position[b, q], expected, atol=1e-12)


def test_predicted_position_stays_in_the_sentence(draw):
    query, w, v = draw(B, Q, D), draw(D, A), draw(A)
    for scale in (0.1, 10.0, 1e4):
        position = predicted_position(query, 11, w, scale * v)
        assert ((position >= 0) & (position <= 11)).all()
    middle = predicted_position(query, jnp.array([[11.0], [17.0]]), w, 0 * v)
    np.testing.assert_array_equal(middle, [[5.5] * Q, [8.5] * Q])


def test_predicted_position_takes_heads_and_is_differentiable(x64, draw):
    query, w, v = draw(B, 2, Q, D), draw(2, D, A), draw(2, A)
    f = jax.jit(lambda q, w, v: predicted_position(q, jnp.full((B, 1, 1), 11), w, v))
    check_grads(f, (query, w, v), order=1)
    position = f(query, w, v)
    assert position.shape == (B, 2, Q)
    heads = jax.vmap(lambda q, w, v: predicted_position(q, 11, w, v))
    np.testing.assert_allclose(
        position, jax.vmap(lambda q: heads(q, w, v))(query), atol=1e-12
    )


def test_positions_above_256_are_distinct_for_bfloat16_queries(draw):
    query = (0.01 * draw(1, 7, D)).astype(jnp.bfloat16)
    w, v = draw(D, A).astype(jnp.bfloat16), draw(A).astype(jnp.bfloat16)
    position = predicted_position(query, 1009, w, v)
    assert position.dtype == jnp.float32
    assert len(np.unique(position)) == 7


def test_predicted_position_refuses_arguments_that_do_not_fit(draw):
    query, w, v = draw(B, 1, D), draw(D, A), draw(A)
    with pytest.raises(ValueError, match=r"w \(7, 13\) must end in .*\[D=5, A=any\]"):
        predicted_position(query, 11, draw(7, A), v)
    with pytest.raises(ValueError, match=r"w \(5,\) must end in"):
        predicted_position(query, 11, draw(D), v)
    with pytest.raises(ValueError, match=r"v \(5,\) must end in the axes \[A=13\]"):
        predicted_position(query, 11, w, draw(D))
    with pytest.raises(ValueError, match=r"length \(2,\) .* the queries \(2, 1\)"):
        predicted_position(query, jnp.array([11, 7]), w, v)


# Hard attention.

DRAWS = 100_000


@pytest.mark.parametrize("align", [hard_alignment, gumbel_alignment])
def test_keys_are_sampled_with_the_frequencies_of_the_softmax(draw, align):
    scores, mask = draw(7), jnp.arange(7) != 4
    draws = jnp.broadcast_to(scores, (DRAWS, 7))
    drawn = align(draws, mask=mask, rng=jax.random.key(0))
    counts = np.asarray(drawn).sum(0)
    expected = DRAWS * np.asarray(masked_softmax(scores, mask))
    assert counts[4] == 0 and counts.sum() == DRAWS
    allowed = np.asarray(mask)
    statistic = ((counts - expected)[allowed] ** 2 / expected[allowed]).sum()
    # Chi-square with 5 degrees of freedom (6 keys): above 20.5 once in 1,000 runs.
    assert statistic < 20.5


def test_without_rng_the_first_maximum_is_selected():
    scores = jnp.array([[0.0, 2.0, 2.0, 9.0], [-1.0, -2.0, -1.0, -1.0]])
    for align in (hard_alignment, gumbel_alignment):
        weights = align(scores, mask=jnp.arange(4) < 3)
        np.testing.assert_array_equal(weights, [[0, 1, 0, 0], [1, 0, 0, 0]])


def test_samples_depend_on_the_rng_alone(draw):
    scores = jnp.broadcast_to(draw(K), (101, K))
    first, again, other = (hard_alignment(scores, rng=prng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len(np.unique(first.argmax(-1))) > 1  # rows are sampled independently
    gumbel = gumbel_alignment(scores, rng=prng(0), temperature=0.1)
    np.testing.assert_array_equal(gumbel, first)


def relaxed_sample(scores, mask, temperature, rng):
    """Softmax((log a + g) / temperature) in NumPy, with the noise of the sample."""
    logits = np.log(np.asarray(masked_softmax(scores, mask)) + 1e-300)
    logits += np.asarray(jax.random.gumbel(rng, scores.shape))
    exps = np.exp((logits - logits.max(-1, keepdims=True)) / temperature) * mask
    return exps / exps.sum(-1, keepdims=True)


def test_straight_through_has_the_gradient_of_the_relaxed_sample(x64, draw):
    scores, gains, mask = draw(B, Q, K), draw(B, Q, K), np.arange(K) != 4
    rng, temperature = prng(SEED), 0.7

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def loss(scores):
        weights = gumbel_alignment(
            scores, mask=jnp.asarray(mask), rng=rng, temperature=temperature
        )
        return jnp.sum(gains * weights), weights

    (_, weights), gradient = loss(scores)
    relaxed = relaxed_sample(scores, mask, temperature, rng)
    assert np.isin(weights, (0, 1)).all()
    np.testing.assert_array_equal(weights.argmax(-1), relaxed.argmax(-1))
    mean = (relaxed * gains).sum(-1, keepdims=True)
    expected = relaxed * (gains - mean) / temperature
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_without_noise_and_temperature_the_gradient_is_that_of_the_softmax(x64, draw):
    scores, mask, gains = draw(B, Q, K), jnp.arange(K) != 4, draw(B, Q, K)
    for scale in (1, 3):
        slopes = [
            jax.grad(lambda s, f=f: jnp.sum(gains * f(s, mask=mask)))(scale * scores)
            for f in (gumbel_alignment, masked_softmax)
        ]
        np.testing.assert_allclose(*slopes, atol=1e-12)


def test_a_temperature_can_be_traced_and_learned(x64, draw):
    scores = draw(B, Q, K).at[0, 1, 3].set(-jnp.inf)
    gains, mask, rng = draw(B, Q, K), jnp.arange(K) != 4, prng(SEED)

    @jax.jit
    def read(temperature):
        options = {"mask": mask, "rng": rng, "temperature": temperature}
        return jnp.sum(gains * gumbel_alignment(scores, **options))

    def relaxed(temperature):
        return jnp.sum(gains * relaxed_sample(scores, mask, temperature, rng))

    step = 1e-6
    expected = (relaxed(0.7 + step) - relaxed(0.7 - step)) / (2 * step)
    # Central differences with a step of 1e-6 have an error of about 1e-9.
    np.testing.assert_allclose(jax.grad(read)(0.7), expected, atol=1e-7)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, np.float32(0)])
def test_a_temperature_that_is_not_positive_is_refused(draw, temperature):
    with pytest.raises(
        ValueError, match=f"^temperature is {temperature}: must be above 0$"
    ):
        alignments.gumbel_alignment(draw(Q, K), temperature=temperature)


# Training of hard alignments.


def test_log_probability_is_the_log_of_the_sampled_weight(x64, draw, mask):
    scores = draw(B, Q, K)
    drawn = hard_alignment(scores, mask=mask, rng=prng(0))
    log_p = log_probability(scores, drawn, mask=mask)
    weights, allowed, one_hot = map(
        np.asarray, (masked_softmax(scores, mask), mask, drawn)
    )
    for b, q in np.ndindex(B, Q):
        if allowed[b, q].any():
            expected = math.log(weights[b, q, one_hot[b, q].argmax()])
            np.testing.assert_allclose(log_p[b, q], expected, atol=1e-12)
    np.testing.assert_array_equal(log_p[1, 2], 0)
    mapped = jax.vmap(lambda s, d, m: log_probability(s, d, mask=m))
    np.testing.assert_allclose(mapped(scores, drawn, mask), log_p, atol=1e-12)


def test_gradient_of_log_probability_is_sample_minus_weights(x64, draw, mask):
    scores = draw(B, Q, K)
    drawn = hard_alignment(scores, mask=mask, rng=prng(0))
    f = jax.jit(lambda s: log_probability(s, drawn, mask=mask))
    check_grads(f, (scores,), order=1)
    gradient = jax.grad(lambda s: jnp.sum(f(s)))(scores)
    expected = drawn - masked_softmax(scores, mask)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)
    assert (np.asarray(gradient)[~np.asarray(mask)] == 0).all()
    to_drawn = jax.grad(lambda d: jnp.sum(log_probability(scores, d, mask=mask)))
    np.testing.assert_array_equal(to_drawn(drawn), 0)


def test_log_probability_stays_finite_where_the_softmax_is_0():
    masked = [-math.inf] * 3  # masked by the scores themselves
    scores = jnp.array([[0.0, -1e3, 5.0], [3e38, -3e38, 0.0], [7.0] * 3, masked])
    drawn = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], np.float32)
    log_p, backward = jax.jit(partial(jax.vjp, lambda s: log_probability(s, drawn)))(
        scores
    )
    expected = [-1005 - math.log1p(math.exp(-5)), 0, -math.log(3), 0]
    np.testing.assert_allclose(log_p, expected, rtol=1e-6)
    weights = masked_softmax(scores)
    np.testing.assert_allclose(
        *backward(np.ones(4, np.float32)), drawn - weights, atol=1e-6
    )


def test_a_masked_key_has_probability_0(draw):
    scores, mask = draw(Q, K).at[1, 0].set(-jnp.inf), (jnp.arange(K) != 4)
    drawn = jax.nn.one_hot(jnp.array([4, 0, 5]), K)
    f = jax.jit(lambda s: log_probability(s, drawn, mask=mask))
    np.testing.assert_array_equal(f(scores)[:2], -jnp.inf)
    assert np.isfinite(f(scores)[2])
    assert np.isfinite(jax.grad(lambda s: jnp.sum(f(s)))(scores)).all()


def test_without_keys_the_log_probability_is_0():
    empty = jnp.zeros((B, Q, 0))
    np.testing.assert_array_equal(log_probability(empty, empty), np.zeros((B, Q)))


def test_log_probability_takes_several_samples_and_refuses_other_sizes(draw):
    scores = draw(Q, K)
    drawn = hard_alignment(jnp.broadcast_to(scores, (5, Q, K)), rng=prng(0))
    log_p = np.asarray(log_probability(scores, drawn))
    for i, sample in enumerate(np.asarray(drawn)):
        np.testing.assert_allclose(log_p[i], log_probability(scores, sample), rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"sample \(2, 11\) and scores \(2, 1, 11\) dif"
    ):
        log_probability(draw(2, 1, K), jnp.ones((2, K)))
    with pytest.raises(ValueError, match="differ in the number of queries or keys"):
        log_probability(scores, jnp.ones((Q, 1)))


def test_entropy_equals_a_loop_and_is_differentiable(x64, draw, mask):
    weights = masked_softmax(draw(B, Q, K), mask)
    entropies = np.asarray(entropy(weights))
    for b, q in np.ndindex(B, Q):
        expected = -sum(a * math.log(a) for a in np.asarray(weights)[b, q] if a)
        np.testing.assert_allclose(entropies[b, q], expected, atol=1e-12)
    f = jax.jit(lambda s: entropy(masked_softmax(s, mask)))
    check_grads(f, (draw(B, Q, K),), order=1)
    np.testing.assert_allclose(jax.vmap(entropy)(weights), entropies, atol=1e-12)


def test_entropy_is_0_for_one_hot_and_log_k_for_uniform_weights(draw):
    one_hot = jax.nn.one_hot(jnp.arange(Q), K)
    np.testing.assert_array_equal(entropy(one_hot), 0)
    np.testing.assert_allclose(entropy(jnp.full((Q, K), 1 / K)), math.log(K), rtol=1e-6)
    np.testing.assert_array_equal(entropy(jnp.zeros((Q, K))), 0)
    tiny = jnp.array([[0.0, 1e-40, 1e-38, 1e-30] + [0.0] * (K - 4)] * Q)
    for weights in (one_hot, tiny):
        gradient = jax.jit(jax.grad(lambda w: jnp.sum(entropy(w))))(weights)
        assert np.isfinite(gradient).all() and np.isfinite(entropy(weights)).all()
        np.testing.assert_array_equal(np.asarray(gradient)[np.asarray(weights) == 0], 0)
    assert entropy(one_hot.astype(jnp.bfloat16)).dtype == jnp.float32


# Two samples from five keys, the last key masked for the first sample: few enough
# outcomes to enumerate.
STEPS, WAYS = 2, 5


class Toy:
    """A reward of about 3 for each pair of keys."""

    def __init__(self, draw):
        self.scores, self.rewards = draw(STEPS, WAYS), 3 + draw(WAYS, WAYS)
        self.mask = jnp.ones((STEPS, WAYS), bool).at[0, -1].set(False)
        self.estimates = jax.jit(jax.vmap(self.estimate, in_axes=(0, None)))

    def expected_reward(self, scores):
        first, second = masked_softmax(scores, self.mask)
        return first @ self.rewards @ second

    def exact(self):
        """The expected reward and the gradient of its negative."""
        value, gradient = jax.jit(jax.value_and_grad(self.expected_reward))(self.scores)
        return float(value), -np.asarray(gradient)

    def estimate(self, drawn, baseline):
        """Gradient estimate from one pair of samples."""
        reward = drawn[0] @ self.rewards @ drawn[1]

        def surrogate(scores):
            log_p = log_probability(scores, drawn, mask=self.mask)
            return reinforce(jnp.sum(log_p), reward, baseline)

        return jax.grad(surrogate)(self.scores)

    def outcomes(self, baseline):
        """Probability and gradient estimate of each unmasked outcome."""
        pairs = [(i, j) for i in range(WAYS - 1) for j in range(WAYS)]
        drawn = np.eye(WAYS)[np.array(pairs)]  # [outcomes, STEPS, WAYS]
        first, second = np.asarray(masked_softmax(self.scores, self.mask))
        probabilities = np.array([first[i] * second[j] for i, j in pairs])
        return probabilities, np.asarray(self.estimates(drawn, baseline))


@pytest.fixture
def toy(x64, draw):
    return Toy(draw)


def test_reinforce_is_unbiased_for_any_baseline(toy):
    _, exact = toy.exact()
    for baseline in (0.0, 1.7, -40.0):
        probabilities, estimates = toy.outcomes(baseline)
        np.testing.assert_allclose(probabilities.sum(), 1, atol=1e-12)
        mean = np.einsum("n,nqk->qk", probabilities, estimates)
        np.testing.assert_allclose(mean, exact, atol=1e-10)


def test_a_baseline_lowers_the_variance(toy):
    def variance(baseline):
        probabilities, estimates = toy.outcomes(baseline)
        mean = np.einsum("n,nqk->qk", probabilities, estimates)
        return np.einsum("n,nqk->", probabilities, (estimates - mean) ** 2)

    assert variance(toy.exact()[0]) < variance(0.0) / 2


def test_only_the_log_probability_has_a_gradient_in_reinforce(draw):
    log_p, reward, baseline = draw(B, Q), draw(B, Q), draw(B, 1)
    loss = reinforce(log_p, reward, baseline)
    np.testing.assert_allclose(loss, (baseline - reward) * log_p, rtol=1e-6)
    gradients = jax.grad(lambda *a: jnp.sum(reinforce(*a)), argnums=(0, 1, 2))(
        log_p, reward, baseline
    )
    np.testing.assert_allclose(gradients[0], baseline - reward, rtol=1e-6)
    for gradient in gradients[1:]:
        np.testing.assert_array_equal(gradient, 0)


def test_the_baseline_is_the_exponential_moving_average_of_the_rewards(x64, draw):
    rewards, baseline, decay = draw(17), jnp.array(0.0), 0.7
    for reward in rewards:
        baseline = update_baseline(baseline, reward, decay)
    ages = np.arange(17)[::-1]
    expected = (0.3 * 0.7**ages * np.asarray(rewards)).sum()
    np.testing.assert_allclose(baseline, expected, atol=1e-12)
    np.testing.assert_allclose(update_baseline(2.0, 7.0), 2.5, atol=1e-12)
    np.testing.assert_allclose(update_baseline(2.0, 2.0), 2.0, atol=1e-12)


def test_local_p_with_a_wide_window_approaches_masked_softmax(x64, draw):
    scores = draw(B, Q, K)
    for window in (10**3, 10**5):
        options = {"position": POSITION, "window": window}
        ratio = local_p_alignment(scores, **options) / masked_softmax(scores)
        # The ratio is exp(-2 (distance / window)^2), with distances of at most 11.
        np.testing.assert_allclose(ratio, 1, atol=2 * (11 / window) ** 2)
