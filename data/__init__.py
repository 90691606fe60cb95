"""Readers and generators of data: numpy only, no jax, no config objects."""
