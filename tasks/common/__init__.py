"""Shared by two or more tasks: batches, vocabularies, downloads, splits, text."""
