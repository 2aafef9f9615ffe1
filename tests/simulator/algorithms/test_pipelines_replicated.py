"""Replicas of a pipeline: their weights, what they send to each other, and what it costs."""

from functools import partial

import numpy as np
import pytest

from laggard.models.layers import Layer
from laggard.simulator import (
    AsyncPipelines,
    Cluster,
    InvalidSettingError,
    Network,
    Record,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.pipelines import GPipe, OneForwardOneBackward
from laggard.simulator.timing.distributions import Constant

FLUSHED = [GPipe, OneForwardOneBackward]
S, M, R = 3, 3, 2


@pytest.mark.parametrize("workers", [4, 6, 9])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_stages_send_to_neighbours_and_replicas(collective, workers):
    algorithm = GPipe(Rule(), replicas=workers // 2 if workers < 9 else 3, collective=collective)
    cluster = Cluster(workers, network=Network(latency=0.01))
    outcome = simulate(
        cluster, algorithm, Timing(depth=4), stop=Stop(updates=3), record=Record(messages=True)
    )
    used = zip(*(outcome.message_log[end].tolist() for end in ("sender", "receiver")), strict=True)
    assert set(used) == set(algorithm.links(workers))


@pytest.mark.parametrize(
    ("algorithm", "forward"),
    [
        (GPipe, S - 1 + M),
        (OneForwardOneBackward, S),
        (partial(AsyncPipelines, schedule="gpipe"), S - 1 + M),
        (partial(AsyncPipelines, schedule="1f1b"), S),
    ],
)
def test_each_replica_has_schedule_of_its_pipeline(algorithm, forward):
    """The last stage sends its first gradient back after `forward` passes of 2/3 s and one backward
    of 4/3 s.
    """
    cluster, pipelines = (
        Cluster(R * S, Constant(6.0)),
        algorithm(Rule(), micro_batches=M, replicas=R),
    )
    stop, record = Stop(updates=1), Record(messages=True)
    log = simulate(cluster, pipelines, Timing(depth=S), stop=stop, record=record).message_log
    for last in range(S - 1, R * S, S):
        first = log["sent"][(log["sender"] == last) & (log["receiver"] == last - 1)].min()
        assert first == pytest.approx(forward * 2 / 3 + 4 / 3)


def update_seconds(algorithm, layers, replicas, **network):
    """The seconds of each update of a pipeline of 6 seconds a micro-batch."""
    network = Network(message_bytes=8.0, bandwidth=2.0, **network)
    cluster = Cluster(replicas * len(layers), Constant(6.0), network=network)
    pipelines = algorithm(Rule(), micro_batches=4, replicas=replicas)
    rows = simulate(cluster, pipelines, Timing(network=layers), stop=Stop(updates=8)).updates
    return np.diff([rows["time"][rows["version"] == version].max() for version in range(8)])


@pytest.mark.parametrize("wiring", ["cards", "pairs"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (6, 1, 1), (1, 6, 1), (1, 1, 9), (1, 5, 9)])
@pytest.mark.parametrize("algorithm", FLUSHED)
def test_update_waits_for_collective_that_ends_last(algorithm, sizes, wiring):
    """(M + S - 1)(f + b) + max_s (C_s - s (f + b)), f + b = 2, C_s = 2 (R - 1) / R of a stage's N
    beta.
    """
    layers = [Layer(f"layer{number}", size, 0.0, 1.0) for number, size in enumerate(sizes)]
    for replicas in (2, 4):
        collective = 2 * (replicas - 1) / replicas * 4.0 * np.array(sizes) / sum(sizes)
        expected = (4 + 3 - 1) * 2.0 + max(collective - 2.0 * np.arange(3))
        took = update_seconds(algorithm, layers, replicas, wiring=wiring)
        np.testing.assert_allclose(took, expected, rtol=1e-9)


def test_layers_without_parameters_have_equal_bytes():
    layers = Timing(depth=2).layers()
    np.testing.assert_allclose(update_seconds(GPipe, layers, 2), (4 + 2 - 1) * 3.0 + 2.0, rtol=1e-9)


@pytest.mark.parametrize(("workers", "replicas"), [(6, 4), (2, 5), (4, 100_000)])
def test_replicas_with_unequal_stages_are_refused(workers, replicas):
    algorithm = GPipe(Rule(), replicas=replicas, collective="mesh")
    with pytest.raises(InvalidSettingError, match="replicas: expected a divisor of workers"):
        simulate(Cluster(workers), algorithm, stop=Stop(updates=1))
