"""Shared by all parts: errors, ranges, options, files, records of attention."""
