"""Greedy, sampled and beam decoding of anything that predicts a token at a time."""

from decoding.beam import beam_search
from decoding.greedy import greedy
from decoding.sampling import sample
from decoding.types import Carry, Decoded, Step

__all__ = ["Carry", "Decoded", "Step", "beam_search", "greedy", "sample"]
