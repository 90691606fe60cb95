"""Sweeps over fields of configs; see `sweep.py` and docs/sweeps.md."""
