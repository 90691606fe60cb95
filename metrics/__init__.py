"""Metrics: pure functions of arrays and text."""
