"""Collectives: the sum at all nodes, its messages, and the seconds that it takes."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Algorithm, Cluster, Network, Stop, simulate
from laggard.simulator.algorithms.collectives import COLLECTIVES, Collective, in_slices
from laggard.simulator.network.topology import Complete, Topology
from laggard.simulator.timing.distributions import Constant, Exponential
from tests.cases import quick

every = pytest.mark.parametrize("name", COLLECTIVES)
WORKERS = [1, 2, 3, 5, 8, 12]
N, BETA, ALPHA = 12.0, 0.1, 0.25


@dataclass(frozen=True)
class Rounds(Algorithm):
    """Nodes that compute, add up their gradients, and go on; none changes the model or asks for a
    value.
    """

    topology: ClassVar[Topology] = Complete()

    name: str | Collective
    sums: dict = field(default_factory=dict)
    ends: dict = field(default_factory=dict)
    carried: list = field(default_factory=list)

    def worker(self, node):
        send = node.send

        def noted(receiver, content, tag=None, size=1.0):
            self.carried.append((size, content))
            return send(receiver, content, tag, size)

        node.send = noted
        while True:
            gradient = yield node.compute(node.weights)
            began = node._env.now
            params = node.weights.shape[1]
            collective = COLLECTIVES[self.name] if isinstance(self.name, str) else self.name
            total = yield from collective.reduce(node, gradient, params, node.version)
            self.sums.setdefault(node.version, {})[node.rank] = (gradient, total)
            self.ends.setdefault(node.rank, []).append(node._env.now - began)
            node.apply(node.weights, [])


def seconds(name, P, **more):
    """How long the last node is busy with a collective that all begin together."""
    rounds, network = Rounds(name), Network(latency=ALPHA, message_bytes=N, **more)
    cluster = Cluster(workers=P, compute=Constant(1.0), network=network)
    simulate(cluster, rounds, stop=Stop(updates=1))
    return max(rounds.ends[rank][0] for rank in range(P))


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize(("name", "steps"), [("recursive_doubling", 1), ("halving_doubling", 2)])
@pytest.mark.parametrize("P", [3, 6, 7, 17])
def test_nodes_outside_cube_cost_two_more_steps(name, steps, sharing, P):
    """2^k nodes take log2 of them steps, twice for halving and doubling. In latency that is exact
    where sends have to arrive, else at most one less; the bytes count up to twice, as early
    messages share the cards of late nodes.
    """
    two = 2 ** math.floor(math.log2(P))
    models = math.log2(two) if steps == 1 else 2 * (two - 1) / two
    latency, transfer = (steps * math.log2(two) + 2) * ALPHA, (models + 2) * N * BETA
    free = {"sharing": sharing}
    cards = {"sharing": sharing, "bandwidth": 1 / BETA}
    assert seconds(name, P, **free, rendezvous=True) == pytest.approx(latency, rel=1e-9)
    assert latency - ALPHA <= seconds(name, P, **free) + 1e-9 <= latency + 2e-9
    took = seconds(name, P, **cards, rendezvous=True)
    assert seconds(name, P, **cards) <= took + 1e-9
    assert latency + transfer - 1e-9 <= took <= latency + 2 * transfer


@every
@pytest.mark.parametrize("P", [4, 6, 8])
def test_message_has_bytes_of_its_parameters(name, P):
    """The error is at most one parameter per chunk: no P here divides a model of 61 parameters."""
    params, rounds = 61, Rounds(name)
    simulate(Cluster(P), rounds, Quadratic(dim=params), stop=Stop(gradients=2 * P))
    assert rounds.carried
    for size, content in rounds.carried:
        pieces = content if isinstance(content, list) else [content]
        carried = sum(piece.value.shape[1] for piece in pieces)
        assert abs(carried - size * params) <= max(1, size * P)


@pytest.mark.parametrize(
    "name", [*COLLECTIVES, *(pytest.param(in_slices(n), id=f"ring, {n} slices") for n in (2, 3))]
)
@pytest.mark.parametrize("params", quick([7, 64], only=[7]))
@pytest.mark.parametrize("P", WORKERS)
def test_all_nodes_have_same_sum(name, P, params):
    """The sums are equal to the bit, also if P does not divide the parameters or exceeds their
    number.
    """
    task = Quadratic(dim=params, noise=1.0, condition=30.0)
    network, rounds = Network(bandwidth=100.0, latency=0.1), Rounds(name)
    cluster = Cluster(P, Exponential(1.0), network=network)
    simulate(cluster, rounds, task, stop=Stop(updates=3), ensemble=2)
    for sums in list(rounds.sums.values())[:3]:
        exact = sum(gradient.value.double() for gradient, _ in sums.values())
        for _, total in sums.values():
            assert torch.equal(total.value, sums[0][1].value)
        assert total.value.shape == (2, params)
        torch.testing.assert_close(total.value.double(), exact, rtol=1e-5, atol=1e-6 * P)


@dataclass(frozen=True)
class EveryOther(Algorithm):
    """Nodes of even and of odd rank sum among themselves, and communicate in no other way."""

    topology: ClassVar[Topology] = Complete()
    only_collectives: ClassVar[bool] = True

    name: str
    sums: dict = field(default_factory=dict)

    def worker(self, node):
        while True:
            gradient = yield node.compute(node.weights)
            ranks, params = range(node.rank % 2, node.workers, 2), node.weights.shape[1]
            total = yield from COLLECTIVES[self.name].reduce(
                node, gradient, params, node.version, ranks=ranks
            )
            self.sums.setdefault(node.version, {})[node.rank] = (gradient, total)
            node.apply(node.weights, [])


@every
def test_some_nodes_sum_among_themselves(name):
    """This holds with and without lock-step rounds of all nodes."""
    rounds = EveryOther(name)
    simulate(Cluster(6), rounds, Quadratic(dim=12, noise=1.0), stop=Stop(updates=2))
    for first in (0, 1):
        sums = [rounds.sums[0][rank] for rank in range(first, 6, 2)]
        exact = sum(gradient.value for gradient, _ in sums)
        for _, total in sums:
            torch.testing.assert_close(total.value, exact, rtol=1e-5, atol=1e-5)


@every
def test_nodes_share_sums_that_they_pass_on(name):
    """A sum that a message brings is not computed again."""
    P, params = 8, 64
    rounds, counted = Rounds(name), Counter()
    simulate(Cluster(workers=P), rounds, Quadratic(dim=params), stop=Stop(updates=1))

    class Counting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            result = super().__torch_function__(function, types, args, kwargs or {})
            if function in (torch.Tensor.add, torch.Tensor.__add__):
                counted["numbers"] += result.numel()
            return result

    for gradient, _ in rounds.sums[0].values():
        gradient._value = torch.ones(1, params).as_subclass(Counting)
    assert all((total.value == P).all() for _, total in rounds.sums[0].values())
    once, everywhere = (P - 1) * params, P * (P - 1) * params
    expected = {
        "naive_ring": everywhere,
        "mesh": everywhere,
        "recursive_doubling": P * int(math.log2(P)) * params,
    }
    assert counted["numbers"] == expected.get(name, once)
