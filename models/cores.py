"""How many cores there are for this process."""

import os


def cores() -> int:
    """How many cores this process may use, which a scheduler or a container may have made fewer than the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
