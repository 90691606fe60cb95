"""Decoding against enumeration and plain loops, on a small recurrent model."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from generation.beam import beam_search
from generation.constraints import forbid, triangles, visit_once
from generation.rollout import greedy
from generation.sampling import sample

BATCH, WIDTH, SOURCE, VOCAB, LENGTH = 3, 7, 11, 5, 4
PAD, BOS, EOS = 0, 1, 2


class Carry(NamedTuple):
    state: jax.Array  # [B, R, D]

    def take(self, parents):
        return Carry(jnp.take_along_axis(self.state, parents[..., None], 1))


class Model:
    """An RNN whose next token depends on all tokens before it."""

    def __init__(self, seed=0, sharpness=2.0, batch=BATCH, vocab=VOCAB):
        draw = np.random.default_rng(seed).normal
        self.first = draw(size=(batch, WIDTH))
        self.embed = draw(size=(vocab, WIDTH))
        self.mix = draw(size=(WIDTH, WIDTH))
        self.out = draw(size=(WIDTH, vocab)) * sharpness
        self.attend = draw(size=(WIDTH, SOURCE))
        self.offset = np.zeros(vocab)
        self.calls = 0

    def count(self):
        self.calls += 1

    def start(self, rows):
        return Carry(jnp.repeat(jnp.float32(self.first)[:, None], rows, 1))

    def step(self, carry, token):
        jax.debug.callback(self.count)
        state = jnp.tanh(carry.state @ self.mix + jnp.asarray(self.embed)[token])
        logits = state @ self.out + self.offset
        return Carry(state), logits, jax.nn.softmax(state @ self.attend)

    def follow(self, tokens, b):
        """Log-probabilities [T, W] and weights [T, S] of sentence b, by NumPy."""
        state, log_probs, weights = self.first[b], [], []
        for token in (BOS, *tokens[:-1]):
            state = np.tanh(state @ self.mix + self.embed[token])
            logits, scores = state @ self.out + self.offset, state @ self.attend
            log_probs.append(logits - np.log(np.exp(logits).sum()))
            weights.append(np.exp(scores) / np.exp(scores).sum())
        return np.stack(log_probs), np.stack(weights)

    def log_prob(self, tokens, b):
        return self.follow(tokens, b)[0][np.arange(len(tokens)), tokens].sum()


def sentences(length, vocab=VOCAB):
    """Every sequence of at most `length` tokens that ends in its only EOS."""
    others = [token for token in range(vocab) if token != EOS]
    for count in range(length):
        for prefix in itertools.product(others, repeat=count):
            yield (*prefix, EOS)


def enumerate_all(model, b, limit):
    """{tokens: log-probability} of every possible output of sentence b."""
    return {tokens: model.log_prob(tokens, b) for tokens in sentences(limit)}


def plain_beam(model, b, beam, limit, alpha):
    """Textbook beam search of one sentence, without early stop: [(score, tokens)]."""
    live, done = [((), 0.0)], []
    for t in range(limit):
        candidates = []
        for prefix, log_prob in live:
            step = model.follow((*prefix, PAD), b)[0][-1]
            candidates += [((*prefix, w), log_prob + step[w]) for w in range(VOCAB)]
        if t + 1 == limit:
            candidates = [new for new in candidates if new[0][-1] == EOS]
        candidates.sort(key=lambda new: -new[1])
        for tokens, log_prob in candidates[:beam]:
            if tokens[-1] == EOS:
                done.append((log_prob / ((5 + len(tokens)) / 6) ** alpha, tokens))
        live = [new for new in candidates if new[0][-1] != EOS][:beam]
    return sorted(done, reverse=True)


def seeds(batch, first=0):
    return np.arange(first, first + batch, dtype=np.uint32)


METHODS = {
    "greedy": lambda model, **options: greedy(model.step, model.start(1), **options),
    "sample": lambda model, samples=5, **options: sample(
        model.step,
        model.start(samples),
        seeds(options["batch"]),
        samples=samples,
        **options,
    ),
    "beam": lambda model, beam=5, **options: beam_search(
        model.step, model.start(beam), beam=beam, **options
    ),
}


def run(method, model, **options):
    options = {"batch": len(model.first), "max_length": LENGTH} | options
    return jax.jit(lambda: METHODS[method](model, **options))()


def texts(decoded):
    """Returns the tokens of every hypothesis as tuples, without padding."""
    tokens, lengths = np.asarray(decoded.tokens), np.asarray(decoded.lengths)
    return [
        [tuple(row[:n].tolist()) for row, n in zip(*sentence, strict=True)]
        for sentence in zip(tokens, lengths, strict=True)
    ]


@pytest.mark.parametrize(
    ("alpha", "offset", "limit"),
    [(0.0, 5, (4, 4, 4)), (0.6, 5, (2, 4, 3)), (1.7, 5, (4, 4, 4)), (1, 0, (4, 4, 4))],
)
def test_an_exhaustive_beam_ranks_sentences_as_enumeration_does(alpha, offset, limit):
    model = Model()
    decoded = run(
        "beam",
        model,
        limit=np.asarray(limit),
        beam=85,
        n_best=5,
        alpha=alpha,
        offset=offset,
    )
    for b in range(BATCH):
        table = enumerate_all(model, b, limit[b])
        score = {
            tokens: log_prob / ((offset + len(tokens)) / (offset + 1)) ** alpha
            for tokens, log_prob in table.items()
        }
        best = sorted(score, key=lambda tokens: -score[tokens])[:5]
        assert texts(decoded)[b] == best
        expected = [score[tokens] for tokens in best]
        np.testing.assert_allclose(decoded.scores[b], expected, rtol=1e-5)
        expected = [table[tokens] for tokens in best]
        np.testing.assert_allclose(decoded.log_probs[b], expected, rtol=1e-5)


@pytest.mark.parametrize("beam", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.0, 1.1])
def test_beam_search_equals_a_plain_loop_without_early_stop(beam, alpha):
    model = Model(seed=1, sharpness=0.7)
    model.offset[EOS] = 0.7
    decoded = run("beam", model, beam=beam, n_best=beam, alpha=alpha, max_length=5)
    for b in range(BATCH):
        expected = plain_beam(model, b, beam, 5, alpha)[:beam]
        count = len(expected)
        assert texts(decoded)[b][:count] == [tokens for _, tokens in expected]
        scores = [score for score, _ in expected]
        np.testing.assert_allclose(decoded.scores[b, :count], scores, rtol=1e-5)


def test_beam_of_one_without_penalty_is_greedy():
    model = Model(seed=2, sharpness=0.5, batch=13, vocab=17)
    model.offset[EOS] = 1
    options = {"max_length": 19, "keep_weights": True}
    expected = run("greedy", model, **options)
    decoded = run("beam", model, beam=1, alpha=0.0, **options)
    assert len(set(expected.lengths[:, 0].tolist())) > 3
    for field in ("tokens", "lengths"):
        np.testing.assert_array_equal(getattr(decoded, field), getattr(expected, field))
    for field in ("scores", "log_probs", "weights"):
        actual, reference = getattr(decoded, field), getattr(expected, field)
        np.testing.assert_allclose(actual, reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_hypotheses_are_consistent(method):
    model = Model(seed=4, sharpness=0.7, batch=13, vocab=17)
    limit = np.arange(13) % 6 + 2
    options = {"n_best": 3} if method == "beam" else {}
    decoded = run(
        method, model, max_length=7, limit=limit, keep_weights=True, **options
    )
    assert decoded.scores.dtype == decoded.log_probs.dtype == jnp.float32
    assert np.all(np.diff(decoded.scores) <= 0)
    assert np.all(decoded.lengths <= limit[:, None])
    assert len(set(decoded.lengths.ravel().tolist())) > 2
    for b, rows in enumerate(texts(decoded)):
        for n, tokens in enumerate(rows):
            count = len(tokens)
            assert tokens.index(EOS) == count - 1
            assert np.all(decoded.tokens[b, n, count:] == PAD)
            log_prob = model.log_prob(tokens, b)
            np.testing.assert_allclose(decoded.log_probs[b, n], log_prob, rtol=1e-5)
            scale = ((5 + count) / 6) ** 0.6 if method == "beam" else 1
            score = log_prob / scale
            np.testing.assert_allclose(decoded.scores[b, n], score, rtol=1e-5)
            weights = decoded.weights[b, n]
            expected = model.follow(tokens, b)[1]
            np.testing.assert_allclose(weights[:count], expected, atol=1e-5)
            assert np.all(weights[count:] == 0)


def test_missing_hypotheses_have_length_zero_and_score_minus_infinity():
    decoded = run("beam", Model(), beam=3, n_best=3, max_length=1, keep_weights=True)
    assert decoded.lengths.tolist() == [[1, 0, 0]] * BATCH
    assert np.all(decoded.tokens == jnp.asarray([[EOS], [PAD], [PAD]]))
    assert np.all(decoded.scores[:, 1:] == -jnp.inf)
    assert np.all(decoded.weights[:, 1:] == 0)


class Prefix(NamedTuple):
    tokens: jax.Array  # [B, R, L], -1 after the end
    time: jax.Array

    def take(self, parents):
        tokens = jnp.take_along_axis(self.tokens, parents[..., None], 1)
        return Prefix(tokens, self.time)


def search_table(table, beam, **options):
    """Beam search in a table {prefix without BOS: probabilities [W]}."""
    length = max(map(len, table)) + 1

    def step(carry, token):
        tokens = carry.tokens.at[:, :, carry.time].set(token)
        logits = jnp.full((*token.shape, VOCAB), -jnp.inf)
        for prefix, probs in table.items():
            row = (BOS, *prefix, *[-1] * (length - 1 - len(prefix)))
            match = (tokens == jnp.asarray(row)).all(-1, keepdims=True)
            logits = jnp.where(match, jnp.log(jnp.asarray(probs)), logits)
        return Prefix(tokens, carry.time + 1), logits, None

    start = Prefix(jnp.full((1, beam, length), -1), jnp.zeros((), jnp.int32))
    options = {"batch": 1, "beam": beam, "max_length": length} | options
    decoded = jax.jit(lambda: beam_search(step, start, **options))()
    return texts(decoded)[0], np.asarray(decoded.scores[0])


def test_the_tree_has_each_hypothesis_with_its_log_probability():
    model, beam = Model(), 3
    decoded = run("beam", model, beam=beam, keep_tree=True)
    for b, (best,) in enumerate(texts(decoded)):
        tree, prefixes, ended = decoded.search_tree(b), [()] * beam, {}
        for tokens, parents, log_probs, scores in zip(*tree, strict=True):
            ends = [(*prefix, EOS) for prefix in prefixes]
            ended |= {
                end: score
                for end, score in zip(ends, scores, strict=True)
                if np.isfinite(score)
            }
            prefixes = [
                (*prefixes[parent], token)
                for parent, token in zip(parents, tokens, strict=True)
            ]
            for prefix, log_prob in zip(prefixes, log_probs, strict=True):
                if np.isfinite(log_prob):
                    expected = model.log_prob(prefix, b)
                    np.testing.assert_allclose(log_prob, expected, rtol=1e-4)
        assert max(ended, key=ended.get) == best
        np.testing.assert_allclose(ended[best], decoded.scores[b, 0])


def test_a_live_hypothesis_is_followed_if_it_can_win_at_the_limit():
    """Its bound has the penalty at the limit, not at its current length."""
    ends, goes_on = [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]
    table = {(): [0, 0, 0.6, 0.4, 0], (3,): goes_on, (3, 3): goes_on, (3,) * 3: ends}
    hypotheses, scores = search_table(table, 2, alpha=2.0)
    assert hypotheses == [(3, 3, 3, EOS)]
    np.testing.assert_allclose(scores, np.log(0.4) / (9 / 6) ** 2, rtol=1e-5)
    assert scores[0] > np.log(0.6)


def test_the_beam_keeps_its_width_when_eos_is_among_the_best():
    ends, spread = [0, 0, 1, 0, 0], [0.2] * 5
    table = {(): [0, 0, 0.4, 0.35, 0.25], (3,): spread, (4,): ends}
    hypotheses, scores = search_table(table, 2, alpha=0.0, n_best=2)
    assert hypotheses == [(EOS,), (4, EOS)]
    np.testing.assert_allclose(scores, np.log([0.4, 0.25]), rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_decoding_stops_once_all_hypotheses_have_ended(method):
    for offset, steps in ((50, 1), (-50, 5)):
        model = Model()
        model.offset[EOS] = offset
        run(method, model, max_length=29, limit=np.asarray([2, 5, 3]))
        jax.effects_barrier()
        assert model.calls == steps


@pytest.mark.parametrize("method", METHODS)
def test_a_token_of_logit_minus_infinity_is_never_chosen(method):
    model = Model(seed=7, batch=13)
    model.offset[[PAD, BOS]] = -np.inf
    for rows in texts(run(method, model, max_length=5)):
        assert set(itertools.chain(*rows)) <= {EOS, 3, 4}


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_logits_are_scored_in_float32(method):
    class Half(Model):
        def step(self, carry, token):
            carry, logits, _ = super().step(carry, token)
            return carry, logits.astype(jnp.bfloat16), None

    decoded = run(method, Half())
    assert decoded.scores.dtype == jnp.float32
    assert decoded.weights is None
    log_prob = Model().log_prob(texts(decoded)[0][0], 0)
    # bfloat16 has 8 bits
    np.testing.assert_allclose(decoded.log_probs[0, 0], log_prob, atol=0.1)


def test_samples_have_the_frequencies_of_the_model():
    model, count = Model(seed=8, sharpness=0.7), 4001
    decoded = jax.jit(
        lambda: sample(
            model.step,
            model.start(count),
            seeds(BATCH, 1),
            batch=BATCH,
            max_length=4,
            samples=count,
        )
    )()
    for b, rows in enumerate(texts(decoded)):
        # The EOS at the limit is not sampled: only shorter sentences are compared.
        for tokens, log_prob in enumerate_all(model, b, 3).items():
            prob = np.exp(log_prob)
            deviation = np.sqrt(prob * (1 - prob) / count)
            assert abs(rows.count(tokens) / count - prob) < 4.5 * deviation


@pytest.mark.parametrize(
    "option", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}]
)
def test_the_limits_of_sampling_options_are_greedy(option):
    model = Model(seed=9, batch=13)
    decoded = run("sample", model, max_length=5, **option)
    expected = run("greedy", model, max_length=5)
    assert np.all(decoded.tokens == expected.tokens)  # each of the five samples


def test_top_k_and_top_p_sample_exactly_their_support():
    probs = np.asarray([0.05, 0.3, 0.02, 0.4, 0.03, 0.2])

    def step(carry, token):
        return carry, jnp.broadcast_to(jnp.log(probs), (1, 997, 6)), None

    def draw(**option):
        return sample(
            step, (), seeds(1, 2), batch=1, max_length=2, samples=997, eos=5, **option
        ).tokens

    for option, support in [
        ({"top_k": 2}, {1, 3}),
        ({"top_p": 0.71}, {1, 3, 5}),
        ({"top_p": 0.69}, {1, 3}),
        ({"top_k": 3, "top_p": 0.76}, {1, 3}),  # renormalised: 4/9, 3/9, 2/9
        ({"top_k": 3, "top_p": 0.79}, {1, 3, 5}),
        ({"top_k": 6}, set(range(6))),
    ]:
        tokens = jax.jit(lambda option=option: draw(**option))()
        assert set(tokens[0, :, 0].tolist()) == support


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("beam", {"beam": 2, "n_best": 3}, "n_best is 3: must be 1 to beam=2"),
        ("beam", {"alpha": -0.5}, "alpha is -0.5: must be at least 0"),
        (
            "beam",
            {"max_length": 0},
            "batch is 3 and max_length is 0: must be at least 1",
        ),
        ("beam", {"limit": jnp.ones(2)}, r"limit is \[2\]: must be \[3\]"),
        ("sample", {"temperature": 0.0}, "temperature is 0.0: must be above 0"),
        ("sample", {"top_k": -1}, "top_k is -1: must be at least 0"),
        (
            "sample",
            {"top_k": VOCAB + 1},
            "top_k is 6: must be at most 5, the size",
        ),
        ("sample", {"top_p": 1.5}, r"top_p is 1.5: must be in \(0, 1\]"),
        ("sample", {"top_p": 0}, r"top_p is 0: must be in \(0, 1\]"),
        ("sample", {"samples": 0}, "samples is 0: must be at least 1"),
    ],
)
def test_invalid_options_are_named(method, options, message):
    with pytest.raises(ValueError, match=message):
        run(method, Model(), **options)


def test_weights_cannot_be_kept_if_the_step_has_none():
    def step(carry, token):
        return (*Model().step(carry, token)[:2], None)

    with pytest.raises(ValueError, match="step returns no attention weights"):
        greedy(step, Model().start(1), batch=3, max_length=5, keep_weights=True)


NO_STATE = Carry(jnp.zeros((1, 2, 1)))


def test_visited_inputs_and_an_early_end_are_forbidden():
    def step(carry, token):
        return carry, jnp.zeros((1, 2, 4)), None

    constrained, carry = visit_once(step, NO_STATE, jnp.array([[True, False, True]]), 2)
    allowed = []
    for tokens in ([0, 0], [1, 3], [3, 1], [0, 0]):
        carry, logits, _ = constrained(carry, jnp.array([tokens]))
        allowed.append(np.isfinite(logits[0]).astype(int).tolist())
        if tokens == [1, 3]:
            carry = carry.take(jnp.array([[1, 0]]))
    assert allowed == [
        [[0, 1, 0, 1]] * 2,
        [[0, 0, 0, 1], [0, 1, 0, 0]],
        # The rows were swapped, and each points at a visited input again.
        [[0, 1, 0, 0], [0, 0, 0, 1]],
        [[0, 1, 0, 0], [0, 0, 0, 1]],
    ]


@pytest.mark.parametrize("minimum", [1, 3])
def test_an_answer_without_repetition_may_end_at_the_minimum(minimum):
    def step(carry, token):
        return carry, jnp.zeros((1, 1, 6)), None

    mask = jnp.array([[True, True, True, True, False]])
    constrained, carry = visit_once(step, NO_STATE, mask, 1, minimum)
    tokens = [0, 4, 2, 1, 3]
    for t, token in enumerate(tokens):
        carry, logits, _ = constrained(carry, jnp.array([[token]]))
        allowed = {1, 2, 3, 4} - {*tokens[: t + 1]} | ({0} if t >= minimum else set())
        assert np.flatnonzero(np.isfinite(logits[0, 0])).tolist() == sorted(allowed)


@pytest.mark.parametrize("n", [3, 4, 5, 7])
def test_triangles_are_new_and_of_three_points(n):
    """Random answers, whose next pointers are compared with an enumeration."""
    width = n + 2  # two points are padding

    def step(carry, token):
        return carry, jnp.zeros((1, 2, width + 1)), None

    mask = jnp.arange(width)[None] < n
    constrained, carry = triangles(step, NO_STATE, mask, 2)
    every = [{*triple} for triple in itertools.combinations(range(1, n + 1), 3)]
    rng, chosen, constrained = np.random.default_rng(0), [[], []], jax.jit(constrained)
    token = [0, 0]
    for _ in range(3 * min(len(every), 2 * width - 5)):
        carry, logits, _ = constrained(carry, jnp.array([token]))
        for row, pointers in enumerate(chosen):
            current = {*pointers[len(pointers) // 3 * 3 :]}
            before = [{*pointers[i : i + 3]} for i in range(0, len(pointers) - 2, 3)]
            left = [x for x in every if x not in before and current <= x]
            expected = set().union(*left) - current | (
                {0} if pointers and not current else set()
            )
            allowed = np.flatnonzero(np.isfinite(logits[0, row]))
            assert allowed.tolist() == sorted(expected)
            token[row] = int(rng.choice(sorted(expected - {0})))
            pointers.append(token[row])
        if len(chosen[0]) == 2:  # the rows change places
            carry, token = carry.take(jnp.array([[1, 0]])), token[::-1]
            chosen.reverse()
    _, logits, _ = constrained(carry, jnp.array([token]))
    ends = np.isfinite(logits[0, :, 0])
    assert ends.all() and (
        len(every) > 2 * width - 5 or np.isinf(logits[0, :, 1:]).all()
    )


def test_forbidden_ids_have_probability_zero_and_the_others_keep_their_logits():
    def step(carry, token):
        return carry + 1, jnp.arange(14.0).reshape(1, 2, 7), "weights"

    carry, logits, weights = forbid(step, (0, 1, 3))(3, None)
    assert (carry, weights) == (4, "weights")
    expected = np.arange(14.0).reshape(1, 2, 7)
    expected[..., [0, 1, 3]] = -np.inf
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize("method", METHODS)
def test_limits_are_cut_to_the_possible_lengths(method):
    model = Model(seed=9, sharpness=0.5)
    model.offset[EOS] = -3
    decoded = run(method, model, limit=np.asarray([0, 99, 3]))
    expected = run(method, model, limit=np.asarray([1, LENGTH, 3]))
    np.testing.assert_array_equal(decoded.tokens, expected.tokens)
    assert (decoded.lengths.max(1) <= np.asarray([1, LENGTH, 3])).all()


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_renamed_tokens_give_renamed_outputs(method):
    model, names = Model(seed=10, batch=13, vocab=7), np.asarray([4, 6, 3, 0, 5, 1, 2])
    model.offset[EOS] = 1
    renamed, order = Model(seed=10, batch=13, vocab=7), np.argsort(names)
    renamed.embed, renamed.out = model.embed[order], model.out[:, order]
    renamed.offset = model.offset[order]
    special = dict(zip(("pad", "bos", "eos"), names.tolist(), strict=False))
    expected = run(method, model, max_length=5)
    decoded = run(method, renamed, max_length=5, **special)
    assert len(set(expected.lengths.ravel().tolist())) > 2
    np.testing.assert_array_equal(decoded.tokens, names[expected.tokens])
    np.testing.assert_array_equal(decoded.lengths, expected.lengths)
    np.testing.assert_allclose(decoded.scores, expected.scores, rtol=1e-5)
