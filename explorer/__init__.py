"""The page on which the attention of trained runs is looked at; see `explore.py`."""
