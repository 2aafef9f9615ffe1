"""Bounds on the work of a check: a config that would keep it busy for hours must still end."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

REPEAT_SECONDS = 0.1


@contextmanager
def limit_calls(calls: int) -> Iterator[None]:
    """Raise `MemoryError` after `calls` function calls in the context.

    The limit is the same on every machine. Counting slows calls down, so it suits short checks.
    """
    left = calls

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise MemoryError("more work than a check may do")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


class CpuBudget:
    """Seconds of CPU time that several checks may take together, in the main thread.

    Attributes:
        left: the seconds left.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Raise `TimeoutError` in the context once the seconds are used up."""
        if self.left <= 0:
            raise TimeoutError

        def stop(*_: Any) -> None:
            raise TimeoutError

        before = signal.signal(signal.SIGVTALRM, stop)
        # again and again: an exception in a callback of the garbage collector is swallowed
        signal.setitimer(signal.ITIMER_VIRTUAL, self.left, REPEAT_SECONDS)
        try:
            yield
        except TimeoutError:
            self.left = 0.0
            raise
        else:
            self.left = signal.getitimer(signal.ITIMER_VIRTUAL)[0]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, before)
