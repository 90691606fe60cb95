"""Typed records of attention and sampled alignments, sown by models.

A model sows its records as `module.sow(*record.sown())`; `apply` returns them in the
collections named in `mutable`:

    logits, sown = model.apply(variables, batch, train=False, mutable=["attention"])
    for record in records_of(sown, AttentionRecord):
        print(record.kind, record.layer, record.weights.shape)

Axes: B batch; H heads; Q queries; K keys; T steps; N memory slots; I, J rows and
columns of a feature map.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import flax
import jax


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
    """

    collection: ClassVar[str] = "attention"

    weights: jax.Array
    position: jax.Array | None = None
    kind: str = flax.struct.field(pytree_node=False, default="attention")
    layer: int = flax.struct.field(pytree_node=False, default=0)
    queries: str = flax.struct.field(pytree_node=False, default="queries")
    keys: str = flax.struct.field(pytree_node=False, default="keys")

    def sown(self) -> tuple[str, str, "AttentionRecord"]:
        """Returns the arguments of `nn.Module.sow`."""
        return self.collection, "record", self


@flax.struct.dataclass
class DrawRecord:
    """Log-probability and entropy of random draws, for REINFORCE.

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

    def sown(self) -> tuple[str, str, "DrawRecord"]:
        """Returns the arguments of `nn.Module.sow`."""
        return self.collection, "record", self


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

    def sown(self) -> tuple[str, str, "GlimpseRecord"]:
        """Returns the arguments of `nn.Module.sow`."""
        return self.collection, "glimpses", self


Record = TypeVar("Record", AttentionRecord, DrawRecord, GlimpseRecord)


def records_of(sown: Mapping[str, Any], record_type: type[Record]) -> list[Record]:
    """Returns the records of a type, in order of kind and layer.

    Args:
        sown: collections as returned by `nn.Module.apply` with `mutable`.
        record_type: `AttentionRecord`, `DrawRecord` or `GlimpseRecord`.

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
