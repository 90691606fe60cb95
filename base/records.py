"""Typed records of attention and sampled alignments, sown by models.

A model sows its records by `sow`; `apply` returns them in the collections named in
`mutable`:

    logits, sown = model.apply(variables, batch, train=False, mutable=["attention"])
    for record in records_of(sown, AttentionRecord):
        print(record.kind, record.layer, record.weights.shape)

The details of a record are computed only if `DETAILS` is mutable as well, never in
training:

    _, sown = model.apply(variables, batch, train=False, mutable=["attention", DETAILS])
    for record in records_of(sown, AttentionRecord):
        print(record.details)

Axes: B batch; H heads; Q queries; K keys; T steps; N memory slots; M width of a slot;
W write heads; A units of a score; I, J rows and columns of a feature map.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import flax
import jax
import numpy as np
from flax import linen as nn

DETAILS = "details"
"""Collection that is mutable where the details of attention records are of use."""


@flax.struct.dataclass
class ScoreDetails:
    """Terms of the scores, from which the weights can be computed again.

    The score of a query and a key is scale sum_a t_a + bias. The term of a unit is t_a
    = query_a key_a or, of an additive score, v_a f(query_a + key_a + location_a).

    Attributes:
        query: [B, H, Q, A], projected.
        key: [B, H, K, A], projected.
        scale: [B, H].
        bias: [B, H or 1, Q, K], terms of the positions; -inf at a masked key.
        v: [B, H, A] of an additive score; None for a product.
        location: [B, H, Q, K, A]; None for a score without such a term.
        activation: f, "tanh" or "relu"; "" for a product.
        own_keys: whether each query has keys and parameters of its own, like the hops
            of a memory network. The queries are then along the axis H, and Q is 1.
    """

    query: jax.Array
    key: jax.Array
    scale: jax.Array
    bias: jax.Array
    v: jax.Array | None = None
    location: jax.Array | None = None
    activation: str = flax.struct.field(pytree_node=False, default="")
    own_keys: bool = flax.struct.field(pytree_node=False, default=False)

    def cut(self, queries: int, keys: int) -> "ScoreDetails":
        """Returns the batch's first example without padding: [H, ...] arrays."""
        first = jax.tree.map(lambda x: np.asarray(x[0]), self)
        location = first.location
        return first.replace(
            query=first.query[:, :queries],
            key=first.key[:, :keys],
            bias=first.bias[:, :queries, :keys],
            location=None if location is None else location[:, :queries, :keys],
        )


@flax.struct.dataclass
class MemoryDetails:
    """Addressing, reads and writes of a memory, to compute its contents again.

    Attributes:
        weights: [B, H, T, N] of all heads, read heads first.
        key: [B, H, T, M], compared with each slot by cosine similarity.
        strength: [B, H, T], beta, which multiplies the cosines.
        gate: [B, H, T], g, the share of the content weights; the rest is that of the
            previous weights.
        shifts: [B, H, T, J], s, a distribution over shifts by -(J // 2) to J // 2.
        sharpening: [B, H, T], gamma, the exponent of the shifted weights.
        erase: [B, W, T, M] erase vectors of the write heads.
        add: [B, W, T, M] add vectors of the write heads.
        start: [B, N, M] memory before the first step.
        focus: [B, H, N] weights before the first step.
        inputs: [B, T, I] inputs of the steps.
        outputs: [B, T, O] logits of the steps.
    """

    weights: jax.Array
    key: jax.Array
    strength: jax.Array
    gate: jax.Array
    shifts: jax.Array
    sharpening: jax.Array
    erase: jax.Array
    add: jax.Array
    start: jax.Array
    focus: jax.Array
    inputs: jax.Array
    outputs: jax.Array


@flax.struct.dataclass
class AttentionRecord:
    """Attention weights of one layer and the meaning of their axes.

    Attributes:
        weights: [B, H, Q, K]; [B, H, T, N] over memory slots; [B, I, J, I', J'] over a
            feature map, the query's axes first.
        position: [B, H, Q], p_t predicted by local-p; None for other alignments.
        kind: "encoder", "decoder" (self-attention), "cross", "read", "write",
            "spatial", "pointer", "glimpse", ...
        layer: index among the layers of this kind, from 0.
        queries: meaning of the queries' axis: "source", "target", "steps", "map", ...
        keys: meaning of the keys' axis: "source", "target", "memory", "map", ...
        window: half-width of the window around `position`; None for no window.
        hard: whether each query attends to a single key, sampled or the most probable.
        details: `ScoreDetails` or `MemoryDetails`, if they are requested; else None.
    """

    collection: ClassVar[str] = "attention"

    weights: jax.Array
    position: jax.Array | None = None
    details: Any = None
    kind: str = flax.struct.field(pytree_node=False, default="attention")
    layer: int = flax.struct.field(pytree_node=False, default=0)
    queries: str = flax.struct.field(pytree_node=False, default="queries")
    keys: str = flax.struct.field(pytree_node=False, default="keys")
    window: int | None = flax.struct.field(pytree_node=False, default=None)
    hard: bool = flax.struct.field(pytree_node=False, default=False)

    def batch_of_one(self) -> "AttentionRecord":
        """Returns the record of one example as that of a batch."""
        return jax.tree.map(lambda x: x[None], self)


@flax.struct.dataclass
class SampleRecord:
    """Log-probability and entropy of sampled keys or locations, for REINFORCE.

    Attributes:
        log_probability: [B, ..., T] log-probability of the sampled keys, or density of
            the sampled locations.
        entropy: [B, ..., T] entropy of their distribution, in nats.
        baseline: [B, ..., T] reward that the model expects; None without such an
            output.
    """

    collection: ClassVar[str] = "reinforce"

    log_probability: jax.Array
    entropy: jax.Array
    baseline: jax.Array | None = None


@flax.struct.dataclass
class GlimpseRecord:
    """Locations of the glimpses at an image; see `attention.glimpses.glimpse`.

    Attributes:
        location: [B, T, 2], from -1 to 1.
        size: rows and columns of a patch.
        scales: number of patches of a glimpse.
    """

    collection: ClassVar[str] = "attention"

    location: jax.Array
    size: int = flax.struct.field(pytree_node=False)
    scales: int = flax.struct.field(pytree_node=False)


class SearchTree(NamedTuple):
    """Hypotheses of a beam search, in the beam at each step.

    Attributes:
        tokens: [T, R], the last token of each hypothesis, as an id or a label.
        parents: [T, R] int, row of the hypothesis that it continues, one step before.
        log_probs: [T, R] log-probability of a hypothesis; -inf if there is none.
        ended: [T, R] score of hypothesis `row` of the step before, ended at this step;
            -inf if it does not end.
    """

    tokens: Any
    parents: Any
    log_probs: Any
    ended: Any

    def cut(self) -> "SearchTree":
        """Returns the steps in which there are hypotheses."""
        exist = np.isfinite(self.log_probs) | np.isfinite(self.ended)
        steps = int(exist.any(1).sum())
        return SearchTree(*(x[:steps] for x in self))


Record = TypeVar("Record", AttentionRecord, SampleRecord, GlimpseRecord)


def sow(module: nn.Module, record: Record) -> None:
    """Sows a record in the collection of its type."""
    module.sow(record.collection, "record", record)


def records_of(sown: Mapping[str, Any], record_type: type[Record]) -> list[Record]:
    """Returns the records of a type, in order of kind and layer.

    Args:
        sown: collections as returned by `nn.Module.apply` with `mutable`.
        record_type: `AttentionRecord`, `SampleRecord` or `GlimpseRecord`.

    Returns:
        The records, attention records sorted by (kind, layer); empty if none was sown.
    """
    leaves = jax.tree.leaves(
        sown.get(record_type.collection, {}),
        is_leaf=lambda leaf: isinstance(leaf, record_type),
    )
    records = [leaf for leaf in leaves if isinstance(leaf, record_type)]
    if record_type is AttentionRecord:
        records.sort(key=lambda each: (each.kind, each.layer))  # type: ignore[attr-defined]
    return records
