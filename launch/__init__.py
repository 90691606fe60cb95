"""Files that launch jobs on clusters: `python -m launch`, docs/launching.md."""
