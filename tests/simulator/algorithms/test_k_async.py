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


def test_an_update_of_k_async_has_distinct_workers_and_one_of_soft_sync_may_have_one_twice():
    K = 4
    assert all(len(set(workers)) == K for workers in contributors(KAsync(Rule(), wait_for=K), K))
    assert any(len(set(workers)) < K for workers in contributors(SoftSync(Rule(), gradients=K), K))


def test_a_worker_that_returns_from_a_crash_does_not_contribute_to_an_update_twice():
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
def test_an_update_is_the_mean_of_its_gradients_at_what_their_workers_read(algorithm, quadratic):
    """By hand from the order of arrivals: a contributor re-reads after the update, or in soft_sync
    at once.
    """
    P, K, lr, updates = 4, 3, 0.05, 30
    cluster = Cluster(workers=P, compute=Gamma(1.0, 0.5))
    outcome = simulate(cluster, algorithm(Rule(lr=lr), K), quadratic, stop=Stop(updates=updates))
    arrivals = np.asarray(outcome.updates["worker"]).reshape(updates, K)
    streams = [quadratic.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    w = quadratic.start([0])
    read = [w] * P
    for workers in arrivals:
        if algorithm is SoftSync:  # the K-th contributor alone waits for the update
            gradients = []
            for rank in workers:
                gradients.append(quadratic.gradients(read[rank][None], [next(streams[rank])])[0][0])
                read[rank] = w
            w = w - lr * sum(gradients) / K
            read[workers[-1]] = w
        else:
            gradients = [
                quadratic.gradients(read[rank][None], [next(streams[rank])])[0][0]
                for rank in workers
            ]
            w = w - lr * sum(gradients) / K
            for rank in workers:
                read[rank] = w
    torch.testing.assert_close(outcome.weights, w, rtol=1e-12, atol=1e-14)
