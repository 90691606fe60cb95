"""Attention as pure functions of arrays: score, align, read."""
