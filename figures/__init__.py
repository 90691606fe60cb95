"""Figures of attention and of results, drawn from arrays and saved as PNG."""
