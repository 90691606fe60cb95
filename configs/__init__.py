"""Configs of experiments: `get_config(variant)`; every file has a variant `smoke`."""
