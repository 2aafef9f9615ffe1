"""Running: one run, a sweep, worker processes, estimates and progress."""

SNAPSHOT_SECONDS = 60.0
"""Wall time from one snapshot of a run to the next, at least."""
