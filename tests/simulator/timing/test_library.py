"""Laws of scipy.stats by name: means, quantiles, repeatability, and what is refused."""

import math

import numpy as np
import pytest

from laggard import InvalidSettingError
from laggard.simulator.timing.distributions import Scipy

DRAWS = 20_000


@pytest.mark.parametrize("c", [0.7, 1.0, 1.5])
def test_mean_and_deviation_match_weibull(c):
    law = Scipy("weibull_min", loc=0.5, scale=0.01, c=c)
    mean = 0.01 * math.gamma(1 + 1 / c)
    assert law.mean == pytest.approx(0.5 + mean, rel=1e-12)
    variance = 1e-4 * math.gamma(1 + 2 / c) - mean**2
    assert law.std == pytest.approx(math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize("c", [0.7, 1.5])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_draws_have_the_quantiles_of_weibull(c, share):
    law = Scipy("weibull_min", scale=0.01, c=c)
    drawn = law.draw(np.random.default_rng(1), DRAWS)
    quantile = 0.01 * (-math.log(1 - share)) ** (1 / c)
    below = np.mean(drawn <= quantile)
    assert abs(below - share) < 4 * math.sqrt(share * (1 - share) / DRAWS)


@pytest.mark.parametrize(
    ("name", "keys", "field"),
    [
        ("weibul_min", {}, r"name: .*did you mean weibull_min\?"),
        ("expon", {"scale": "10 ms"}, r"scale: expected a number \(seconds\)"),
    ],
)
def test_distribution_without_valid_times_is_refused(name, keys, field):
    with pytest.raises(InvalidSettingError, match=rf"^Scipy\.{field}"):
        Scipy(name, **keys)
