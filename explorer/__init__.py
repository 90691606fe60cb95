"""The page that shows the attention of trained runs; see `explore.py`."""
