"""From the numbers of several seeds to an outcome of each criterion, and from those to a verdict."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.claims.claim import Criterion
from experiments.claims.statistics import SEED
from experiments.errors import ConfigError
from experiments.estimates import mean


class Outcome(StrEnum):
    """Whether a criterion's inequality holds."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "open"


class Verdict(StrEnum):
    """What is said of a claim."""

    REPRODUCED = "reproduced"
    IN_PART = "reproduced in part"
    OPEN = "not resolved at this scale"
    CONTRADICTED = "contradicted"
    NONE = "no verdict at this scale"


class Finding(NamedTuple):
    """What was measured: of a criterion with its bar and outcome, of a number beside them without.

    Attributes:
        value: the mean over seeds, or the number that all of them make together.
        low, high: its 95 % interval: of the mean by Student's t, of the other by resampling the seeds; NaN where there
            is none, and `value` itself where the number is exact.
        values: of each seed; one, where the number needs none.
        seeds: whether it is a number a seed.
        joint: whether it is one that all seeds make together.
    """

    says: str
    bar: str
    value: float
    low: float
    high: float
    values: tuple[float, ...]
    seeds: bool
    joint: bool
    outcome: Outcome | None


def finding(criterion: Criterion, value: Any, where: str, resampled: Sequence[float] = ()) -> Finding:
    """The outcome of a criterion.

    Args:
        resampled: of a number that all seeds make together, what it is for other samples of them.

    Raises:
        ConfigError: the value has other dimensions than seeds.
    """
    found = beside(criterion.says, value, where, resampled)
    return found._replace(bar=criterion.bar, outcome=_outcome(found, criterion.at_least, criterion.at_most))


def beside(says: str, value: Any, where: str, resampled: Sequence[float] = ()) -> Finding:
    """A number without a bar, as `finding` has it."""
    values, seeds = numbers(value, where)
    if seeds:
        estimate = mean(values)
        number, low, high = estimate.value, estimate.value - estimate.half, estimate.value + estimate.half
    elif resampled:
        low, high = np.quantile(resampled, [0.025, 0.975], method="inverted_cdf")
        number, low, high = values[0], min(float(low), values[0]), max(float(high), values[0])
    else:
        number = low = high = values[0]
    return Finding(says, "", number, low, high, values, seeds, bool(resampled), None)


def numbers(value: Any, where: str) -> tuple[tuple[float, ...], bool]:
    """A value as one number a seed, and whether there are seeds.

    Raises:
        ConfigError: it has other dimensions.
    """
    array = xr.DataArray(value)
    if array.dims not in ((), (SEED,)):
        left = ", ".join(str(name) for name in array.dims if name != SEED)
        raise ConfigError(where, f"expected a number a seed, but {left} is left: choose with at(...), or best(...)")
    return tuple(float(number) for number in np.atleast_1d(array.values)), array.dims == (SEED,)


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """All criteria hold: reproduced; some hold: in part; none does and one fails: contradicted; else not resolved."""
    if all(outcome is Outcome.HOLDS for outcome in outcomes):
        return Verdict.REPRODUCED
    if Outcome.HOLDS in outcomes:
        return Verdict.IN_PART
    return Verdict.CONTRADICTED if Outcome.FAILS in outcomes else Verdict.OPEN


def _outcome(found: Finding, at_least: float | None, at_most: float | None) -> Outcome:
    """Whether the 95 % interval lies within the bars, beyond one, or across it.

    An exact number decides by itself; of infinite values (a target that was never reached) all have to agree; one seed
    decides nothing, and neither does a value that is not there.
    """
    low, high = -math.inf if at_least is None else at_least, math.inf if at_most is None else at_most
    if any(math.isnan(value) for value in found.values) or (found.seeds and len(found.values) < 2):
        return Outcome.OPEN
    ends = (found.low, found.high)
    if found.seeds and not all(map(math.isfinite, found.values)):
        ends = (min(found.values), max(found.values))
    if low <= ends[0] and ends[1] <= high:
        return Outcome.HOLDS
    return Outcome.FAILS if ends[1] < low or ends[0] > high else Outcome.OPEN
