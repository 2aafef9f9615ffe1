"""Statements of theory beside what the simulator does: each is asserted, and noted for
`docs/statements.md`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

ERRORS = 4.0  # standard errors: a right formula fails once in 16,000 seeds, and seeds are fixed
ROUNDING = 1e-9  # of virtual seconds, which are sums of many

Models = Tensor | Sequence[Tensor]


@dataclass(frozen=True)
class Statement:
    """One statement and one measurement.

    Attributes:
        text: what is claimed.
        source: who claims it: authors (year), or the law it follows from.
        expected: what theory gives.
        measured: what the simulator gave; for an identity, the largest relative difference.
        tolerance: how far the two may be apart: 0 for bits, 1e-12 for arithmetic in another order,
            and else what the samples' own standard error gives.
        relation: of the measured to the expected.
        wrong: a value that is often given instead; the measurement must tell it from the right one.
    """

    text: str
    source: str
    expected: float
    measured: float
    tolerance: float = 0.0
    relation: Literal["=", "<=", ">="] = "="
    wrong: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the measured is as expected within the tolerance, and tells the wrong value from
        the right one.
        """
        above = self.measured - self.expected <= self.tolerance
        below = self.expected - self.measured <= self.tolerance
        agrees = {"=": above and below, "<=": above, ">=": below}[self.relation]
        return agrees and (self.wrong is None or self._excludes(self.wrong))

    def _excludes(self, wrong: float) -> bool:
        return min(abs(wrong - self.expected), abs(wrong - self.measured)) > self.tolerance


made: list[Statement] = []
"""The statements of the test that runs."""


def check(statement: Statement) -> None:
    """Note a statement, and assert that it holds."""
    made.append(statement)
    assert statement.holds, f"does not hold: {statement}"


def same(text: str, one: Models, other: Models, *, source: str, rtol: float = 0.0) -> None:
    """Two models, or sequences of them, are the same: bit for bit, or but for rounding, with `rtol`
    of it.
    """
    check(Statement(text, source, 0.0, difference(one, other), rtol))


def close(text: str, one: Models, other: Models, *, source: str, rtol: float = 1e-12) -> None:
    """Two models in double precision, or sequences of them, are the same but for rounding."""
    same(text, one, other, source=source, rtol=rtol)


def differ(text: str, one: Models, other: Models, *, source: str, least: float = 1e-6) -> None:
    """Two models that are sometimes taken for one another are not the same."""
    check(Statement(text, source, least, difference(one, other), relation=">="))


def equal(
    text: str,
    expected: float,
    measured: ArrayLike,
    *,
    source: str,
    rtol: float = ROUNDING,
    wrong: float | None = None,
) -> None:
    """A number, or each of several, is as expected, but for rounding; the one furthest off is
    noted.
    """
    values = np.ravel(np.asarray(measured, dtype=float))
    worst = float(values[np.argmax(np.abs(values - expected))]) if values.size else math.nan
    check(Statement(text, source, expected, worst, rtol * max(1.0, abs(expected)), wrong=wrong))


def at_most(
    text: str, bound: float, measured: ArrayLike, *, source: str, rtol: float = ROUNDING
) -> None:
    """A number, or each of several, is no more than `bound`, but for rounding."""
    check(
        Statement(text, source, bound, float(np.max(measured)), rtol * max(1.0, abs(bound)), "<=")
    )


def mean_is(
    text: str,
    expected: float,
    samples: ArrayLike,
    *,
    source: str,
    digits: float = 0.0,
    wrong: float | None = None,
) -> None:
    """The mean of independent samples is as expected, within `ERRORS` of its own standard errors.

    Args:
        digits: half a unit of the last digit, where the expected value was published rounded.
    """
    values = np.asarray(samples, dtype=float)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    tolerance = ERRORS * error + ROUNDING * max(1.0, abs(expected)) + digits
    check(Statement(text, source, expected, float(values.mean()), tolerance, wrong=wrong))


def batch_means(samples: ArrayLike, count: int = 50) -> np.ndarray:
    """The means of `count` stretches of a correlated series `(n,)`: nearly independent samples.

    Source: the method of batch means, Law & Kelton, Simulation Modeling and Analysis, section 9.5.
    """
    values = np.asarray(samples, dtype=float)
    means: np.ndarray = values[len(values) % count :].reshape(count, -1).mean(1)
    return means


def difference(one: Models, other: Models) -> float:
    """The largest difference of two models, relative to the larger; infinite where they cannot be
    compared.
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or not (one.isfinite().all() and other.isfinite().all()):
            return math.inf
        if torch.equal(one, other):
            return 0.0
        return float((one - other).abs().max() / torch.maximum(one.abs().max(), other.abs().max()))
    return max(difference(mine, its) for mine, its in zip(one, other, strict=True))
