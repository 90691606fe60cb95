"""Pointer networks: sorting and planar geometry."""
