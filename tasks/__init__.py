"""A task a file: its data, objective, metrics, figures and predictions."""
