"""Details of attention records: the weights can be computed again from them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from details import weights_of
from fields import CASES, TRANSFORMER
from translators import inputs_of, instances, normal_like, quick_jit, translator

from attention import memory
from base.records import DETAILS, AttentionRecord, records_of
from models.few_shot import MatchingNetwork, SnailClassifier
from models.lstmn import LSTMNLanguageModel
from models.memory_network import MemoryNetwork
from models.memory_network_language import MemoryNetworkLanguageModel
from models.non_local import SpatialSelfAttention
from models.ntm import NeuralTuringMachine
from models.pointer import PointerNetwork
from models.sentences import SentenceClassifier
from models.transformer import Transformer
from models.visual_questions import ShowAskAttendAnswer, SpatialMemoryNetwork

# All alignments of these are a softmax.
NAMES = ["bahdanau", "luong, location-aware", "xu", "chan", "transformer"]


def records(model, variables, batch, collections):
    """The attention records of a full pass."""
    apply = functools.partial(model.apply, train=False, mutable=collections)
    _, sown = quick_jit(apply)(variables, *arguments(batch))
    return records_of(sown, AttentionRecord)


def arguments(batch):
    """A batch, or several arrays, as positional arguments of a model."""
    return batch if isinstance(batch, tuple) else (batch,)


def check(model, variables, batch):
    """Checks the weights of all records against the softmax of their parts."""
    sown = records(model, variables, batch, ["attention", DETAILS])
    assert sown
    for record in sown:
        details = record.details
        weights = weights_of(details)
        actual = np.reshape(record.weights, weights.shape)  # those of a map have 5 axes
        np.testing.assert_allclose(weights, actual, atol=1e-5)
        assert len({len(x) for x in jax.tree.leaves(details)}) == 1  # the batch's axis


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_the_softmax_of_the_parts(name):
    check(*translator(*CASES[name]))


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "relative"},
        {"positions": "rotary", "encoder_score": "additive", "cross_score": "cosine"},
        {"encoder_score": "location", "decoder_score": "general"},
        {"cross_score": "additive_relu", "decoder_score": "scaled_multiplicative"},
    ],
)
def test_scores_and_positions_of_a_transformer_are_in_the_parts(changes):
    check(*translator(Transformer, TRANSFORMER, changes))


POINTER = dict(embedding=7, hidden=5, score_hidden=11, max_inputs=7)
LSTMN = dict(embedding=3, hidden=5, score_hidden=7, memory=3)
WORDS = dict(vocab_size=13, classes=3, embedding=3, hidden=5, score_hidden=7)
ENTAILMENT = functools.partial(SentenceClassifier, memory=7, classifier=2, **WORDS)
HOPS = functools.partial(MemoryNetwork, vocab_size=13, memory=11, width=5)


def texts(*shape):
    return jnp.asarray(np.random.default_rng(0).integers(3, 13, shape))


def pairs():
    padded = texts(2, 7).at[1, 4:].set(0)
    return {"first": padded, "second": texts(2, 5).at[0, 3:].set(0)}


def stories():
    sentences = texts(2, 5, 3).at[0, 2:].set(0)
    times = jnp.arange(5, 0, -1) * (sentences[..., 0] > 0)
    return {"sentences": sentences, "times": times, "question": texts(2, 3)}


def episodes():
    images = np.random.default_rng(0).normal(size=(2, 7, 8, 8))
    labels = np.random.default_rng(0).permuted([[0, 0, 1, 1, 2, 2, 0]] * 2, axis=1)
    return jnp.asarray(images), jnp.asarray(labels)


def maps():
    return jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 6, 8)))


def scenes():
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), np.uint8)
    return jnp.asarray(images), texts(2, 5).at[1, 3:].set(0)


EPISODES = dict(ways=3, shots=2, channels=(5,), embedding=7, score_hidden=11)
SNAIL = functools.partial(SnailClassifier, blocks=((5, 3), 2, (7, 2)), **EPISODES)
IMAGE = dict(vocab_size=13, answers=3, objects=0, channels=(3, 5), embedding=7)
IMAGE |= dict(score_hidden=11)
ASK = functools.partial(ShowAskAttendAnswer, hidden=5, classifier=2, glimpses=3)
SPATIAL = functools.partial(SpatialMemoryNetwork, hops=3, **IMAGE)

OTHERS = {
    "pointer": (PointerNetwork(**POINTER, glimpses=1), instances),
    "pointer, location": (PointerNetwork(**POINTER, score="location"), instances),
    "pointer, baseline": (PointerNetwork(**POINTER, output="attention"), instances),
    "hops": (HOPS(), stories),
    "hops, additive": (HOPS(score="additive", empty_slots=False), stories),
    "hops, layer-wise": (HOPS(score="cosine", tying="layerwise"), stories),
    "hops, text": (
        MemoryNetworkLanguageModel(13, width=5, hops=2, memory=3),
        lambda: texts(2, 7),
    ),
    "lstmn": (
        LSTMNLanguageModel(13, layers=2, **LSTMN),
        lambda: texts(2, 7),
    ),
    "lstmn, scaled": (
        LSTMNLanguageModel(13, score="scaled_multiplicative", **LSTMN),
        lambda: texts(2, 7),
    ),
    "deep fusion": (ENTAILMENT(fusion="deep"), pairs),
    "shallow fusion": (ENTAILMENT(fusion="shallow", encoder="lstm"), pairs),
    "snail": (SNAIL(), episodes),
    "matching": (MatchingNetwork(**EPISODES), episodes),
    "sagan": (SpatialSelfAttention(key_reduction=2, pool=True, spectral=False), maps),
    "sagan, gaussian": (SpatialSelfAttention("gaussian", spectral=False), maps),
    "stacked glimpses": (ASK(**IMAGE), scenes),
    "stacked glimpses, product": (ASK(score="scaled_multiplicative", **IMAGE), scenes),
    "spatial memory": (SPATIAL(), scenes),
    "spatial memory, additive": (SPATIAL(score="additive"), scenes),
}


def with_variables(model, batch):
    init = functools.partial(model.init, train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), *arguments(batch))
    statistics = {"batch_stats": shapes.get("batch_stats", {})}
    statistics = jax.tree.map(lambda x: jnp.ones(x.shape), statistics)
    return model, {"params": normal_like(shapes["params"])} | statistics, batch


@pytest.mark.parametrize("name", OTHERS)
def test_weights_of_other_models_are_the_softmax_of_the_parts(name):
    model, inputs = OTHERS[name]
    check(*with_variables(model, inputs()))


@pytest.mark.parametrize("form", ["dot", "concatenation"])
def test_weights_that_are_no_softmax_have_no_details(form):
    model = SpatialSelfAttention(form, spectral=False)
    sown = records(*with_variables(model, maps()), ["attention", DETAILS])
    assert [record.details for record in sown] == [None]


def test_weights_of_a_memory_are_the_last_stage_of_its_addressing():
    sizes = dict(hidden=7, read_heads=2, slots=11, width=5, memory_init="learned")
    model = NeuralTuringMachine(3, **sizes)
    inputs = jnp.asarray(np.random.default_rng(0).random((2, 5, 4)))
    sown = records(*with_variables(model, inputs), ["attention", DETAILS])
    d, readers = sown[0].details, sizes["read_heads"]
    contents, weights = d.start, d.focus
    for t in range(5):
        parameters = (d.key, d.strength, d.gate, d.shifts, d.sharpening)
        key, strength, gate, shifts, sharpening = (x[:, :, t] for x in parameters)
        weights = memory.content_weights(key, contents, strength)
        previous = d.weights[:, :, t - 1] if t else d.focus
        weights = memory.interpolate(weights, previous, gate)
        weights = memory.sharpen(memory.shift(weights, shifts), sharpening)
        np.testing.assert_allclose(weights, d.weights[:, :, t], atol=1e-5)
        contents = memory.write(
            contents, weights[:, readers:], d.erase[:, :, t], d.add[:, :, t]
        )


def test_a_text_that_is_continued_has_no_details():
    model, variables, tokens = with_variables(OTHERS["lstmn"][0], texts(2, 7))
    _, carry = model.apply(variables, tokens, train=False)
    _, sown = model.apply(
        variables, tokens, carry, train=False, mutable=["attention", DETAILS]
    )
    assert [x.details for x in records_of(sown, AttentionRecord)] == [None] * 2


@pytest.mark.parametrize("name", ["bahdanau", "luong", "xu", "transformer"])
@pytest.mark.parametrize("alignment", ["global", "local_p", "gumbel"])
def test_a_record_has_the_window_of_local_p_and_whether_its_alignment_is_hard(
    name, alignment
):
    family, *changes = CASES[name]
    field = "cross_alignment" if name == "transformer" else "alignment"
    model = family(
        **functools.reduce(lambda a, b: a | b, changes)
        | {field: alignment, "window": 3}
    )
    sown = jax.eval_shape(
        lambda: model.init(jax.random.key(0), inputs_of(model), train=False)
    )
    cross = [x for x in records_of(sown, AttentionRecord) if x.kind == "cross"]
    assert cross
    for each in cross:
        assert each.window == (3 if alignment == "local_p" else None)
        assert (each.position is None) == (alignment != "local_p")
        assert each.hard == (alignment == "gumbel")


def test_details_are_computed_on_request_only():
    model, variables, batch = translator(*CASES["bahdanau"])
    sown = records(model, variables, batch, ["attention"])
    assert [record.details for record in sown] == [None] * len(sown)
    initial = jax.eval_shape(
        lambda: model.init(jax.random.key(0), inputs_of(model), train=False)
    )
    assert [x.details for x in records_of(initial, AttentionRecord)] == [None] * len(
        sown
    )


def test_the_first_example_is_cut_to_its_length():
    model, variables, batch = translator(*CASES["transformer"])
    record, *_ = records(model, variables, batch, ["attention", DETAILS])
    cut = record.details.cut(2, 3)
    assert cut.bias.shape[1:] == (2, 3)
    np.testing.assert_array_equal(cut.query, record.details.query[0][:, :2])
    np.testing.assert_array_equal(cut.key, record.details.key[0][:, :3])
