"""From the numbers of several seeds to an outcome of each criterion, and from those to a
verdict.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import xarray as xr
from pydantic import BeforeValidator
from scipy.stats import beta

from laggard.experiments.claims.claim import Criterion, Joint
from laggard.experiments.claims.statistics import SEED
from laggard.experiments.config.errors import ConfigError
from laggard.experiments.config.schema import Part
from laggard.experiments.results.statistics import mean


class CriterionOutcome(StrEnum):
    """Whether a criterion's inequality holds."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "open"


class Verdict(StrEnum):
    """The verdict on a claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "fails"
    OPEN = "open"
    SILENT = "says nothing here"
    NONE = "no verdict at this scale"


Number = Annotated[
    float | None, BeforeValidator(lambda of: of if of is not None and math.isfinite(of) else None)
]
"""A number that JSON has: null, where it is not finite."""


class RowEntry(Part):
    """What was measured: of a criterion with its bar and outcome, of a number beside them without.

    Attributes:
        value: the mean over seeds, or the number that all of them make together.
        low, high: its 95 % interval: of the mean by Student's t, of a share that of Clopper and
            Pearson, of a number of all seeds by resampling them; null where there is none, and
            `value` itself where the number is exact.
        values: of each seed, in order; one, where the number is exact or one of all seeds together.
        seeds: whether it is a number a seed.
        joint: whether it is one that all seeds make together, with an interval of resampled ones.
        share: whether it is the share of seeds for which something is so (1) and not otherwise (0).
        control: whether the criterion is a control, which makes no verdict by holding.
    """

    says: str
    bar: str = ""
    value: Number
    low: Number
    high: Number
    values: list[Number]
    seeds: bool
    joint: bool = False
    share: bool = False
    control: bool = False
    outcome: str = ""

    @property
    def interval(self) -> str:
        """The 95 % interval as a table shows it; nothing, where there is none, or where it leaves
        seeds out.
        """
        known = (
            self.low is not None
            and self.high is not None
            and (self.seeds or self.joint)
            and not self.lost
        )
        return f"{self.low:.4g} to {self.high:.4g}" if known else ""

    @property
    def lost(self) -> int:
        """The number of seeds whose value is not finite."""
        return self.values.count(None)

    @property
    def measured(self) -> str:
        """The number with its interval and remarks."""
        if self.value is None:
            return f"not finite in {self.lost} of {len(self.values)}"
        if self.share:
            return f"{sum(map(bool, self.values))} of {len(self.values)} ({self.interval})"
        finite = [value for value in self.values if value is not None]
        if self.lost:
            ends = f"{min(finite):.4g} to {max(finite):.4g}"
            return f"{ends} in {len(finite)} of {len(self.values)} seeds, not finite in {self.lost}"
        said = f"{self.value:.4g}" + f" ({self.interval})" * bool(self.interval)
        return said + (f", n = {len(self.values)}" if self.seeds else ", of all seeds" * self.joint)


def finding(
    criterion: Criterion,
    value: xr.DataArray | Joint,
    where: str,
    draws: int = 0,
    at_edge: bool = False,
) -> RowEntry:
    """The outcome of a criterion.

    Args:
        at_edge: whether a setting that it depends on was chosen at an end of its grid, which leaves
            it open.
        draws: how many bootstrap samples of the seeds make the interval of a number that all seeds
            make together.

    Raises:
        ConfigError: the value has other dimensions than seeds.
    """
    found = _measure(value, where, draws)
    outcome = _criterion_outcome(
        criterion, found["values"], found["seeds"], found["low"], found["high"]
    )
    if at_edge and not criterion.control:
        outcome = CriterionOutcome.OPEN
    return RowEntry(
        says=criterion.says, bar=criterion.bar, control=criterion.control, outcome=outcome, **found
    )


def additional_finding(
    says: str, value: xr.DataArray | Joint, where: str, draws: int = 0
) -> RowEntry:
    """A number without a bar, as `finding` has it."""
    return RowEntry(says=says, **_measure(value, where, draws))


def _measure(value: xr.DataArray | Joint, where: str, draws: int) -> dict[str, Any]:
    """The numbers of a `RowEntry`."""
    array = xr.DataArray(value.value if isinstance(value, Joint) else value)
    if array.dims not in ((), (SEED,)):
        left = ", ".join(str(name) for name in array.dims if name != SEED)
        raise ConfigError(
            where,
            f"expected a number a seed, but {left} is left: choose with at(...), or best(...)",
        )
    values, seeds = [float(number) for number in np.atleast_1d(array.values)], array.dims == (SEED,)
    joint = isinstance(value, Joint) and draws > 0
    share = seeds and array.dtype == bool
    if share:
        number = sum(values) / len(values)
        low, high = share_interval(int(sum(values)), len(values))
    elif seeds:
        estimate = mean(values)
        number, low, high = (
            estimate.value,
            estimate.value - estimate.half,
            estimate.value + estimate.half,
        )
    elif isinstance(value, Joint) and draws:
        ends = np.quantile(value.resample(draws), [0.025, 0.975], method="inverted_cdf")
        number, low, high = (
            values[0],
            min(float(ends[0]), values[0]),
            max(float(ends[1]), values[0]),
        )
    else:
        number = low = high = values[0]
    found = {"value": number, "low": low, "high": high, "values": values}
    return {**found, "seeds": seeds, "joint": joint, "share": share}


def share_interval(count: int, of: int) -> tuple[float, float]:
    """The exact 95 % interval of a share of which `count` of `of` were seen.

    Its ends are the shares at which so few, or so many, are seen with a probability of 2.5 %.

    Source: Clopper, Pearson (1934), Biometrika 26.
    """
    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, of - count + 1))
    return low, 1.0 if count == of else float(beta.ppf(0.975, count + 1, of - count))


def seeds_needed(criterion: Criterion, entry: RowEntry) -> int | None:
    """About how many seeds would decide an open criterion, if the mean and the spread over seeds
    stayed as they are.

    n (h / d)^2, where the interval of n seeds reaches h beyond the mean on the side of the bar, and
    the bar is d from
    the mean: an interval over seeds shrinks as 1 / sqrt(n). None where no interval over seeds
    crosses a bar, or the mean lies on one.
    """
    value, low, high = entry.value, entry.low, entry.high
    if value is None or low is None or high is None or entry.lost:
        return None
    if entry.outcome != CriterionOutcome.OPEN or not entry.seeds:
        return None
    crossed = [
        bar
        for bar in (criterion.at_least, criterion.at_most)
        if bar is not None and low < bar < high
    ]
    if value in crossed:
        return None
    reaches = [(value - low if bar < value else high - value) / abs(bar - value) for bar in crossed]
    return math.ceil(len(entry.values) * max(reaches) ** 2) if reaches else None


def verdict(entries: Sequence[RowEntry]) -> Verdict:
    """What the criteria say together.

    A control that fails says that the setting cannot tell, and one that is open leaves all open. Of
    the others, which
    are claims, all hold: holds; some do: in part; none does and one fails: fails; else open.
    """
    controls = [entry.outcome for entry in entries if entry.control]
    outcomes = [entry.outcome for entry in entries if entry.outcome and not entry.control]
    if CriterionOutcome.FAILS in controls:
        return Verdict.SILENT
    if CriterionOutcome.OPEN in controls:
        return Verdict.OPEN
    if all(outcome == CriterionOutcome.HOLDS for outcome in outcomes):
        return Verdict.HOLDS
    if CriterionOutcome.HOLDS in outcomes:
        return Verdict.IN_PART
    return Verdict.FAILS if CriterionOutcome.FAILS in outcomes else Verdict.OPEN


def _criterion_outcome(
    criterion: Criterion, values: Sequence[float], seeds: bool, low: float, high: float
) -> CriterionOutcome:
    """Whether the 95 % interval lies within the bars, beyond one, or across it.

    An exact number decides by itself; of infinite values (a target that was never reached) all have
    to agree; one seed decides nothing, and neither does a value that is not there.
    """
    least = -math.inf if criterion.at_least is None else criterion.at_least
    most = math.inf if criterion.at_most is None else criterion.at_most
    if any(math.isnan(value) for value in values) or (seeds and len(values) < 2):
        return CriterionOutcome.OPEN
    if seeds and not all(map(math.isfinite, values)):
        low, high = min(values), max(values)
    if least <= low and high <= most:
        return CriterionOutcome.HOLDS
    return CriterionOutcome.FAILS if high < least or low > most else CriterionOutcome.OPEN
