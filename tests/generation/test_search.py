"""Search over many inputs, compared with a search of each input alone."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import quick_jit

from base.errors import UserError
from generation.beam import beam_search
from generation.sampling import line_seed, sample
from generation.search import Generator, Search, array_batches, sequence_batches

PAD, BOS, EOS, UNK = 0, 1, 2, 3
WIDTH, VOCAB = 7, 13


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Compiles without optimisation: compilation takes most of the time here."""
    monkeypatch.setattr(jax, "jit", quick_jit)


class Carry(NamedTuple):
    state: jax.Array  # [B, R, D]

    def take(self, parents):
        return Carry(jnp.take_along_axis(self.state, parents[..., None], 1))


class Translator:
    """A recurrent decoder that attends to its embedded source; EOS has an offset."""

    def __init__(self, offset=1.0, attends=True):
        draw = np.random.default_rng(0).normal
        self.embed, self.mix = draw(size=(VOCAB, WIDTH)), draw(size=(WIDTH, WIDTH))
        self.out = draw(size=(WIDTH, VOCAB))
        self.offset = offset * (np.arange(VOCAB) == EOS)
        self.attends = attends

    def apply(self, variables, *args, method):
        assert variables == {"params": variables["params"]}
        return getattr(self, method)(variables["params"], *args)

    def encode(self, params, source):
        return jnp.asarray(self.embed)[source], source != PAD

    def start(self, params, memory, rows, length):
        state = (memory[0] * memory[1][..., None]).sum(1)
        return Carry(jnp.repeat(state[:, None], rows, 1) * params["scale"])

    def step(self, params, carry, token, memory):
        keys, mask = memory
        scores = jnp.where(mask[:, None], carry.state @ keys.mT, -jnp.inf)
        weights = jax.nn.softmax(scores)
        inputs = jnp.asarray(self.embed)[token] + weights @ keys
        state = jnp.tanh(carry.state @ self.mix + inputs)
        attention = weights if self.attends else None
        return Carry(state), state @ self.out + self.offset, attention


PARAMS = {"scale": np.float32(0.5)}
FORBIDDEN = (PAD, BOS, UNK)


def sequences(lengths):
    rng = np.random.default_rng(1)
    return [[*rng.integers(4, VOCAB, n - 1).tolist(), EOS] for n in lengths]


def batches_of(inputs, batch_size=5, extra=3, max_length=29):
    return [*sequence_batches(inputs, batch_size, extra=extra, max_length=max_length)]


def forbidding(step, params, memory):
    """A `generation.types.Step` of a model, without the forbidden ids."""
    forbidden = np.isin(np.arange(VOCAB), FORBIDDEN)

    def constrained(carry, token):
        carry, logits, weights = step(params, carry, token, memory)
        return carry, jnp.where(forbidden, -jnp.inf, logits), weights

    return constrained


@functools.cache
def searching(model, search, length):
    """A compiled beam search of a single source, without padding."""

    @quick_jit
    def run(source):
        memory = model.encode(PARAMS, source[None])
        return beam_search(
            forbidding(model.step, PARAMS, memory),
            model.start(PARAMS, memory, search.beam, length),
            batch=1,
            beam=search.beam,
            max_length=length,
            alpha=search.alpha,
            n_best=search.n_best,
            keep_weights=True,
        )

    return run


def alone(model, source, search, length):
    """[(ids, score, weights)] of the hypotheses of a single source."""
    decoded = searching(model, search, length)(np.array(source))
    tokens, scores, _, lengths, weights = (np.asarray(x)[0] for x in decoded[:5])
    return [
        (tokens[i, :n].tolist(), scores[i], weights[i, :n])
        for i, n in enumerate(lengths)
        if n
    ]


# --- batches


def test_sequences_are_batched_by_length_in_widths_of_powers_of_two():
    lengths = [3, 40, 16, 17, 5, 33, 2, 31, 16]
    inputs = sequences(lengths)
    batches = batches_of(inputs, batch_size=3)
    order = [index for batch in batches for index in batch.indices]
    assert sorted(order) == [*range(len(lengths))]
    assert [lengths[i] for i in order] == sorted(lengths)
    assert [b.source().shape for b in batches] == [
        (3, 16),  # lengths 2, 3, 5
        (3, 16),  # lengths 16, 16
        (3, 32),
        (3, 64),
    ]
    for batch in batches:
        assert batch.source().dtype == np.int32
        for row, index in enumerate(batch.indices):
            ids = batch.source()[row]
            assert ids[: lengths[index]].tolist() == inputs[index]
            assert np.all(ids[lengths[index] :] == PAD)
        assert np.all(batch.source()[len(batch.indices) :] == PAD)


def test_limits_depend_on_the_source_and_filler_has_limit_one():
    lengths = [3, 11, 16, 21, 28]
    batches = batches_of(sequences(lengths), batch_size=4, extra=5, max_length=29)
    assert [b.limit.tolist() for b in batches] == [[8, 16, 21, 1], [26, 29, 1, 1]]
    assert [b.length for b in batches] == [21, 29]


@pytest.mark.parametrize(("count", "size"), [(0, None), (1, 1), (2, 2), (3, 4), (9, 5)])
def test_few_sequences_form_a_batch_of_a_power_of_two(count, size):
    sizes = {len(b.source()) for b in batches_of(sequences([4] * count))}
    assert sizes == ({size} if count else set())


@pytest.mark.parametrize("count", [1, 4, 5, 6, 11])
def test_arrays_are_batched_in_order_in_one_shape(count):
    rng = np.random.default_rng(0)
    inputs, sizes = rng.normal(size=(count, 3, 2)), rng.integers(1, 9, count)
    requested = []

    def source(indices):
        requested.extend(indices)
        return {"inputs": inputs[indices], "sizes": sizes[indices]}

    batches = [
        *array_batches(count, 5, source, length=17, limit=lambda i: 2 * sizes[i])
    ]
    sources = [batch.source() for batch in batches]
    assert requested == [*range(count)]  # no filler
    assert [index for batch in batches for index in batch.indices] == requested
    for batch, arrays in zip(batches, sources, strict=True):
        size = len(batch.indices)
        assert arrays["inputs"].shape == (min(count, 5), 3, 2)
        assert batch.length == 17
        np.testing.assert_array_equal(batch.limit, 2 * arrays["sizes"])
        expected = source(batch.indices)
        for name, x in arrays.items():
            np.testing.assert_array_equal(x[:size], expected[name])
            assert np.all(x[size:] == x[size - 1])


def test_no_arrays_form_no_batch_and_no_limit_stays_none():
    assert [*array_batches(0, 5, None, length=3)] == []
    (batch,) = array_batches(2, 5, np.arange(2).__getitem__, length=3)
    assert batch.limit is None


# --- generation


@pytest.mark.parametrize("beam", [1, 3])
def test_hypotheses_equal_those_of_each_input_alone(beam):
    model, search = Translator(), Search(beam, 0.6 * (beam > 1), n_best=beam)
    inputs = sequences([9, 3, 18, 3, 9, 9, 3, 18])
    actual = Generator(model, forbidden=FORBIDDEN).generate(
        PARAMS, batches_of(inputs), search, keep_weights=True
    )
    assert len(actual) == len(inputs)
    for source, hypotheses in zip(inputs, actual, strict=True):
        expected = alone(model, source, search, min(len(source) + 3, 29))
        assert len(hypotheses) == len(expected)
        for hypothesis, (ids, score, weights) in zip(hypotheses, expected, strict=True):
            assert hypothesis.ids == ids and not {*ids} & {*FORBIDDEN}
            assert ids.index(EOS) + 1 == len(ids)
            np.testing.assert_allclose(hypothesis.score, score, rtol=1e-5)
            assert len(hypothesis.weights) == len(ids)
            size = len(source)
            np.testing.assert_allclose(hypothesis.weights[:, :size], weights, atol=1e-5)
            assert np.all(hypothesis.weights[:, size:] == 0)


def test_missing_hypotheses_are_left_out():
    ranked = Generator(Translator()).generate(
        PARAMS,
        batches_of(sequences([3, 5]), extra=0, max_length=1),
        Search(3, n_best=3),
    )
    assert [[h.ids for h in hypotheses] for hypotheses in ranked] == [[[EOS]]] * 2


@pytest.mark.parametrize("offset", [np.nan, -np.inf])
@pytest.mark.parametrize(
    "search", [Search(), Search(3, n_best=2), Search(temperature=1.0)]
)
def test_a_search_without_a_finite_hypothesis_is_refused_in_one_line(search, offset):
    model = Translator()
    model.offset = np.full(VOCAB, offset)
    generator = Generator(model)
    batches = batches_of(sequences([3, 5]), extra=1, max_length=7)
    with pytest.raises(UserError, match="^the search finds no hypothesis w"):
        generator.generate(PARAMS, batches, search)


@pytest.mark.parametrize("attends", [False, True])
def test_a_model_attends_if_its_step_has_weights(attends):
    generator, batches = Generator(Translator(attends=attends)), batches_of([[EOS]])
    source = jax.ShapeDtypeStruct((3, 5), jnp.int32)
    params = jax.eval_shape(lambda: PARAMS)
    assert generator.attends(params, source) == attends
    generate = functools.partial(generator.generate, PARAMS, batches, Search())
    if attends:
        assert generate(keep_weights=True)[0][0].weights.shape[1:] == (16,)
    else:
        with pytest.raises(ValueError, match="step returns no attention weights"):
            generate(keep_weights=True)


def test_samples_depend_on_the_text_of_the_line_and_the_seed_alone():
    """Whatever the other lines are, their number, order, lengths and batches."""
    model = Translator(offset=-1)
    inputs = sequences([4, 9, 4, 17, 5])
    lines = [" ".join(map(str, ids)) for ids in inputs]
    search = Search(temperature=0.9, top_k=7, top_p=0.9, n_best=2)
    generator = Generator(model, forbidden=FORBIDDEN)

    def draw(seed, order, batch_size=5):
        ranked = generator.generate(
            PARAMS,
            batches_of([inputs[i] for i in order], batch_size),
            search,
            seeds=[line_seed(seed, lines[i]) for i in order],
        )
        return [[h.ids for h in hypotheses] for hypotheses in ranked]

    together = draw(5, range(5))
    assert together == draw(5, range(5)) != draw(6, range(5))
    assert all(first != second for first, second in together)
    assert together[0] != together[2]
    for order, size in ([4, 2, 0, 3, 1], 5), ([0], 5), ([3, 0, 3, 1], 2), ([1, 2], 1):
        assert draw(5, order, size) == [together[i] for i in order]

    @quick_jit
    def expected(source, seeds):
        memory = model.encode(PARAMS, source)
        return sample(
            forbidding(model.step, PARAMS, memory),
            model.start(PARAMS, memory, 2, 7),
            seeds,
            batch=1,
            max_length=7,
            temperature=0.9,
            top_k=7,
            top_p=0.9,
            samples=2,
        )

    for number in (0, 2):
        seeds = np.array([line_seed(5, lines[number])], np.uint32)
        decoded = expected(np.array([inputs[number]]), seeds)
        ids = [
            row[:n].tolist()
            for row, n in zip(decoded.tokens[0], decoded.lengths[0], strict=True)
        ]
        assert together[number] == ids


def test_the_seed_of_a_line_is_of_its_text_and_the_seed():
    lines = ["the dogs", "the dogs ", "the  dogs", "dogs the", "1 the dogs", ""]
    seeds = [line_seed(3, line) for line in lines]
    assert seeds[0] == seeds[1] and len({*seeds}) == len(lines) - 1
    assert line_seed(31, "the dogs") != line_seed(3, "1 the dogs")
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_progress_counts_the_decoded_inputs():
    done = []
    Generator(Translator()).generate(
        PARAMS,
        batches_of(sequences([3, 4, 5, 20, 21]), 2),
        Search(),
        progress=done.append,
    )
    assert done == [2, 3, 5]


def test_a_program_is_compiled_for_each_shape_and_search():
    generator, inputs = Generator(Translator()), sequences([3, 5, 9, 12])
    for inputs_now, search, count in [
        (inputs, Search(), 1),
        (inputs[:3], Search(), 1),  # filler
        (inputs, Search(2), 2),
        (inputs, Search(beam=2), 2),
        (sequences([17] * 4), Search(2), 3),
    ]:
        generator.generate(PARAMS, batches_of(inputs_now, 4), search)
        assert generator.decode._cache_size() == count


def test_a_constraint_wraps_the_step_and_sees_the_source():
    """This constraint makes every output repeat its source."""

    class Timed(NamedTuple):
        carry: Carry
        time: jax.Array

        def take(self, parents):
            return Timed(self.carry.take(parents), self.time)

    def repeat(step, carry, source, rows):
        def constrained(carry, token):
            inner, logits, weights = step(carry.carry, token)
            target = source[:, carry.time, None]
            assert logits.shape == (len(source), rows, VOCAB)
            allowed = jnp.arange(VOCAB) == target[..., None]
            logits = jnp.where(allowed, logits, -jnp.inf)
            return Timed(inner, carry.time + 1), logits, weights

        return constrained, Timed(carry, jnp.zeros((), jnp.int32))

    inputs = sequences([4, 2, 7])
    for beam in (1, 3):
        generator = Generator(Translator(), forbidden=FORBIDDEN, constrain=repeat)
        ranked = generator.generate(PARAMS, batches_of(inputs), Search(beam))
        assert [best.ids for (best,) in ranked] == inputs


# --- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 1001}, "beam is 1001: must be at least 1 and at most"),
        ({"alpha": float("nan")}, "alpha is nan: must be at least 0 and at most"),
        ({"n_best": 3, "beam": 2}, "n_best is 3: must be at most the beam size 2, wh"),
        ({"n_best": 0, "temperature": 1.0}, "n_best is 0: must be at least 1"),
        ({"temperature": 1e-9}, "temperature is 1e-09: must be 0 or at least 1e-06"),
        (
            {"top_p": 0.0, "temperature": 1.0},
            "top_p is 0.0: must be above 0 and at most 1",
        ),
        ({"top_k": 5}, "top_k is 5: must be 0 unless temperature is above 0"),
        ({"top_p": 0.5}, "top_p is 0.5: must be 1 unless temperature is above 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(UserError, match=f"^{message}"):
        Search(**options).check()
    with pytest.raises(UserError, match=f"^{message}"):
        Search().override(**options)
    with pytest.raises(UserError, match=r"^config\.evaluation\."):
        Search(**options).check("config.evaluation.")


def test_options_in_range_are_accepted_and_none_overrides_nothing():
    search = Search(4, 0.6, n_best=4)
    assert search.check() is search
    assert search.override(beam=None, alpha=None) == search
    assert search.override(beam=5, n_best=5) == Search(5, 0.6, n_best=5)
    assert Search(n_best=7, temperature=0.5, top_k=3, top_p=0.9).check()
    assert Search(1000, n_best=1000).check()
