"""Who comes first of workers that are ready in one instant."""

import math

import numpy as np
import pytest

from laggard.simulator import (
    Cluster,
    KBatchSync,
    KSync,
    Network,
    Rule,
    Stop,
    SyncReplicas,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.timing.distributions import Constant, Exponential

P, UPDATES = 8, 400
METHODS = {
    "k_sync": (KSync(Rule(), wait_for=6), 6),
    "k_batch_sync": (KBatchSync(Rule(), gradients=4), 4),
    "sync_replicas": (SyncReplicas(Rule(), replicas_to_aggregate=6, num_tokens=0), 6),
}


def contributions(algorithm, ties, seed=0, network=None):
    """The applied gradients of each of eight workers with equal constant times."""
    cluster = Cluster(P, compute=Constant(1.0), ties=ties, network=network or Network())
    updates = simulate(cluster, algorithm, stop=Stop(updates=UPDATES), seed=seed).updates
    return np.bincount(updates["worker"][updates["status"] == "applied"], minlength=P)


@pytest.mark.parametrize("name", METHODS)
def test_last_ranks_lose_ties_by_rank(name):
    algorithm, taken = METHODS[name]
    assert contributions(algorithm, "rank")[taken:].sum() <= 2 * (P - taken)


@pytest.mark.parametrize(
    "network", [Network(), Network(bandwidth=1e3, latency=0.01, message_bytes=1.0)]
)
@pytest.mark.parametrize("name", METHODS)
def test_random_ties_favour_no_worker(name, network):
    """Each worker is among the K of P in n K / P of n updates, with standard deviation sqrt(n K /
    P (1 - K / P)).
    """
    algorithm, taken = METHODS[name]
    share = taken / P
    assert contributions(algorithm, "random", network=network) == pytest.approx(
        UPDATES * share, abs=4.5 * math.sqrt(UPDATES * share * (1 - share))
    )


def test_order_of_ties_depends_on_seed():
    one, again, other = (
        contributions(METHODS["k_sync"][0], "random", seed).tolist() for seed in (0, 0, 1)
    )
    assert one == again != other


@pytest.mark.parametrize("name", ["async_ps", "sync_ps", "all_reduce", "sgp"])
def test_random_ties_change_nothing_without_ties(name):
    stop = Stop(updates=50)
    by_rank, random = (
        simulate(
            Cluster(4, compute=Exponential(1.0), ties=ties), ALGORITHMS[name](Rule()), stop=stop
        ).updates
        for ties in ("rank", "random")
    )
    for column, values in by_rank.items():
        assert np.array_equal(values, random[column], equal_nan=values.dtype.kind == "f"), column
