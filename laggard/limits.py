"""A bound on the work of a check: a config that would keep it busy for hours must still end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CallBudget:
    """A number of function calls that a check may make, the same on every machine.

    Example:
        >>> budget = CallBudget(100)
        >>> with budget.limited():
        ...     _ = [abs(number) for number in range(50)]
        >>> budget.left < 100
        True
    """

    def __init__(self, calls: int) -> None:
        self.left = calls

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Raise `MemoryError` within the context once the calls are used up."""

        def count(*_: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise MemoryError("more work than a check may do")

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            yield
        finally:
            sys.setprofile(before)
