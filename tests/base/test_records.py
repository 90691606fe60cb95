"""Records sown by a model are returned complete, typed and in order."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from base.records import AttentionRecord, SampleRecord, records_of, sow


class Layer(nn.Module):
    kind: str
    layer: int

    @nn.compact
    def __call__(self, weights):
        record = AttentionRecord(weights, kind=self.kind, layer=self.layer)
        sow(self, record)
        sow(self, SampleRecord(weights.sum((1, 3)), weights.mean((1, 3))))


class Model(nn.Module):
    @nn.compact
    def __call__(self, weights):
        for kind in ("encoder", "cross"):
            for layer in (11, 2):
                Layer(kind, layer, name=f"{kind}_{layer}")(weights * layer)


def sown():
    weights = jnp.ones((2, 3, 5, 7))
    return jax.jit(
        lambda: Model().apply({}, weights, mutable=["attention", "reinforce"])[1]
    )()


def test_records_are_sorted_by_kind_and_layer():
    records = records_of(sown(), AttentionRecord)
    assert [(r.kind, r.layer) for r in records] == [
        ("cross", 2),
        ("cross", 11),
        ("encoder", 2),
        ("encoder", 11),
    ]
    for record in records:
        np.testing.assert_array_equal(
            record.weights, np.full((2, 3, 5, 7), record.layer)
        )
        assert record.position is None


def test_draws_are_collected_separately():
    records = records_of(sown(), SampleRecord)
    assert [r.log_probability.shape for r in records] == [(2, 5)] * 4
    assert [r.entropy.shape for r in records] == [(2, 5)] * 4


def test_without_sown_records_the_list_is_empty():
    assert records_of({}, AttentionRecord) == records_of({}, SampleRecord) == []
