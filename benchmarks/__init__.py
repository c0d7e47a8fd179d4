"""Speed, recall and memory against what else a user may pick: see `run.py`."""
