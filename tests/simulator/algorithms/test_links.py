"""Who sends to whom: a method's `links`, and the clusters that they rule out."""

import numpy as np
import pytest

from laggard.simulator import (
    DPSGD,
    AllReduce,
    AsyncPS,
    Cluster,
    GPipe,
    InvalidSettingError,
    Network,
    Record,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.topology import Complete, Ring, Star

SETTINGS = [{}, {"shards": 3}, *({"collective": name} for name in ("naive_ring", "mesh", "recursive_doubling",
            "halving_doubling", "tree"))]  # fmt: skip


@pytest.mark.parametrize("workers", [5, 8])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(
    "method",
    sorted(set(ALGORITHMS) - {"delayed", "dpsgd", "adpsgd", "adpsgd_overlap", "sgp", "osgp"}),
)
def test_a_method_sends_along_its_links_and_along_no_others(method, settings, workers):
    recipe = ALGORITHMS[method]
    if not set(settings) <= set(recipe.__dataclass_fields__):
        return
    needs = {"micro_batches": 8} if method == "pipedream_2bw" else {}
    algorithm = recipe(Rule(), **settings, **needs)
    cluster = Cluster(workers, network=Network(latency=0.01))
    outcome = simulate(cluster, algorithm, stop=Stop(gradients=100), record=Record(messages=True))
    used = set(
        zip(
            *(np.asarray(outcome.message_log[end]).tolist() for end in ("sender", "receiver")),
            strict=True,
        )
    )
    assert used == set(algorithm.links(workers))


@pytest.mark.parametrize(
    ("method", "cluster", "message"),
    [
        (
            AsyncPS(Rule()),
            Cluster(4, network=Network(topology=Ring())),
            "Network.topology: expected auto or star, since",
        ),
        (
            GPipe(Rule()),
            Cluster(4, network=Network(topology=Star())),
            "since GPipe sends from 0 to 1, got 'star'",
        ),
        (
            AllReduce(Rule()),
            Cluster(4, network=Network(colocated=True)),
            "Network.colocated: expected false, since",
        ),
        (
            AllReduce(Rule(), collective="mesh"),
            Cluster(3000),
            "Cluster.workers: expected so few that AllReduce has at most",
        ),
        (
            DPSGD(Rule()),
            Cluster(3000, network=Network(topology=Complete())),
            "Cluster.workers: expected so few",
        ),
    ],
)
def test_a_cluster_that_does_not_fit_the_links_is_refused(method, cluster, message):
    with pytest.raises(InvalidSettingError) as caught:
        method.check_cluster(cluster)
    assert message in str(caught.value)


@pytest.mark.slow
def test_a_million_workers_fit_a_server():
    AsyncPS(Rule()).check_cluster(Cluster(10**6))
