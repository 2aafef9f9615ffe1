"""Who sends to whom: a method's `links`, and the clusters that they rule out."""

import pytest

from laggard.simulator import (
    AsyncPS,
    Cluster,
    Network,
    Record,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS

COLLECTIVES = ["naive_ring", "mesh", "recursive_doubling", "halving_doubling", "tree"]
ON_ANY_GRAPH = {
    *("dpsgd", "adpsgd", "adpsgd_overlap", "sgp", "osgp"),
    *("gradient_tracking", "d2", "qg_dsgdm", "relay_sgd", "matcha", "choco"),
}
SETTINGS = [{}, {"shards": 3}, *({"collective": name} for name in COLLECTIVES)]


@pytest.mark.parametrize("workers", [5, 8])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(
    "method", sorted(set(ALGORITHMS) - ON_ANY_GRAPH - {"delayed", "delayed_stages"})
)
def test_method_sends_along_its_links_alone(method, settings, workers):
    recipe = ALGORITHMS[method]
    if not set(settings) <= set(recipe.__dataclass_fields__):
        return
    needs = {"micro_batches": 8} if method == "pipedream_2bw" else {}
    algorithm = recipe(Rule(), **settings, **needs)
    cluster = Cluster(workers, network=Network(latency=0.01))
    outcome = simulate(cluster, algorithm, stop=Stop(gradients=100), record=Record(messages=True))
    used = zip(*(outcome.message_log[end].tolist() for end in ("sender", "receiver")), strict=True)
    assert set(used) == set(algorithm.links(workers))


@pytest.mark.slow
def test_million_workers_fit_server():
    AsyncPS(Rule()).check_cluster(Cluster(10**6))
