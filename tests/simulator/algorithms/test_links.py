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
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.contrib.pipedream_2bw import PipeDream2BW
from laggard.simulator.algorithms.delayed import Delayed, DelayedStages
from tests.cases import quick

SETTINGS = [{}, {"shards": 3}, *({"collective": name} for name in COLLECTIVES)]
FITTING = [
    pytest.param(recipe, settings, id=f"{name}-{settings}")
    for name, recipe in ALGORITHMS.items()
    for settings in SETTINGS
    if set(settings) <= set(recipe.__dataclass_fields__)
]


@pytest.mark.parametrize("workers", quick([5, 8], only=[5]))
@pytest.mark.parametrize(("recipe", "settings"), FITTING)
def test_method_sends_only_along_its_links(recipe, settings, workers):
    """But for methods of one process, and those that send to the peers of any graph."""
    needs = {"micro_batches": 8} if recipe is PipeDream2BW else {}
    algorithm = recipe(Rule(), **settings, **needs)
    if issubclass(recipe, Delayed | DelayedStages) or not algorithm.links(workers):
        return
    cluster = Cluster(workers, network=Network(latency=0.01))
    gradients = 50
    if "local_steps" in recipe.__dataclass_fields__:
        gradients = 100  # the first messages follow ten local steps of each of eight workers
    stop = Stop(gradients=gradients)
    outcome = simulate(cluster, algorithm, stop=stop, record=Record(messages=True))
    used = zip(*(outcome.message_log[end].tolist() for end in ("sender", "receiver")), strict=True)
    assert set(used) == set(algorithm.links(workers))


@pytest.mark.slow
def test_million_workers_fit_server():
    AsyncPS(Rule()).check_cluster(Cluster(10**6))
