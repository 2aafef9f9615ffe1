"""Mini-batches that are given up after a time, and new ones."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, InvalidSettingError, Rule, Stop, simulate
from laggard.simulator.timing.distributions import Pareto
from tests.theory.statements import batch_means, equal, mean_is, same
from tests.theory.trials import UNEVEN, every, method

MARANJYAN = "Maranjyan et al. (2025)"
LAW, PATIENCE = Pareto(scale=0.5, alpha=1.5), 2.0
SUCCESS = 1 - (0.5 / PATIENCE) ** 1.5


def patient(workers, updates, trials=4, lr=0.1):
    """A run with heavy-tailed times, which are given up after `PATIENCE` seconds."""
    algorithm = method(
        "mindflayer", Rule(lr=lr), trials=trials, patience=PATIENCE, success_rate=SUCCESS
    )
    task = Quadratic(noise=0.0, initial=1.0, dtype=torch.float64)
    return simulate(Cluster(workers, LAW), algorithm, task, stop=Stop(updates=updates))


def test_mindflayer_without_limit_is_synchronous_server():
    one, other = every(UNEVEN, "mindflayer"), every(UNEVEN, "sync_ps")
    same("mindflayer, B = 1, no limit, = sync_ps, every optimiser", one, other, source=MARANJYAN)


def test_gradient_time_follows_time_out():
    """A mini-batch takes E min(X, t), and F(t) of them are ready."""
    outcome = patient(1, 1200)
    applied = outcome.updates["status"] == "applied"
    seconds = np.diff(np.unique(outcome.updates["time"][applied]))
    within_limit = 3 * 0.5**1.5 * (0.5**-0.5 - PATIENCE**-0.5)  # the integral of x f(x) up to t
    each = within_limit + PATIENCE * (1 - SUCCESS)
    text = "mindflayer, Pareto (1.5, 0.5 s), t = 2 s: an update of 4 takes 4 E min(X, t)"
    mean_is(text, 4 * each, batch_means(seconds), source=MARANJYAN)
    ready = outcome.gradients["applied"] / outcome.gradients["started"]
    text = "mindflayer: the share of mini-batches that are ready, in 4800"
    equal(text, SUCCESS, ready, source=MARANJYAN, rtol=4 * (SUCCESS * (1 - SUCCESS) / 4800) ** 0.5)
    text = "seconds a gradient: 1.143 with the limit, 1.5 without"
    equal(text, 1.143, each / SUCCESS, source="derived", rtol=5e-4, wrong=1.5)


@pytest.mark.parametrize("workers", [1, 3])
def test_sum_is_divided_by_expected_number_of_gradients(workers):
    """Not by the number of those that came."""
    start, outcome = 1.0, patient(workers, updates=1, trials=8)
    came = outcome.gradients["applied"]
    assert came != 8 * workers
    expected = start - 0.1 * came / (workers * 8 * SUCCESS)
    text = f"mindflayer, {workers} workers: w - lr (sum of those that came) / (P B F(t))"
    equal(text, expected, outcome.weights.item(), source=MARANJYAN, rtol=1e-12)


def test_each_worker_has_its_own_trials_and_limit():
    trials, limits = (16, 6), (PATIENCE, 0.7)
    rates = [1 - (0.5 / limit) ** 1.5 for limit in limits]
    rule = Rule(lr=0.1)
    algorithm = method("mindflayer", rule, trials=trials, patience=limits, success_rate=rates)
    task = Quadratic(noise=0.0, initial=1.0, dtype=torch.float64)
    outcome = simulate(Cluster(2, LAW), algorithm, task, stop=Stop(updates=1))
    gradients = outcome.updates
    assert np.bincount(gradients["worker"]).tolist() == list(trials)
    given_up = gradients["status"] == "cancelled"
    assert set(gradients["worker"][given_up]) == {0, 1}
    seconds = (gradients["time"] - gradients["started"])[given_up]
    text = "mindflayer, lists: seconds after which each worker gives up, over its t_i"
    equal(text, 1.0, seconds / np.take(limits, gradients["worker"][given_up]), source=MARANJYAN)
    came = outcome.gradients["applied"]
    text = "mindflayer, lists: w - lr (sum of those that came) / sum B_i F_i(t_i)"
    expected = 1.0 - 0.1 * came / np.dot(trials, rates)
    equal(text, expected, outcome.weights.item(), source=MARANJYAN, rtol=1e-12)


@pytest.mark.parametrize("key", ["trials", "patience", "success_rate"])
def test_lists_have_an_item_for_each_worker(key):
    algorithm = method("mindflayer", Rule(), **{key: (1, 1, 1)})
    with pytest.raises(InvalidSettingError, match=rf"{key}.*expected.* 2,"):
        simulate(Cluster(2, LAW), algorithm, stop=Stop(updates=1))


def test_success_rate_is_checked_against_distribution():
    algorithm = method("mindflayer", Rule(), patience=PATIENCE, success_rate=0.5)
    with pytest.raises(InvalidSettingError, match=r"success_rate.*0\.87"):
        simulate(Cluster(2, LAW), algorithm, stop=Stop(updates=1))
