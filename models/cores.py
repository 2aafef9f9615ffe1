"""How many cores there are for this process."""

import os


def cores() -> int:
    """How many cores this process may use: by its affinity, where there is one, and not by quotas of CPU time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
