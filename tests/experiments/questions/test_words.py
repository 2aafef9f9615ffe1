"""Estimates over seeds, and their verdicts."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from laggard.experiments.questions.words import (
    Word,
    estimate,
    exact,
    judge,
    median,
    ratio,
    seeds_needed,
    share,
)
from tests.experiments.questions.made_up import mean_is, spread


@pytest.mark.parametrize("count", [6, 8, 10, 20, 40])
def test_interval_of_median_is_narrowest_of_order_statistics(count):
    """The k-th least and greatest enclose the median with 1 - 2 P(B < k), B binomial with 1/2."""
    found = median(np.arange(1, count + 1))
    rank = int(found.low)
    assert found.high == count + 1 - rank
    assert 1 - 2 * binom.cdf(rank - 1, count, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(rank, count, 0.5) < 0.95


def test_five_seeds_have_no_interval_of_the_median():
    assert math.isnan(median([1, 2, 3, 4, 5]).low)


def test_mean_has_interval_by_student():
    """Of 1 to 5: mean 3, half-width 2.7764 sqrt(2.5 / 5)."""
    found = estimate([1, 2, 3, 4, 5]).mean
    assert found.high - found.value == pytest.approx(2.776445 * math.sqrt(0.5), rel=1e-6)


def test_lost_runs_are_no_missed_targets():
    found = estimate([1.0, math.nan, 3.0, math.inf, 2.0, 2.0, 2.0, 4.0])
    assert (found.lost, found.missing, found.seeds) == (1, 1, 8)
    assert math.isnan(found.mean.value)
    assert found.value == 2.0  # the median of those kept


def test_ratio_divides_means():
    """Independent lognormal times: the ratio of means is 1 where the mean of ratios is e^{s^2}.

    The standard error of the ratio of n pairs is sqrt(2 (e - 1) / n).
    """
    generator = np.random.default_rng(3)
    above, below = np.exp(generator.normal(0, 1, (2, 2000)))
    error = math.sqrt(2 * (math.e - 1) / 2000)
    mean_is(ratio(above, below), 1.0, abs=4 * error)
    assert (above / below).mean() > 2


def test_bootstrap_interval_covers_the_ratio():
    """In 93 to 97 % of samples of 20 pairs, up to the error of 400 samples."""
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        above, below = generator.gamma(8, 1 / 8, (2, 20)) * [[2.0], [1.0]]
        found = ratio(above, below).mean
        covered += found.low <= 2.0 <= found.high
    assert 0.90 <= covered / 400 <= 0.98


AGREES = spread(2.0, 0.1, 10)


@pytest.mark.parametrize(
    ("number", "options", "word"),
    [
        (estimate(AGREES), {}, Word.AGREES),
        (estimate(-AGREES), {}, Word.DIFFERS),
        (estimate(spread(1.0, 0.1, 10)), {}, Word.CANNOT_TELL),
        (estimate(AGREES), {"seen": True}, Word.NOT_DECIDED),
        (estimate(AGREES[:7]), {}, Word.CANNOT_TELL),
        # the mean is on the bar's side by one seed, the median is not
        (estimate([*spread(0.9, 0.01, 9), 60.0]), {}, Word.CANNOT_TELL),
        (estimate([*AGREES, *[math.nan] * 8]), {}, Word.CANNOT_TELL),
        (estimate([*AGREES, *[math.nan] * 8]), {"opponent": (6, 18)}, Word.AGREES),
        (share(40, 40), {"at_least": 0.5}, Word.AGREES),
        (exact(2.0), {}, Word.AGREES),
    ],
)
def test_verdict_follows_both_intervals(number, options, word):
    assert judge(number, **{"at_least": 1.0, **options}).word == word


def test_missed_target_is_judged_by_the_median():
    """Times of which one is never: the median's interval decides, and that may be infinite."""
    times = [*spread(2.0, 0.1, 19), math.inf]
    assert judge(estimate(times), at_most=3.0).word == Word.AGREES
    assert judge(estimate([*times[:9], *[math.inf] * 11]), at_most=3.0).word == Word.CANNOT_TELL


def test_needed_seeds_give_the_wanted_interval():
    def half(seeds):
        found = estimate(spread(1.0, 0.3, seeds))
        return (found.mean.high - found.mean.low) / 2

    few = estimate(spread(1.0, 0.3, 8))
    needed = seeds_needed(few, 0.1)
    assert half(needed + 1) < 0.1 < half(needed - 1)
    assert seeds_needed(few, half(8)) is None
