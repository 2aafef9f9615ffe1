"""Values that are constant from one moment to the next."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class StepFunction:
    """A value that is constant between moments: a factor, a bandwidth, a latency.

    Attributes:
        moments: increasing (s).
        values: before the first moment, from each moment to the next, and from the last one on.

    Example:
        >>> StepFunction([1.0, 3.0], [5.0, 7.0, 0.0]).at(1.0)
        (7.0, 3.0)
    """

    __slots__ = ("moments", "values")

    def __init__(self, moments: Sequence[float], values: Sequence[Any]) -> None:
        self.moments = moments
        self.values = values

    @classmethod
    def sample(cls, moments: Iterable[float], value: Callable[[float], Any]) -> "StepFunction":
        """The function `value` from 0 s on, which changes only at `moments` (s)."""
        changes, values = list[float](), [value(0.0)]
        for moment in sorted(set(moments)):
            if moment <= 0:
                continue
            sampled = value(moment)
            if sampled != values[-1]:
                changes.append(moment)
                values.append(sampled)
        return cls(changes, values)

    def at(self, time: float) -> tuple[Any, float]:
        """The value at `time` (s), and the moment (s) until which it holds, which may be inf."""
        passed = bisect_right(self.moments, time)
        if passed < len(self.moments):
            return self.values[passed], self.moments[passed]
        return self.values[passed], math.inf
