"""Python's collector of reference cycles, which would look at thousands of workers again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

PER_WORKER = 64  # objects more than before, at which it looks: what is under way comes and goes, and leaves no cycles
MANY = 1024  # workers, of which an earlier run may not lie in memory beside another


def clear(workers: int) -> None:
    """Have it look once, if there are to be many workers: what is left of an earlier run hangs together in circles."""
    if workers >= MANY:
        gc.collect()


@contextmanager
def seldom(workers: int) -> Iterator[None]:
    """In here it looks when so many objects have been added per worker: cycles of one's own do not fill the memory."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], PER_WORKER * workers), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
