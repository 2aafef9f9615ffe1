"""Closed forms for time, staleness and stability, each with the tolerance that its own standard error gives."""

import math

import numpy as np
import pytest
import torch

from models import Quadratic
from simulator import (
    AsyncPS,
    Cluster,
    Delayed,
    Evaluate,
    KAsync,
    KBatchSync,
    Network,
    Rule,
    SoftSync,
    Stop,
    SyncPS,
    simulate,
)
from simulator.laws import Constant, Exponential, Gamma, ShiftedExponential, TwoPoint, Uniform
from simulator.rules import SGD, Nesterov
from simulator.slowdowns import Factor


def harmonic(n):
    return sum(1 / k for k in range(1, n + 1))


def update_times(cluster, algorithm, updates):
    """Virtual seconds of each update."""
    outcome = simulate(cluster, algorithm, stop=Stop(updates=updates))
    applied = outcome.updates["time"][outcome.updates["status"] == "applied"]
    return np.diff(np.unique(applied), prepend=0.0)


def assert_mean(samples, expected, errors=4):
    """The mean of independent samples lies within `errors` standard errors of `expected`."""
    error = samples.std(ddof=1) / math.sqrt(len(samples))
    assert abs(samples.mean() - expected) < errors * error + 1e-12, (samples.mean(), expected, error)


@pytest.mark.parametrize("law", [Constant(1.0), Exponential(1.0), Gamma(1.0, 0.3), Uniform(0.5, 1.5)])
@pytest.mark.parametrize("P", [4, 16])
def test_mean_staleness_of_equal_asynchronous_workers_is_one_less_than_they_are(law, P):
    outcome = simulate(Cluster(workers=P, compute=law), AsyncPS(Rule()), stop=Stop(updates=400 * P))
    settled = outcome.updates["staleness"][P * (P - 1) // 2 :]
    assert settled.mean() == pytest.approx(P - 1, rel=0.01)


def test_staleness_under_exponential_times_is_geometric():
    P, updates = 8, 40_000
    outcome = simulate(Cluster(workers=P, compute=Exponential(1.0)), AsyncPS(Rule()), stop=Stop(updates=updates))
    staleness = outcome.updates["staleness"][500:]
    for k in (0, 1, 5, 20):
        probability = (1 / P) * (1 - 1 / P) ** k
        error = math.sqrt(probability / len(staleness))  # neighbours are nearly independent
        assert (staleness == k).mean() == pytest.approx(probability, abs=5 * error)


@pytest.mark.parametrize("P", [2, 8, 32])
def test_a_synchronous_step_of_exponential_workers_takes_the_harmonic_number(P):
    times = update_times(Cluster(workers=P, compute=Exponential(0.5)), SyncPS(Rule()), 3000)
    assert_mean(times, 0.5 * harmonic(P))


def test_a_shift_is_added_once_and_uniform_and_two_point_maxima_are_known():
    P = 6
    shifted = update_times(Cluster(workers=P, compute=ShiftedExponential(2.0, 0.5)), SyncPS(Rule()), 3000)
    assert_mean(shifted, 2.0 + 0.5 * harmonic(P))
    uniform = update_times(Cluster(workers=P, compute=Uniform(1.0, 3.0)), SyncPS(Rule()), 3000)
    assert_mean(uniform, 1 + 2 * P / (P + 1))
    straggler = update_times(Cluster(workers=P, compute=TwoPoint(1.0, 10.0, 0.05)), SyncPS(Rule()), 4000)
    assert_mean(straggler, 1 + 9 * (1 - 0.95**P))


@pytest.mark.parametrize(("P", "K"), [(8, 3), (8, 7), (20, 19)])
def test_the_first_k_of_p_cancelled(P, K):
    """Fresh starts for all after every update: the K-th order statistic of P exponentials."""
    times = update_times(Cluster(workers=P, compute=Exponential(1.0)), SyncPS(Rule(), wait_for=K, cancel=True), 3000)
    assert_mean(times, harmonic(P) - harmonic(P - K))


@pytest.mark.parametrize(("P", "K", "expected"), [(2, 1, 0.750), (8, 3, 0.832)])
def test_the_first_k_of_p_with_late_ones_that_finish_first_takes_longer(P, K, expected):
    """No closed form: three digits from an independent Monte Carlo, batches of 50 updates being nearly independent."""
    times = update_times(Cluster(workers=P, compute=Exponential(1.0)), SyncPS(Rule(), wait_for=K), 20_000)
    batches = times.reshape(-1, 50).mean(1)
    error = batches.std(ddof=1) / math.sqrt(len(batches))
    assert times.mean() == pytest.approx(expected, abs=4 * error + 0.0005)
    assert times.mean() > harmonic(P) - harmonic(P - K) + 10 * error


LAWS = [Constant(1.0), Exponential(1.0), Gamma(1.0, 0.3), Uniform(0.5, 1.5)]


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("K", [2, 3])
def test_mean_staleness_of_soft_sync_and_of_k_async(law, K):
    """(P - 1) / K and P / K - 1: not the same, though the two are often mixed up."""
    P, updates = 12, 3000
    for algorithm, expected in [(SoftSync(Rule(), K), (P - 1) / K), (KAsync(Rule(), K), P / K - 1)]:
        outcome = simulate(Cluster(workers=P, compute=law), algorithm, stop=Stop(updates=updates))
        settled = outcome.updates["staleness"][P * (P - 1) // 2 :]
        assert settled.mean() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_time_per_update_of_soft_sync_under_any_law(law):
    """K E[X] / P, whatever the law: nobody waits. The gradients in flight at both ends differ by at most P."""
    P, K, updates = 8, 3, 4000
    outcome = simulate(Cluster(workers=P, compute=law), SoftSync(Rule(), K), stop=Stop(updates=updates))
    error = law.std * math.sqrt(K / P / updates) * K / P + P / (K * updates)
    assert outcome.mileage.time / updates == pytest.approx(K / P, abs=4 * error)


def test_time_per_update_of_k_batch_sync_and_k_async_under_exponential_times():
    """K / (P mu) for mini-batches from anyone; for distinct workers the K-th order statistic of P."""
    P, K = 8, 3
    cluster = Cluster(workers=P, compute=Exponential(1.0))
    assert_mean(update_times(cluster, KBatchSync(Rule(), K), 4000), K / P)
    assert_mean(update_times(cluster, KBatchSync(Rule(), 2 * P), 2000), 2.0)
    assert_mean(update_times(cluster, KAsync(Rule(), K), 4000), harmonic(P) - harmonic(P - K))


def test_speed_up_with_one_slow_worker():
    P, s = 16, 10.0
    cluster = Cluster(workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=0, factor=s)])
    synchronous = simulate(cluster, SyncPS(Rule()), stop=Stop(updates=50)).mileage
    assert synchronous.gradients / synchronous.time == pytest.approx(P / s)
    asynchronous = simulate(cluster, AsyncPS(Rule()), stop=Stop(time=1000.0)).mileage
    assert asynchronous.updates / asynchronous.time == pytest.approx(P - 1 + 1 / s, rel=1e-9)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_a_synchronous_round_over_the_servers_card(sharing):
    """t_c + 2 alpha + 2 P N beta under fair sharing; fifo staggers the workers and takes (P + 1) N beta."""
    P, compute, alpha, size, bandwidth = 8, 1.0, 0.125, 3.0, 12.0
    network = Network(bandwidth=bandwidth, latency=alpha, sharing=sharing, message_bytes=size)
    times = update_times(Cluster(workers=P, compute=Constant(compute), network=network), SyncPS(Rule()), 20)
    messages = 2 * P if sharing == "fair" else P + 1
    np.testing.assert_allclose(times[1:], compute + 2 * alpha + messages * size / bandwidth)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize(("compute", "apply_seconds"), [(20.0, 0.0), (1.0, 0.0), (1.0, 0.7), (1.0, 0.1)])
def test_an_asynchronous_server_saturates(sharing, compute, apply_seconds):
    """At most min(P / (t_c + 2 alpha + 2 N beta + c), 1 / max(N beta, c)); fifo with constant times reaches it."""
    P, alpha, transfer = 8, 0.125, 0.25
    network = Network(bandwidth=1.0, latency=alpha, sharing=sharing, message_bytes=transfer)
    cluster = Cluster(workers=P, compute=Constant(compute), network=network, apply_seconds=apply_seconds)
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=4000))
    times = outcome.updates["time"]
    throughput = 2000 / (times[-1] - times[-2001])
    bound = min(P / (compute + 2 * alpha + 2 * transfer + apply_seconds), 1 / max(transfer, apply_seconds, 1e-12))
    assert throughput <= bound * (1 + 1e-2)
    if sharing == "fifo":
        assert throughput == pytest.approx(bound, rel=0.01)


def growth(lr, delay, momentum, nesterov):
    """The factor per update of delayed descent on curvature 1: its characteristic polynomial's largest root.

    The velocity is v = m v + g(w_{t-D}) and the step -lr v, or -lr (g + m v) under Nesterov:
    z^(D+2) - (1 + m) z^(D+1) + m z^D + lr z, the last term lr ((1 + m) z - m) under Nesterov.
    """
    polynomial = np.zeros(delay + 3)
    polynomial[:3] = 1, -(1 + momentum), momentum
    polynomial[-2:] += (lr * (1 + momentum), -lr * momentum) if nesterov else (lr, 0.0)
    return np.abs(np.roots(polynomial)).max()


def largest_stable_lr(*oscillator):
    """Where the growth passes 1, by bisection."""
    low, high = 0.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if growth(middle, *oscillator) < 1 else (low, middle)
    return low


@pytest.mark.parametrize("delay", [0, 1, 4, 16, 32])
def test_the_limit_without_momentum_is_the_closed_form(delay):
    closed_form = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    assert largest_stable_lr(delay, 0.0, False) == pytest.approx(closed_form, rel=1e-6)


@pytest.mark.parametrize("delay", [0, 1, 4, 16])
@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.9), Nesterov(momentum=0.9)], ids=repr)
def test_delayed_descent_is_stable_just_below_the_limit_and_not_just_above(optimizer, delay):
    h, oscillator = 2.5, (delay, optimizer.momentum, isinstance(optimizer, Nesterov))
    limit = largest_stable_lr(*oscillator)
    lr = torch.tensor([[0.97], [1.03]], dtype=torch.float64) * limit / h
    updates = 2 * math.ceil(math.log(1e12) / math.log(growth(1.03 * limit, *oscillator)))
    outcome = simulate(
        Cluster(workers=1),
        Delayed(Rule(optimizer, lr=lr), delay=delay),
        Quadratic(curvature=h, dtype=torch.float64),
        stop=Stop(updates=updates),
        evaluate=Evaluate(every_updates=updates // 2),
        ensemble=2,
    )
    distance = outcome.metrics["distance"].reshape(-1, 2)
    assert distance[-1, 0] < distance[1, 0] < 1, "0.97 of the limit shrinks"
    assert distance[-1, 1] > distance[1, 1] > 1, "1.03 of the limit grows"
