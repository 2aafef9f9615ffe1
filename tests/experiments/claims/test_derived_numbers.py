"""The closed forms that claims are compared with, each by a second way that is independent of the
first.
"""

from itertools import product

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import binom

from laggard.experiments.claims.papers.lian2018 import closed_network
from laggard.experiments.claims.papers.mitliagkas2016 import RATES
from laggard.experiments.claims.probing import fit_momentum


@pytest.mark.parametrize("workers", [1, 2, 5, 9])
def test_the_closed_network_has_the_throughput_of_its_product_form(workers):
    """Gordon & Newell (1967): p(n) = prod rho_i^n_i / n_i! at the workers, without the factorial at
    the two links.
    """
    compute, transfer = 1.0, 0.3

    def constant(count):
        states = (state for state in product(range(count + 1), repeat=2) if sum(state) <= count)
        return sum(transfer ** sum(state) * compute ** (rest := count - sum(state)) / np.prod(range(1, rest + 1))
                   for state in states)  # fmt: skip

    expected = compute * (constant(workers - 1) / constant(workers))
    assert closed_network(workers, compute, transfer) == pytest.approx(expected, rel=1e-12)


def test_the_closed_network_saturates_at_the_rate_of_a_link():
    assert closed_network(5000, 0.010, 0.0003) == pytest.approx(0.010 / 0.0003, rel=1e-3)


def covariances(delay, rate, lags):
    """R(0) ... R(lags) of w(t+1) = w(t) - rate w(t - delay) + noise of deviation 1."""
    step = np.eye(delay + 1, k=-1)
    step[0, 0] += 1.0
    step[0, -1] -= rate
    noise = np.zeros_like(step)
    noise[0, 0] = 1.0
    state, found = solve_discrete_lyapunov(step, noise), []
    for _ in range(lags + 1):
        found.append(state[0, 0])
        state = step @ state
    return np.array(found)


def exact_fit(workers, rate):
    """The momentum that the probe fits to the exact covariances of a constant delay of P - 1."""
    found = covariances(workers - 1, rate, 2 * workers + 1)
    steps = np.diff(found)
    terms = np.stack([steps[:-1], -found[1:-1]], axis=1)
    return np.linalg.lstsq(terms, steps[1:], rcond=None)[0][0]


@pytest.mark.parametrize(("workers", "change"), [(2, 0.5), (4, 0.242), (8, 0.119)])
def test_a_constant_delay_is_fitted_by_a_momentum_that_grows_with_the_rate(workers, change):
    least, middle, greatest = RATES[workers]
    assert exact_fit(workers, greatest) - exact_fit(workers, least) == pytest.approx(
        change, abs=5e-4
    )
    if workers == 2:
        assert exact_fit(2, middle) == pytest.approx(middle, rel=1e-9)


def test_the_fit_of_a_long_trajectory_is_that_of_its_covariances():
    rng, delay, rate = np.random.default_rng(5), 3, 0.375
    models = np.zeros((20_000, 8))
    noise = rng.standard_normal(models.shape)
    for t in range(delay, len(models) - 1):
        models[t + 1] = models[t] - rate * models[t - delay] + noise[t]
    assert fit_momentum(models, 8) == pytest.approx(exact_fit(4, rate), abs=0.01)


def test_time_per_sample_is_least_with_three_backups_of_sixteen():
    """E[X_(N:16)] / N of 10 ms, or 100 ms with a probability of 5 %: slow if fewer than N are
    quick.
    """
    quick = {wait_for: 1 - binom.cdf(wait_for - 1, 16, 0.95) for wait_for in range(8, 17)}
    seconds = {
        wait_for: (0.01 + 0.09 * (1 - share)) / wait_for for wait_for, share in quick.items()
    }
    assert 16 - min(seconds, key=seconds.__getitem__) == 3
