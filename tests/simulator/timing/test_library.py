"""Laws of scipy.stats by name: means, quantiles, repeatability, and what is refused."""

import math

import numpy as np
import pytest

from laggard import Cluster, InvalidSettingError, Stop, simulate
from laggard.simulator import AsyncPS, Rule
from laggard.simulator.timing.distributions import Exponential, Scipy
from laggard.simulator.timing.distributions.distribution import Durations
from laggard.simulator.timing.streams import StoredStream

DRAWS = 20_000


@pytest.mark.parametrize("c", [0.7, 1.0, 1.5])
def test_mean_and_deviation_are_those_of_weibull(c):
    law = Scipy("weibull_min", scale=0.01, c=c)
    mean = 0.01 * math.gamma(1 + 1 / c)
    assert law.mean == pytest.approx(mean, rel=1e-12)
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
    ("name", "shapes"),
    [("invgauss", {"mu": 0.5}), ("expon", {}), ("fisk", {"c": 3.0}), ("burr12", {"c": 4, "d": 2})],
)
def test_mean_of_draws_is_the_mean(name, shapes):
    law = Scipy(name, loc=0.5, scale=2.0, **shapes)
    drawn = law.draw(np.random.default_rng(2), DRAWS)
    assert drawn.min() >= 0.5
    assert abs(drawn.mean() - law.mean) < 4 * law.std / math.sqrt(DRAWS)


def test_durations_repeat_by_seed_and_rank():
    law = Scipy("weibull_min", scale=0.01, c=1.5)

    def durations(seed, rank):
        stream = Durations(law, StoredStream(np.random.default_rng(), seed, 0, rank), rank)
        return [stream.next() for _ in range(200)]

    assert durations(1, 0) == durations(1, 0)
    assert durations(1, 0) != durations(1, 1)
    assert durations(1, 0) != durations(2, 0)


def test_exponential_by_scipy_is_the_exponential():
    for law in (Scipy("expon", scale=0.5), Exponential(0.5)):
        outcome = simulate(Cluster(4, law), AsyncPS(Rule()), stop=Stop(updates=4000), seed=3)
        end = outcome.updates["time"][-1]
        assert end == pytest.approx(4000 / 4 * 0.5, rel=4 / math.sqrt(4000))


@pytest.mark.parametrize(
    ("name", "keys", "field"),
    [
        ("weibul_min", {}, r"name: .*did you mean weibull_min\?"),
        ("expon", {"scale": "10 ms"}, r"scale: expected a number \(seconds\)"),
    ],
)
def test_law_that_gives_no_times_is_refused(name, keys, field):
    with pytest.raises(InvalidSettingError, match=rf"^Scipy\.{field}"):
        Scipy(name, **keys)
