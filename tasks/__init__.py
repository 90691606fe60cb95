"""Tasks, a folder for each: data, objective, metrics, figures and predictions."""
