"""Classification from few examples of each class."""
