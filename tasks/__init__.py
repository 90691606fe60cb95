"""Tasks, one per module: data, objective, metrics, figures and predictions."""
