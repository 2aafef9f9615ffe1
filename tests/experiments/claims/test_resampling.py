"""Numbers that all seeds make together, against the binomial law and by hand."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from experiments.claims.resampling import resampled
from experiments.claims.statistics import drawn
from experiments.claims.statistics.arrays import mean

FEW = xr.DataArray([[0.1, 0.9, 0.8, 0.7, 0.2], [0.5, 0.5, 0.5, 0.5, 0.5]], {"K": [4, 8]}, ("K", "seed"))


def test_a_share_has_the_binomial_laws_spread():
    """Each draw of a share of 0.3 among 40 seeds is binomial: mean 0.3, variance 0.3 x 0.7 / 40."""
    flags = xr.DataArray(np.arange(40) < 12, dims="seed")
    shares = np.array(resampled("mean(flags * 1.0)", {}, {"flags": flags}, "x", draws=2000))
    assert shares.mean() == pytest.approx(0.3, abs=4 * (0.21 / 40 / 2000) ** 0.5)
    assert shares.var() == pytest.approx(0.21 / 40, rel=0.1)
    assert np.quantile(shares, 0.025) == pytest.approx(binom.ppf(0.025, 40, 0.3) / 40, abs=1 / 40)


def test_seeds_are_drawn_alike_for_all_settings_and_anew_each_time():
    paired = xr.concat([FEW.sel(K=4, drop=True), FEW.sel(K=4, drop=True) + 1], "K")
    values = []
    for draw in range(20):
        with drawn(draw):
            first, second = mean(paired).values
            apart = float(mean(FEW.sel(K=4)))
        assert second - first == pytest.approx(1.0)
        assert apart == pytest.approx(first)
        values.append(first)
    assert len(set(values)) > 10
    assert mean(FEW).values.tolist() == pytest.approx([0.54, 0.5])


def test_statistics_on_the_way_are_made_anew():
    """The means are 0.54 and 0.5, so that K = 8 is least; among other seeds of the five K = 4 often is."""
    statistics = {"means": "mean(few)", "least": 'where_least(means, "K")'}
    names = {"few": FEW, "means": mean(FEW), "least": xr.DataArray(8)}
    assert set(resampled("least", statistics, names, "x")) == {4.0, 8.0}
    assert resampled("least", statistics, names, "x", draws=0) == ()


def test_a_statistic_on_the_way_that_averages_something_else_is_no_reason(monkeypatch):
    monkeypatch.setattr("experiments.claims.resampling.drawn", None)
    statistics = {"whole": 'mean(few, "K")'}
    names = {"few": FEW, "whole": mean(FEW, "K")}
    assert resampled("share(whole > 0.5)", statistics, names, "x") == ()
    assert resampled('choice(few, "K", chosen_on=2)', statistics, names, "x") == ()


@pytest.mark.parametrize("expression", ["at(few, K=8)", 'mean(few, "K")', "few.size / 10", "share(at(few, K=4) > 0.5)"])
def test_what_keeps_its_seeds_or_has_none_is_not_resampled(expression):
    assert resampled(expression, {}, {"few": FEW}, "x") == ()
