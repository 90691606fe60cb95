"""Readers and generators of data: numpy and scipy, no jax, no config objects."""
