"""Training loop, state, optimizers, checkpoints, logging and configuration."""
