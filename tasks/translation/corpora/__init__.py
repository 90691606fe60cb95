"""Readers and generators of parallel text, one file for each source."""
