"""Sequence generation: greedy decoding, sampling and beam search."""
