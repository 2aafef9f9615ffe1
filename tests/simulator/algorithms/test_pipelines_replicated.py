"""Replicas of a pipeline: their weights, what they send to each other, and what it costs."""

from itertools import islice

import numpy as np
import pytest
import torch

from laggard.models import MLP, Supervised, digits
from laggard.models.layers import Layer
from laggard.simulator import (
    Cluster,
    Evaluate,
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
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.learning.rules.schedules import Step
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.streams import BATCHES, stream

FLUSHED = [GPipe, OneForwardOneBackward]
S, M, R = 3, 3, 2
UNEVEN = Cluster(
    workers=R * S, compute=Gamma(1.0, 0.7), network=Network(bandwidth=1e3, latency=0.01)
)


class OneAfterAnother:
    """A task whose node 0 has M mini-batches of each of the ranks 0, S, 2 S, ... in turn: those of
    all replicas.
    """

    def __init__(self, task):
        self._task = task

    def __getattr__(self, name):
        return getattr(self._task, name)

    def batches(self, rank, rngs):
        each = [
            self._task.batches(first, [stream(0, BATCHES, first)]) for first in range(0, R * S, S)
        ]
        while True:
            for batches in each:
                yield from islice(batches, M)


@pytest.fixture(scope="module")
def network():
    return Supervised(MLP([12, 8, 6]).build, digits(), 16, dtype=torch.float64, threads=1)


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), Adam()], ids=repr)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("algorithm", FLUSHED)
def test_replicas_are_one_pipeline_with_all_their_micro_batches(
    algorithm, collective, optimizer, network
):
    rule = Rule(optimizer, lr=0.05, schedule=Step(0.1, 0.5, "epochs"))  # an update is 0.064 epochs
    stop, evaluate = Stop(updates=5), Evaluate(every_updates=5)
    many = algorithm(rule, micro_batches=M, replicas=R, collective=collective)
    replicated = simulate(UNEVEN, many, network, stop=stop, evaluate=evaluate)
    one = algorithm(rule, micro_batches=R * M)
    alone = simulate(
        Cluster(workers=S), one, OneAfterAnother(network), stop=stop, evaluate=evaluate
    )
    torch.testing.assert_close(replicated.weights, alone.weights, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        replicated.metrics["train_loss"], alone.metrics["train_loss"], rtol=1e-12
    )
    assert replicated.progress.samples == alone.progress.samples
    assert (replicated.updates["staleness"] == 0).all()


@pytest.mark.parametrize("workers", [4, 6, 9])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_stages_send_to_their_neighbours_and_to_their_replicas(collective, workers):
    algorithm = GPipe(Rule(), replicas=workers // 2 if workers < 9 else 3, collective=collective)
    cluster = Cluster(workers, network=Network(latency=0.01))
    outcome = simulate(
        cluster, algorithm, Timing(depth=4), stop=Stop(updates=3), record=Record(messages=True)
    )
    used = set(
        zip(
            *(np.asarray(outcome.message_log[end]).tolist() for end in ("sender", "receiver")),
            strict=True,
        )
    )
    assert used == set(algorithm.links(workers))


@pytest.mark.parametrize(("algorithm", "forward"), [(GPipe, S - 1 + M), (OneForwardOneBackward, S)])
def test_each_replica_has_the_schedule_of_its_pipeline(algorithm, forward):
    """The last stage sends its first gradient back after so many forward passes of 2/3 s and one
    backward of 4/3 s.
    """
    cluster, pipelines = (
        Cluster(R * S, Constant(6.0)),
        algorithm(Rule(), micro_batches=M, replicas=R),
    )
    log = simulate(
        cluster, pipelines, Timing(depth=S), stop=Stop(updates=1), record=Record(messages=True)
    ).message_log
    for last in range(S - 1, R * S, S):
        first = log["sent"][(log["sender"] == last) & (log["receiver"] == last - 1)].min()
        assert first == pytest.approx(forward * 2 / 3 + 4 / 3)


def update_seconds(algorithm, layers, replicas, **network):
    """The seconds of each update of a pipeline of 6 seconds a micro-batch."""
    cluster = Cluster(
        replicas * len(layers),
        Constant(6.0),
        network=Network(message_bytes=8.0, bandwidth=2.0, **network),
    )
    task = Timing(network=layers)
    rows = simulate(
        cluster, algorithm(Rule(), micro_batches=4, replicas=replicas), task, stop=Stop(updates=8)
    ).updates
    return np.diff([rows["time"][rows["version"] == version].max() for version in range(8)])


@pytest.mark.parametrize("wiring", ["cards", "pairs"])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (6, 1, 1), (1, 6, 1), (1, 1, 9), (1, 5, 9)])
@pytest.mark.parametrize("algorithm", FLUSHED)
def test_an_update_waits_for_the_collective_that_ends_last(algorithm, sizes, wiring):
    """(M + S - 1)(f + b) + max_s (C_s - s (f + b)), f + b = 2, C_s = 2 (R - 1) / R of a stage's N
    beta.
    """
    layers = [Layer(f"layer{number}", size, 0.0, 1.0) for number, size in enumerate(sizes)]
    for replicas in (2, 4):
        collective = 2 * (replicas - 1) / replicas * 4.0 * np.array(sizes) / sum(sizes)
        expected = (4 + 3 - 1) * 2.0 + max(collective - 2.0 * np.arange(3))
        np.testing.assert_allclose(
            update_seconds(algorithm, layers, replicas, wiring=wiring), expected, rtol=1e-9
        )


def test_layers_without_parameters_are_summed_as_if_they_weighed_the_same():
    layers = Timing(depth=2).layers()
    np.testing.assert_allclose(update_seconds(GPipe, layers, 2), (4 + 2 - 1) * 3.0 + 2.0, rtol=1e-9)


@pytest.mark.parametrize(("workers", "replicas"), [(6, 4), (2, 5), (4, 100_000)])
def test_replicas_must_have_as_many_stages_each(workers, replicas):
    with pytest.raises(
        InvalidSettingError, match=f"replicas: expected a divisor of workers = {workers}"
    ):
        simulate(
            Cluster(workers),
            GPipe(Rule(), replicas=replicas, collective="mesh"),
            stop=Stop(updates=1),
        )
