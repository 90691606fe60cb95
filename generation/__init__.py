"""Greedy, sampled and beam decoding of anything that predicts a token at a time."""

from generation.beam import beam_search
from generation.greedy import greedy
from generation.sampling import sample
from generation.types import Carry, Decoded, Step

__all__ = ["Carry", "Decoded", "Step", "beam_search", "greedy", "sample"]
