"""Experiments by name: `get_config(variant)`, always with the variant `smoke`."""
