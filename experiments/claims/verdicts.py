"""From the numbers of several seeds to an outcome of each criterion, and from those to a verdict."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import xarray as xr

from laggard.experiments.claims.claim import Criterion, Joint
from laggard.experiments.claims.statistics import SEED
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.results.statistics import mean


class CriterionOutcome(StrEnum):
    """Whether a criterion's inequality holds."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "open"


class Verdict(StrEnum):
    """The verdict on a claim."""

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
    outcome: CriterionOutcome | None


def finding(criterion: Criterion, value: xr.DataArray | Joint, where: str, draws: int = 0) -> Finding:
    """The outcome of a criterion.

    Args:
        draws: how many bootstrap samples of the seeds make the interval of a number that all seeds make together.

    Raises:
        ConfigError: the value has other dimensions than seeds.
    """
    found = additional_finding(criterion.says, value, where, draws)
    return found._replace(bar=criterion.bar, outcome=_criterion_outcome(found, criterion.at_least, criterion.at_most))


def additional_finding(says: str, value: xr.DataArray | Joint, where: str, draws: int = 0) -> Finding:
    """A number without a bar, as `finding` has it."""
    values, seeds = _criterion_values(value.value if isinstance(value, Joint) else value, where)
    if seeds:
        estimate = mean(values)
        number, low, high = estimate.value, estimate.value - estimate.half, estimate.value + estimate.half
    elif isinstance(value, Joint) and draws:
        low, high = np.quantile(value.resample(draws), [0.025, 0.975], method="inverted_cdf")
        number, low, high = values[0], min(float(low), values[0]), max(float(high), values[0])
    else:
        number = low = high = values[0]
    joint = isinstance(value, Joint) and draws > 0
    return Finding(says, "", number, low, high, values, seeds, joint, None)


def _criterion_values(value: xr.DataArray, where: str) -> tuple[tuple[float, ...], bool]:
    """A value as one number a seed, and whether there are seeds.

    Raises:
        ConfigError: it has other dimensions.
    """
    array = xr.DataArray(value)
    if array.dims not in ((), (SEED,)):
        left = ", ".join(str(name) for name in array.dims if name != SEED)
        raise ConfigError(where, f"expected a number a seed, but {left} is left: choose with at(...), or best(...)")
    return tuple(float(number) for number in np.atleast_1d(array.values)), array.dims == (SEED,)


def verdict(outcomes: Sequence[CriterionOutcome]) -> Verdict:
    """All criteria hold: reproduced; some hold: in part; none does and one fails: contradicted; else not resolved."""
    if all(outcome is CriterionOutcome.HOLDS for outcome in outcomes):
        return Verdict.REPRODUCED
    if CriterionOutcome.HOLDS in outcomes:
        return Verdict.IN_PART
    return Verdict.CONTRADICTED if CriterionOutcome.FAILS in outcomes else Verdict.OPEN


def _criterion_outcome(found: Finding, at_least: float | None, at_most: float | None) -> CriterionOutcome:
    """Whether the 95 % interval lies within the bars, beyond one, or across it.

    An exact number decides by itself; of infinite values (a target that was never reached) all have to agree; one seed
    decides nothing, and neither does a value that is not there.
    """
    low, high = -math.inf if at_least is None else at_least, math.inf if at_most is None else at_most
    if any(math.isnan(value) for value in found.values) or (found.seeds and len(found.values) < 2):
        return CriterionOutcome.OPEN
    ends = (found.low, found.high)
    if found.seeds and not all(map(math.isfinite, found.values)):
        ends = (min(found.values), max(found.values))
    if low <= ends[0] and ends[1] <= high:
        return CriterionOutcome.HOLDS
    return CriterionOutcome.FAILS if ends[1] < low or ends[0] > high else CriterionOutcome.OPEN
