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
from experiments.estimates import Estimate, mean


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
    """What was measured for one criterion.

    Attributes:
        estimate: the mean over seeds with its 95 % interval.
        values: of each seed; one, where the number needs none.
        seeds: whether there are seeds behind it; without them the number is exact or one of all seeds together.
    """

    says: str
    bar: str
    estimate: Estimate
    values: tuple[float, ...]
    seeds: bool
    outcome: Outcome


def finding(criterion: Criterion, value: Any, where: str) -> Finding:
    """The outcome of a criterion.

    Raises:
        ConfigError: the value has other dimensions than seeds.
    """
    values, seeds = numbers(value, where)
    outcome = _outcome(values, seeds, criterion.at_least, criterion.at_most)
    return Finding(criterion.says, criterion.bar, mean(values), values, seeds, outcome)


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


def _outcome(values: Sequence[float], seeds: bool, at_least: float | None, at_most: float | None) -> Outcome:
    """Whether the 95 % interval lies within the bars, beyond one, or across it.

    A number without seeds decides by itself; of infinite values (a target that was never reached) all have to agree;
    one seed decides nothing, and neither does a value that is not there.
    """
    low, high = -math.inf if at_least is None else at_least, math.inf if at_most is None else at_most
    if any(math.isnan(value) for value in values) or (seeds and len(values) < 2):
        return Outcome.OPEN
    if seeds and all(map(math.isfinite, values)):
        estimate = mean(values)
        ends = (estimate.value - estimate.half, estimate.value + estimate.half)
    else:
        ends = (min(values), max(values))
    if low <= ends[0] and ends[1] <= high:
        return Outcome.HOLDS
    return Outcome.FAILS if ends[1] < low or ends[0] > high else Outcome.OPEN
