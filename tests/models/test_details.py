"""Details of attention records: the weights can be computed again from them."""

import jax
import numpy as np
import pytest
from fields import CASES, TRANSFORMER
from translators import inputs_of, quick_jit, translator

from attention.declaration import ScoreParts
from base.records import DETAILS, AttentionRecord, records_of
from models.transformer import Transformer

# All alignments of these are a softmax.
DECODERS = ["bahdanau", "bahdanau, location-aware", "luong", "luong, location-aware"]
NAMES = [*DECODERS, "xu", "chan", "chan, location-aware", "transformer"]


def records(model, variables, batch, collections):
    """The attention records of a full pass."""
    _, sown = quick_jit(
        lambda variables, batch: model.apply(
            variables, batch, train=False, mutable=collections
        )
    )(variables, batch)
    return records_of(sown, AttentionRecord)


def check(model, variables, batch):
    """Checks the weights of all records against the softmax of their parts."""
    sown = records(model, variables, batch, ["attention", DETAILS])
    assert sown
    for record in sown:
        d = record.details
        parts = ScoreParts(
            d.query, d.key, v=d.v, location=d.location, activation=d.activation
        )
        scores = d.scale[..., None, None] * parts.terms().sum(-1) + d.bias
        weights = jax.nn.softmax(scores, where=scores > -np.inf)
        np.testing.assert_allclose(weights, record.weights, atol=1e-5)
        assert len({len(x) for x in jax.tree.leaves(d)}) == 1  # the batch's axis


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


@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_details_are_computed_on_request_only(name):
    model, variables, batch = translator(*CASES[name])
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
