"""Files that launch jobs on clusters; see `launch.py` and docs/launching.md."""
