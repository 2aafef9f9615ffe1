"""What a check finds: a statement of theory beside what the simulator did, and how far apart the two may be."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

ERRORS = 4.0  # standard errors: a right formula fails once in 16,000 seeds, and seeds are fixed
ROUNDING = 1e-9  # of virtual seconds, which are sums of many

Models = Tensor | Sequence[Tensor]


@dataclass(frozen=True)
class Finding:
    """One statement, held against one measurement.

    Attributes:
        statement: what is claimed, with its numbers.
        source: who claims it: authors (year), or the law it follows from.
        expected: what theory gives.
        measured: what the simulator gave; for an identity, the largest relative difference.
        tolerance: how far the two may be apart: 0 for bits, 1e-12 for arithmetic in another order, and else what
            the samples' own standard error gives.
        relation: of the measured to the expected.
        excludes: a wrong value that is often given; the measurement must tell it from the right one.
        family: to which the check belongs.
    """

    statement: str
    source: str
    expected: float
    measured: float
    tolerance: float = 0.0
    relation: Literal["=", "<=", ">="] = "="
    excludes: float | None = None
    family: str = ""

    @property
    def holds(self) -> bool:
        """Whether the measured is as expected within the tolerance, and the excluded value is not."""
        return self._agrees(self.measured) and (self.excludes is None or self._tells(self.excludes))

    def _agrees(self, value: float) -> bool:
        above, below = value - self.expected <= self.tolerance, self.expected - value <= self.tolerance
        return {"=": above and below, "<=": above, ">=": below}[self.relation]

    def _tells(self, wrong: float) -> bool:
        return min(abs(wrong - self.expected), abs(wrong - self.measured)) > self.tolerance


Check = Callable[[], Iterator[Finding]]


@dataclass(frozen=True)
class Family:
    """The checks of one family of methods, by name."""

    name: str
    title: str
    checks: dict[str, Check] = field(default_factory=dict)

    def check(self, function: Check) -> Check:
        """Add `function`, as a decorator."""
        self.checks[function.__name__] = function
        return function


def identical(statement: str, source: str, one: Models, other: Models) -> Finding:
    """Two models, or sequences of them, are the same bit for bit."""
    return Finding(statement, source, 0.0, difference(one, other))


def close(statement: str, source: str, one: Models, other: Models, rtol: float = 1e-12) -> Finding:
    """Two models in double precision, or sequences of them, are the same but for rounding."""
    return Finding(statement, source, 0.0, difference(one, other), rtol)


def differ(statement: str, source: str, one: Models, other: Models, least: float = 1e-6) -> Finding:
    """Two models that are sometimes taken for one another are not the same."""
    return Finding(statement, source, least, difference(one, other), relation=">=")


def equals(
    statement: str, source: str, expected: float, measured: ArrayLike, rtol: float = ROUNDING, **more: float
) -> Finding:
    """A number, or each of several, is as expected, but for rounding; the one furthest off is shown."""
    values = np.ravel(np.asarray(measured, dtype=float))
    worst = values[np.argmax(np.abs(values - expected))] if values.size else math.nan
    return Finding(statement, source, expected, float(worst), rtol * max(1.0, abs(expected)), **more)


def at_most(statement: str, source: str, bound: float, measured: ArrayLike, rtol: float = ROUNDING) -> Finding:
    """A number, or each of several, is no more than `bound`, but for rounding."""
    return Finding(statement, source, bound, float(np.max(measured)), rtol * max(1.0, abs(bound)), "<=")


def mean_is(
    statement: str, source: str, expected: float, samples: ArrayLike, *, digits: float = 0.0, **more: float
) -> Finding:
    """The mean of independent samples is as expected, within `ERRORS` of its own standard errors.

    Args:
        digits: half a unit of the last digit, where the expected value was published rounded.
    """
    values = np.asarray(samples, dtype=float)
    error = values.std(ddof=1) / math.sqrt(len(values))
    tolerance = ERRORS * float(error) + ROUNDING * max(1.0, abs(expected)) + digits
    return Finding(statement, source, expected, float(values.mean()), tolerance, **more)


def batches(samples: ArrayLike, count: int = 50) -> np.ndarray:
    """The means of `count` stretches of a correlated series `(n,)`: nearly independent samples.

    Source: the method of batch means, Law & Kelton, Simulation Modeling and Analysis, section 9.5.
    """
    values = np.asarray(samples, dtype=float)
    return values[len(values) % count :].reshape(count, -1).mean(1)


def difference(one: Models, other: Models) -> float:
    """The largest difference of two models, relative to the larger; infinite where they cannot be compared."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or not (one.isfinite().all() and other.isfinite().all()):
            return math.inf
        if torch.equal(one, other):
            return 0.0
        return float((one - other).abs().max() / torch.maximum(one.abs().max(), other.abs().max()))
    return max(difference(mine, its) for mine, its in zip(one, other, strict=True))
