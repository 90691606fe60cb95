"""Speech: log-mel features, recordings of digits, synthetic speech, audio files."""
