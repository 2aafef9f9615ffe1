"""A worker's side of its shards: what it reads, what it pushes to which, and when its work is of no
use any more.
"""

from dataclasses import dataclass

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Cluster, Stop, simulate
from laggard.simulator.algorithms.sharding import Sharded, Shards, split_parameters
from laggard.simulator.timing.distributions import Constant

TASK = Quadratic(curvature=[1.0, 2.0, 3.0, 4.0, 5.0], initial=[0.0, 1.0, 2.0, 3.0, 4.0])


def run(worker, server, shards, task=TASK, mean=10.0):
    """Simulate roles given as plain generator functions of a node."""

    @dataclass(frozen=True)
    class Made(Sharded):
        def worker(self, node):
            yield from worker(node, Shards(node, shards))

        def server(self, node):
            yield from server(node)

    return simulate(Cluster(3, Constant(mean)), Made(shards=shards), task, stop=Stop(time=100.0))


def answers_once(node):
    while True:
        worker, _ = yield node.receive()
        node.send(worker, node.weights)


@pytest.mark.parametrize("S", [1, 2, 3])
def test_worker_reads_model_and_pushes_slices(S):
    read, arrived = [], {}

    def worker(node, servers):
        servers.announce()
        weights = yield from servers.read()
        read.append(weights)
        gradient = yield node.compute(weights)
        if node.rank == 0:
            servers.push([gradient, gradient * 2.0, weights + 1.0, ("text", 7)])

    def server(node):
        while True:
            rank, content = yield node.receive()
            if content is None:
                node.send(rank, node.weights, size=1 / S)
            else:
                arrived[node.rank] = content

    run(worker, server, S)
    (start,) = TASK.start([0])
    assert all(torch.equal(weights[0], start) for weights in read)
    assert set(arrived) == set(split_parameters(5, S))
    for shard, part in split_parameters(5, S).items():
        gradient, doubled, moved, (word, number) = arrived[shard]
        expected = (TASK._curvature * start)[part]
        assert torch.equal(gradient.value[0], expected)
        assert torch.equal(doubled.value[0], 2 * expected)
        assert torch.equal(moved[0], start[part] + 1)
        assert (word, number) == ("text", 7)


@pytest.mark.parametrize(
    ("moments", "overtaken_at"),
    [
        ((1.0, 5.0), 5.0),
        ((5.0, 1.0), 5.0),
        ((3.0, 3.0), 3.0),
        ((1.0, None), None),
        ((1.0, 10.5), None),
    ],
)
def test_work_goes_on_until_all_shards_moved(moments, overtaken_at):
    """Work of 10 s continues although the other shard has moved."""
    ends = []

    def worker(node, servers):
        servers.announce()
        weights = yield from servers.read()
        work = node.compute(weights)
        overtaken = yield from servers.wait_until_overtaken(work)
        ends.append((overtaken, node._env.now))

    def server(node):
        for _ in range(3):
            worker, _ = yield node.receive()
            node.send(worker, node.weights)
            node.send(worker, node.weights)  # twice the same is no news
        moment = moments[-1 - node.rank]
        yield node.work(1000.0 if moment is None else moment)
        node.weights = node.weights + 1.0
        for worker in range(3):
            node.send(worker, node.weights)
        yield node.receive(tag="never")

    run(worker, server, 2)
    assert ends == [(overtaken_at is not None, overtaken_at or 10.0)] * 3


def test_models_of_shards_join_to_model():
    def worker(node, servers):
        servers.announce()
        yield from servers.read()

    def server(node):
        node.weights = node.weights * 0.0 + node.rank
        yield from answers_once(node)

    outcome = run(worker, server, 2)
    assert outcome.weights.tolist() == [[-1.0, -1.0, -2.0, -2.0, -2.0]]
