"""K-async and soft synchronisation: who contributes to an update, and who waits."""

import numpy as np
import pytest
import torch

from laggard.simulator import Cluster, KAsync, Rule, SoftSync, Stop, simulate
from laggard.simulator.timing.distributions import Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from laggard.simulator.timing.streams import BATCHES, stream

QUICK = [Factor(worker=0, factor=0.1)]


def contributors(algorithm, K, updates=400):
    outcome = simulate(
        Cluster(workers=6, compute=Exponential(1.0), slowdowns=QUICK),
        algorithm,
        stop=Stop(updates=updates),
    )
    return outcome.updates["worker"].reshape(updates, K)


def test_k_async_alone_has_distinct_workers_in_update():
    K = 4
    assert all(len(set(workers)) == K for workers in contributors(KAsync(Rule(), wait_for=K), K))
    assert any(len(set(workers)) < K for workers in contributors(SoftSync(Rule(), gradients=K), K))


def test_worker_that_returns_contributes_once_to_update():
    """Its gradient may be gathered already: then it waits for the update like any contributor."""
    K, updates = 3, 300
    crashes = [
        Crash(worker=rank, at=5.0 * k + rank, back=5.0 * k + rank + 0.1)
        for k in range(60)
        for rank in (0, 1)
    ]
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.9), slowdowns=crashes)
    outcome = simulate(cluster, KAsync(Rule(), wait_for=K), stop=Stop(updates=updates))
    applied = outcome.updates["worker"][outcome.updates["status"] == "applied"].reshape(updates, K)
    assert all(len(set(workers)) == K for workers in applied)


@pytest.mark.parametrize("algorithm", [KAsync, SoftSync])
def test_update_is_mean_of_gradients_at_weights_read(algorithm, quadratic):
    """By hand from the order of arrivals: a contributor re-reads after the update, in soft_sync at
    once, but for the last one.
    """
    P, K, lr, updates = 4, 3, 0.05, 30
    cluster = Cluster(workers=P, compute=Gamma(1.0, 0.5))
    outcome = simulate(cluster, algorithm(Rule(lr=lr), K), quadratic, stop=Stop(updates=updates))
    streams = [quadratic.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    w = quadratic.start([0])
    read = [w] * P
    for workers in np.reshape(outcome.updates["worker"], (updates, K)):
        gradients = []
        for rank in workers:
            gradients.append(quadratic.gradients(read[rank][None], [next(streams[rank])])[0][0])
            if algorithm is SoftSync:
                read[rank] = w
        w = w - lr * sum(gradients) / K
        for rank in workers if algorithm is KAsync else workers[-1:]:
            read[rank] = w
    torch.testing.assert_close(outcome.weights, w, rtol=1e-12, atol=1e-14)
