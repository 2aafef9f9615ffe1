"""Estimates over seeds with 95 % intervals, and the verdict of an estimate on a paper's claim.

A verdict rests on the mean and on the median. It needs at least `LEAST_SEEDS` seeds whose results
had not been seen when the bar, the rates and the statistic were fixed.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, binom, fisher_exact

from laggard.experiments.results.statistics import half_width

LEAST_SEEDS = 8
"""The least number of seeds for a verdict."""
DRAWS = 2000
"""Bootstrap samples of the seeds, for the interval of a ratio of means."""


class Word(StrEnum):
    """The verdict of the numbers on a paper's claim."""

    AGREES = "agrees"
    DIFFERS = "differs"
    CANNOT_TELL = "cannot tell here"
    NOT_DECIDED = "not decided"
    NONE = ""


class Judgement(NamedTuple):
    """A verdict, and the reason where it is neither *agrees* nor *differs*."""

    word: Word
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else str(self.word)


class Interval(NamedTuple):
    """A number with the ends of its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float

    def lies_within(self, at_least: float, at_most: float) -> bool:
        """Whether the whole interval lies between the ends of a bar."""
        return self.low >= at_least and self.high <= at_most

    def lies_outside(self, at_least: float, at_most: float) -> bool:
        """Whether the whole interval lies below the bar or above it."""
        return self.high < at_least or self.low > at_most


@dataclass(frozen=True)
class SeedEstimate:
    """A number over seeds with its 95 % intervals.

    Attributes:
        mean: a mean with Student's interval, a ratio of means with a bootstrap interval, or a share
            with its exact interval. NaN if a seed missed the target.
        median: the median, with an interval between order statistics, which needs six seeds; None
            for a share or an exact number.
        seeds: the number of seeds.
        lost: the number of seeds whose run was lost; they are in no mean and no median.
        missing: the number of seeds that missed the target within the budget.
    """

    mean: Interval
    median: Interval | None
    seeds: int
    lost: int = 0
    missing: int = 0

    @property
    def value(self) -> float:
        """The number in tables: the mean, or the median where some seeds missed the target."""
        if self.missing and self.median is not None:
            return self.median.value
        return self.mean.value

    @property
    def shown(self) -> Interval:
        """The interval that a table shows, of the same kind as `value`."""
        if self.missing and self.median is not None:
            return self.median
        return self.mean

    @property
    def has_ratio(self) -> bool:
        """Whether the value is positive and finite.

        A ratio of times is infinite or 0 if most runs of one side missed the target, and NaN if
        most runs of both sides did.
        """
        return 0 < self.value < np.inf


def estimate(values: ArrayLike) -> SeedEstimate:
    """The mean and the median of one number per seed.

    Args:
        values: NaN where the run was lost, infinite where it missed the target.
    """
    array = np.asarray(values, float)
    lost = int(np.isnan(array).sum())
    kept = array[~np.isnan(array)]
    missing = int(np.isinf(kept).sum())
    return SeedEstimate(_mean(kept), median(kept), len(array), lost, missing)


def ratio(above: ArrayLike, below: ArrayLike) -> SeedEstimate:
    """The ratio of two means, and the median of the ratios of pairs.

        mean(above) / mean(below)

    The mean of the pairs' ratios would be biased: it is above 1 if both come from one distribution.
    The interval is that of bootstrap samples of the pairs.

    Args:
        above, below: positive numbers of the same seeds, in one order.

    Source: Efron (1979), Annals of Statistics 7.
    """
    pairs = np.stack([np.asarray(above, float), np.asarray(below, float)])
    lost = int(np.isnan(pairs).any(axis=0).sum())
    kept = pairs[:, ~np.isnan(pairs).any(axis=0)]
    missing = int(np.isinf(kept).any(axis=0).sum())
    seeds = pairs.shape[1]
    with np.errstate(invalid="ignore"):
        of_pairs = kept[0] / kept[1]
    middle = median(of_pairs[~np.isnan(of_pairs)])
    if missing or kept.shape[1] == 0:
        return SeedEstimate(Interval(np.nan, np.nan, np.nan), middle, seeds, lost, missing)
    generator = np.random.default_rng(kept.shape[1])  # the same numbers, the same interval
    drawn = generator.integers(kept.shape[1], size=(DRAWS, kept.shape[1]))
    means = kept[:, drawn].mean(axis=2)
    low, high = np.quantile(means[0] / means[1], [0.025, 0.975])
    if kept.shape[1] < 2:
        low = high = np.nan
    number = Interval(float(kept[0].mean() / kept[1].mean()), float(low), float(high))
    return SeedEstimate(number, middle, seeds, lost)


def say_ratio(number: SeedEstimate, says: str) -> str:
    """`says` if the number is a usable ratio, otherwise that too few runs reach the target."""
    if number.has_ratio:
        return says
    return "too few runs reach the target within the budget"


def share(count: int, of: int) -> SeedEstimate:
    """The share `count` / `of` of seeds with the exact interval of Clopper and Pearson.

    If the true share were its upper end, `count` or fewer would have a probability of 2.5 %; if it
    were its lower end, `count` or more would.

    Source: Clopper, Pearson (1934), Biometrika 26.
    """
    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, of - count + 1))
    high = 1.0 if count == of else float(beta.ppf(0.975, count + 1, of - count))
    return SeedEstimate(Interval(count / of, low, high), None, of)


def exact(value: float) -> SeedEstimate:
    """A number without seeds and without an interval, such as a deterministic virtual time."""
    return SeedEstimate(Interval(value, value, value), None, 0)


def median(values: ArrayLike) -> Interval:
    """The median and its interval between two order statistics.

    The k-th least and the k-th greatest of n values enclose the median with a probability of
    1 - 2 P(B < k), B binomial with n and 1/2; k is the greatest for which that is 95 % or more.
    Fewer than six values have no such interval.
    """
    ordered = np.sort(np.asarray(values, float))
    count = len(ordered)
    if count == 0:
        return Interval(np.nan, np.nan, np.nan)
    with np.errstate(invalid="ignore"):
        middle = float(np.median(ordered))
    rank = int(binom.ppf(0.025, count, 0.5))  # the least k with P(B <= k) >= 2.5 %
    if rank < 1:
        return Interval(middle, np.nan, np.nan)
    return Interval(middle, float(ordered[rank - 1]), float(ordered[count - rank]))


def _mean(values: np.ndarray) -> Interval:
    if len(values) == 0 or np.isinf(values).any():
        return Interval(np.nan, np.nan, np.nan)
    value = float(values.mean())
    if len(values) == 1:
        return Interval(value, np.nan, np.nan)
    half = float(half_width(values.std(ddof=1), len(values)))
    return Interval(value, value - half, value + half)


def judge(
    number: SeedEstimate,
    at_least: float = -np.inf,
    at_most: float = np.inf,
    seen: bool = False,
    opponent: tuple[int, int] = (0, 0),
) -> Judgement:
    """The verdict on the claim that a number lies between `at_least` and `at_most`.

    `agrees` if the 95 % intervals of the mean and of the median both lie wholly inside this bar,
    `differs` if both lie wholly outside, `cannot tell here` otherwise, with the reason.

    Args:
        seen: whether the seeds had been seen before the bar, the rates or the statistic was fixed.
        opponent: the number of lost runs of the method compared with, and the number of its runs.
    """
    if seen:
        return Judgement(Word.NOT_DECIDED, "its runs had been looked at before")
    if 0 < number.seeds < LEAST_SEEDS:
        return Judgement(Word.CANNOT_TELL, f"{number.seeds} seeds")
    if _loses_more(number, opponent):
        return Judgement(Word.CANNOT_TELL, "more runs are lost")
    intervals = [] if number.missing else [number.mean]
    if number.median is not None:
        intervals.append(number.median)
    if not intervals:
        return Judgement(Word.CANNOT_TELL, "not all seeds reached the target")
    if any(np.isnan(interval.low) for interval in intervals):
        return Judgement(Word.CANNOT_TELL, "no interval")
    if all(interval.lies_within(at_least, at_most) for interval in intervals):
        return Judgement(Word.AGREES)
    if all(interval.lies_outside(at_least, at_most) for interval in intervals):
        return Judgement(Word.DIFFERS)
    return Judgement(Word.CANNOT_TELL, "the interval crosses the bar")


def _loses_more(number: SeedEstimate, opponent: tuple[int, int]) -> bool:
    """Whether significantly more runs are lost than of the opponent (Fisher's exact test, 5 %)."""
    lost, of = opponent
    if number.lost == 0:
        return False
    if of == 0:
        return True
    table = [[number.lost, number.seeds - number.lost], [lost, of - lost]]
    return bool(fisher_exact(table, alternative="greater").pvalue < 0.05)


def seeds_needed(number: SeedEstimate, half: float) -> int | None:
    """The number of seeds for an interval of the mean of +-`half`, at the present spread.

        the least n with t(n - 1) s / sqrt(n) <= half

    t is Student's quantile. The present interval gives s. None if the present interval is narrow
    enough, or if there is none.
    """
    reached = (number.mean.high - number.mean.low) / 2
    if np.isnan(reached) or reached <= half:
        return None
    kept = number.seeds - number.lost
    spread = reached / float(half_width(1.0, kept))
    # the present quantile, which is larger than that of more seeds, gives too many
    most = int(np.ceil(kept * (reached / half) ** 2))
    enough = (n for n in range(kept, most) if float(half_width(spread, n)) <= half)
    return next(enough, most)
