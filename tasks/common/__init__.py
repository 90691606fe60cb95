"""What two or more tasks use: batches, vocabularies, downloads, splits, text."""
