"""What several seeds say: against textbook formulas, a worked example, and chance itself."""

import math

import numpy as np
import pytest
from scipy import stats

from laggard.experiments.results.formats import format_estimate
from laggard.experiments.results.statistics import Estimate, mean, time_to_reach

NAN = float("nan")


def test_diverged_seed_counts_in_n_only():
    of = mean([0.5, NAN, 0.7], diverged=1)
    assert (of.value, of.n, of.diverged) == (pytest.approx(0.6), 3, 1)
    assert mean([NAN], diverged=1).kind == "none"


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


def test_equal_values_have_no_deviation():
    """The deviation of three times 3.3 from their mean in floats may be 5e-16."""
    assert {mean([value] * 3).half for value in np.arange(0.1, 9, 0.1).tolist()} == {0}


def test_time_to_reach_has_the_median_of_scipy():
    """Seeds that ended early are not dropped, and those that miss the target count as trying."""
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
        if of.kind == "mean":
            assert of[:2] == mean(times)[:2]
        elif of.kind == "median":
            assert of.value == expected
        elif of.kind == "more":
            assert expected is None
            assert of.value == max(
                np.where(np.isnan(times), end, times)[~(never & np.isnan(times))]
            )
    assert kinds == {"mean", "median", "more", "never"}


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


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.5, NAN, "mean", 1, None, 0), "0.5 s (n = 1)"),
        (Estimate(0.5, 0.1, "mean", 4, None, 1), "0.50 ± 0.10 s (n = 4, 1 diverged)"),
        (Estimate(NAN, NAN, "none", 1, None, 1), "- (n = 1, 1 diverged)"),
        (Estimate(4.0, NAN, "median", 5, 3, 0), "median 4 s (3 of 5)"),
        (Estimate(5.0, NAN, "more", 5, 1, 0), "> 5 s (1 of 5)"),
        (Estimate(math.inf, NAN, "never", 2, 0, 2), "never (0 of 2, 2 diverged)"),
    ],
)
def test_text_names_the_kind_and_counts_the_seeds(estimate, text):
    assert format_estimate(estimate, 1, "s") == text
