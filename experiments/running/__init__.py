"""Running: one run, a sweep, worker processes, estimates and progress."""
