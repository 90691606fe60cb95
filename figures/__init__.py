"""Figures of attention and of results, drawn from arrays and written as PNG."""
