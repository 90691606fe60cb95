"""Sequence generation: greedy decoding, sampling and beam search."""

from generation.beam import beam_search
from generation.rollout import greedy
from generation.sampling import sample
from generation.search import (
    Batch,
    Generator,
    Hypothesis,
    Search,
    array_batches,
    sequence_batches,
)
from generation.types import Carry, Decoded, Step

__all__ = [
    "Batch",
    "Carry",
    "Decoded",
    "Generator",
    "Hypothesis",
    "Search",
    "Step",
    "array_batches",
    "beam_search",
    "greedy",
    "sample",
    "sequence_batches",
]
