"""Classification of sentences and of pairs of sentences."""
