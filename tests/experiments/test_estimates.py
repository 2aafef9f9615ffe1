"""What several seeds say: against textbook formulas, a worked example, and chance itself."""

import math

import numpy as np
import pytest
from scipy import stats

from laggard.experiments.results.formats import format_estimate
from laggard.experiments.results.statistics import Estimate, mean, time_to_reach

NAN = float("nan")


def test_interval_is_that_of_student():
    values = [0.91, 0.95, 0.93, 0.97]
    of = mean(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (of.value - of.half, of.value + of.half) == pytest.approx((low, high))
    assert (of.n, of.kind, of.reached) == (4, "mean", None)


def test_one_seed_has_no_interval():
    assert math.isnan(mean([0.5]).half)
    assert format_estimate(mean([0.5])) == "0.5 (n = 1)"


def test_diverged_seed_counts_in_n_only():
    of = mean([0.5, NAN, 0.7], diverged=1)
    assert (of.value, of.n, of.diverged) == (pytest.approx(0.6), 3, 1)
    assert format_estimate(of, 100, "%") == "60 (0 to 99.7) % (n = 3, 1 diverged)"
    assert mean([NAN], diverged=1).kind == "none"
    assert format_estimate(mean([NAN], diverged=1)) == "- (n = 1, 1 diverged)"


def test_time_that_all_reach_is_a_mean():
    of = time_to_reach([1.0, 2.0, 3.0], [9.0] * 3, [False] * 3)
    assert (of.value, of.kind, of.reached) == (2.0, "mean", 3)
    assert of.half == mean([1.0, 2.0, 3.0]).half


def median_of_scipy(times, followed, never):
    """The median of scipy's product-limit estimate."""
    there = [time for time in times if not math.isnan(time)]
    if not there:
        return None
    gone = [
        1e9 if hopeless else end
        for time, end, hopeless in zip(times, followed, never, strict=True)
        if math.isnan(time)
    ]
    survival = stats.ecdf(stats.CensoredData(uncensored=there, right=gone)).sf
    below = survival.quantiles[survival.probabilities <= 0.5 + 1e-12]
    return float(below[0]) if len(below) else None


def test_worked_example_of_the_median():
    """At 1: 1 of 5, S = 0.8. One leaves at 2. At 3: 1 of 3, S = 0.533. At 4: 1 of 2, S = 0.267."""
    of = time_to_reach([1, NAN, 3, 4, NAN], [9, 2, 9, 9, 5], [False] * 5)
    assert (of.value, of.kind, of.reached, of.n) == (4, "median", 3, 5)
    assert format_estimate(of, 1, "s") == "median 4 s (3 of 5)"


def test_median_equals_that_of_scipy():
    rng = np.random.default_rng(1)
    kinds = set()
    for _ in range(300):
        n = int(rng.integers(2, 8))
        event, end = rng.integers(1, 12, n).astype(float), rng.integers(1, 12, n).astype(float)
        never = rng.random(n) < 0.2
        times = np.where((event <= end) & ~never, event, NAN)
        of = time_to_reach(times, end, never)
        kinds.add(of.kind)
        expected = median_of_scipy(times.tolist(), end.tolist(), never.tolist())
        if of.kind == "median":
            assert of.value == expected
        elif of.kind == "more":
            assert expected is None
            assert of.value == max(
                np.where(np.isnan(times), end, times)[~(never & np.isnan(times))]
            )
    assert kinds == {"mean", "median", "more", "never"}


def test_censored_seed_is_not_dropped():
    """One of five was quick: the median is not its time, but lies beyond all that was seen."""
    of = time_to_reach([1.0, *[NAN] * 4], [5.0] * 5, [False] * 5)
    assert (of.value, of.kind, of.reached) == (5.0, "more", 1)
    assert format_estimate(of, 1, "s") == "> 5 s (1 of 5)"


def test_diverged_seed_never_reaches_the_target():
    """Were they taken as runs that ended early, the estimate would be 1: two of two that were
    left.
    """
    of = time_to_reach(
        [1.0, 1.0, NAN, NAN, NAN], [9.0, 9.0, 0.1, 0.1, 0.1], [False] * 2 + [True] * 3, diverged=3
    )
    assert (of.kind, of.value) == ("more", 1.0)
    none = time_to_reach([NAN, NAN], [0.1, 0.2], [True, True], diverged=2)
    assert format_estimate(none) == "never (0 of 2, 2 diverged)"


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (97.3123, 0.1234, "97.31 ± 0.12"),
        (97.3123, 12.34, "97 ± 12"),
        (12345.678, 123.4, "12346 ± 123"),
        (0.00123456, 1.2e-9, "0.001235 ± 1.2e-09"),
        (5.0, 0.0, "5 ± 0"),
        (5.12345, NAN, "5.123"),
    ],
)
def test_interval_decides_the_number_of_digits(value, half, text):
    assert format_estimate(Estimate(value, half, "mean", 3, None, 0), show_n=False) == text
