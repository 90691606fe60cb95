"""Algorithmic tasks of the Neural Turing Machine."""
