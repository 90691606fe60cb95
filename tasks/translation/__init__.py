"""Translation of parallel text."""
