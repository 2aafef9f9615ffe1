"""Numbers that all seeds make together, against the binomial law and by hand."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from laggard.experiments.claims.claim import Criterion, Joint, ratio_of_means
from laggard.experiments.claims.statistics import mean
from laggard.experiments.claims.verdicts import finding

FEW = xr.DataArray(
    [[0.1, 0.9, 0.8, 0.7, 0.2], [0.5, 0.5, 0.5, 0.5, 0.5]], {"K": [4, 8]}, ("K", "seed")
)


def test_a_share_has_the_binomial_laws_spread():
    """Each draw of a share of 0.3 among 40 seeds is binomial: mean 0.3, variance 0.3 x 0.7 / 40."""
    flags = xr.DataArray(np.arange(40) < 12, dims="seed")
    shares = np.array(Joint(mean, flags * 1.0).resample(2000))
    assert shares.mean() == pytest.approx(0.3, abs=4 * (0.21 / 40 / 2000) ** 0.5)
    assert shares.var() == pytest.approx(0.21 / 40, rel=0.1)
    assert np.quantile(shares, 0.025) == pytest.approx(binom.ppf(0.025, 40, 0.3) / 40, abs=1 / 40)


def test_seeds_are_drawn_alike_for_all_settings_and_anew_each_time():
    """The other setting is one more in each seed, so that the difference of the means is 1 in every
    sample.
    """
    paired = xr.concat([FEW.sel(K=4, drop=True), FEW.sel(K=4, drop=True) + 1], "K")
    assert Joint(lambda values: mean(values)[1] - mean(values)[0], paired).resample(
        20
    ) == pytest.approx([1.0] * 20)
    samples = Joint(lambda values: mean(values)[0], paired).resample(20)
    assert len(set(samples)) > 10
    assert set(samples) == set(Joint(mean, FEW.sel(K=4)).resample(20))


def test_what_follows_the_mean_is_made_anew():
    """The means are 0.54 and 0.5, so that K = 8 is least; among other seeds of the five K = 4 often
    is.
    """
    least = Joint(lambda values: mean(values).idxmin("K"), FEW)
    assert float(least.value) == 8.0
    assert set(least.resample(200)) == {4.0, 8.0}
    found = finding(Criterion("K", "K", at_least=8), least, "test", 200)
    assert (found.value, found.low, found.high, found.joint, found.outcome) == (
        8.0,
        4.0,
        8.0,
        True,
        "open",
    )


def test_without_draws_there_is_no_interval():
    found = finding(
        Criterion("K", "K", at_least=8), Joint(lambda values: mean(values).idxmin("K"), FEW), "test"
    )
    assert (found.value, found.low, found.high, found.joint, found.outcome) == (
        8.0,
        8.0,
        8.0,
        False,
        "holds",
    )


def test_a_ratio_of_means_is_one_where_both_numbers_come_from_one_distribution():
    """The mean of ratios is not: of gamma numbers with shape k it is k / (k - 1), here 1.5."""
    numbers = np.random.default_rng(0).gamma(3.0, size=(2, 20000))
    above, below = (xr.DataArray(row, dims="seed") for row in numbers)
    assert float(mean(above / below)) == pytest.approx(1.5, abs=0.05)
    assert float(ratio_of_means(above, below).value) == pytest.approx(
        1.0, abs=4 * (2 / 3 / 20000) ** 0.5
    )


def test_the_interval_of_a_ratio_of_means_is_that_of_the_delta_method():
    """For n pairs of gamma numbers with shape k the ratio's standard error is sqrt(2 / (k n))."""
    above, below = (
        xr.DataArray(row, dims="seed") for row in np.random.default_rng(1).gamma(3.0, size=(2, 400))
    )
    found = finding(
        Criterion("ratio", "ratio", at_least=0.5), ratio_of_means(above, below), "test", 4000
    )
    assert (found.high - found.low) / 2 == pytest.approx(
        1.96 * found.value * (2 / 3 / 400) ** 0.5, rel=0.1
    )


@pytest.mark.parametrize("bars", [{"at_least": 0.5}, {"at_most": 0.5}])
def test_a_ratio_over_a_time_that_is_not_always_reached_decides_nothing(bars):
    """Over infinity it would be 0, by which a bar from above would hold."""
    above, below = xr.DataArray([1.0, 2.0], dims="seed"), xr.DataArray([1.0, np.inf], dims="seed")
    found = finding(Criterion("ratio", "ratio", **bars), ratio_of_means(above, below), "test", 200)
    assert (found.value, found.outcome) == (None, "open")
