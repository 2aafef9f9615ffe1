"""Collectives: everybody's sum, the messages that carry it, and the seconds that it takes."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import Algorithm, Cluster, Network, Node, Stop, simulate
from laggard.simulator.algorithms.collectives import COLLECTIVES, Collective, in_slices, on_servers
from laggard.simulator.algorithms.collectives.trees import (
    distances,
    extras,
    place_of,
    rank_at,
    relatives,
)
from laggard.simulator.network.topology import Complete, Topology
from laggard.simulator.timing.distributions import Constant, Exponential

every = pytest.mark.parametrize("name", COLLECTIVES)
WORKERS = [1, 2, 3, 5, 8, 12]
N, BETA, ALPHA = 12.0, 0.1, 0.25


@dataclass(frozen=True)
class Rounds(Algorithm):
    """Nodes that compute, add up what they have, and go on; nobody changes the model, nor asks for
    a value.
    """

    topology: ClassVar[Topology] = Complete()

    name: str | Collective
    sums: dict = field(default_factory=dict)
    ends: dict = field(default_factory=dict)
    sent: list = field(default_factory=list)
    carried: list = field(default_factory=list)

    def worker(self, node):
        send = node.send

        def noted(receiver, content, tag=None, size=1.0):
            self.sent.append((node.rank, receiver, size))
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


class Counted(Quadratic):
    """A quadratic that counts the gradients of each call, in which there are none but those asked
    for.
    """

    lanes = 1

    def gradients(self, weights, batches):
        self.calls = [*getattr(self, "calls", []), len(batches)]
        return super().gradients(weights, batches)


def seconds(name, P, *, alpha=ALPHA, sharing="fair", n=N, beta=BETA, **more):
    """How long each node is busy with a collective that all begin together."""
    bandwidth = 1 / beta if beta else math.inf
    network = Network(bandwidth=bandwidth, latency=alpha, sharing=sharing, message_bytes=n, **more)
    rounds = Rounds(name)
    simulate(
        Cluster(workers=P, compute=Constant(1.0), network=network), rounds, stop=Stop(updates=1)
    )
    return [rounds.ends[rank][0] for rank in range(P)]


def fits(name, P):
    """Whether the closed form is meant for so many nodes."""
    return "doubling" not in name or extras(P) == 0


FORMS = {
    "ring": lambda P, a, nb: 2 * (P - 1) * a + 2 * (P - 1) / P * nb,
    "naive_ring": lambda P, a, nb: (P - 1) * (a + nb),
    "mesh": lambda P, a, nb: a * (P > 1) + (P - 1) * nb,
    "recursive_doubling": lambda P, a, nb: math.log2(P) * (a + nb),
    "halving_doubling": lambda P, a, nb: 2 * math.log2(P) * a + 2 * (P - 1) / P * nb,
    "tree": lambda P, a, nb: 2 * math.ceil(math.log2(P)) * (a + nb),
    "server": lambda P, a, nb: 2 * a * (P > 1) + 2 * (P - 1) * nb,
}


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize(
    ("name", "P"), [(name, P) for name in COLLECTIVES for P in WORKERS if fits(name, P)]
)
def test_a_collective_takes_its_closed_form(name, sharing, P):
    for alpha, beta in [(ALPHA, BETA), (0.0, BETA), (ALPHA, 0.0)]:
        took = seconds(name, P, alpha=alpha, beta=beta, sharing=sharing)
        assert max(took) == pytest.approx(FORMS[name](P, alpha, N * beta), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("name", ["recursive_doubling", "halving_doubling"])
@pytest.mark.parametrize("P", [3, 6, 7, 17])
def test_nodes_without_a_place_on_the_cube_cost_two_steps_more(name, sharing, P):
    """Exactly so in latency; the bytes count up to twice, as early messages share the cards of late
    nodes.
    """
    two = 2 ** math.floor(math.log2(P))
    latency, bytes_ = (
        FORMS[name](two, ALPHA, 0.0) + 2 * ALPHA,
        FORMS[name](two, 0.0, N * BETA) + 2 * N * BETA,
    )
    assert max(seconds(name, P, beta=0.0, sharing=sharing)) == pytest.approx(latency, rel=1e-9)
    took = max(seconds(name, P, sharing=sharing))
    assert latency + bytes_ - 1e-9 <= took <= latency + 2 * bytes_


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("P", [2, 5, 8])
def test_the_mesh_on_private_links_takes_one_message(sharing, P):
    assert max(seconds("mesh", P, sharing=sharing, wiring="pairs")) == pytest.approx(
        ALPHA + N * BETA, rel=1e-9
    )


@pytest.mark.parametrize(("P", "servers"), [(2, 2), (5, 2), (5, 4), (8, 3), (8, 8), (12, 5)])
def test_servers_among_the_nodes_take_their_closed_form(P, servers):
    for alpha, beta in [(ALPHA, BETA), (0.0, BETA), (ALPHA, 0.0)]:
        took = max(seconds(on_servers(servers), P, alpha=alpha, beta=beta))
        assert took == pytest.approx(2 * alpha + 2 * (P - 1) / servers * N * beta, rel=1e-9)


def seconds_in_slices(P, slices, alpha, nb):
    """When the last slice of the last step has come; e(j, i) is when slice i of step j has left."""
    tau, left, free = nb / P / slices, [-alpha] * slices, 0.0
    for _ in range(2 * (P - 1)):
        for piece in range(slices):
            free = left[piece] = max(free, left[piece] + alpha) + tau
    return left[-1] + alpha


@pytest.mark.parametrize("P", [2, 5, 8])
@pytest.mark.parametrize("slices", [1, 2, 8])
@pytest.mark.parametrize("alpha", [0.0, 0.01, ALPHA, 4.0])
def test_a_ring_in_slices_hides_its_latency_in_a_queue_and_hides_nothing_under_fair_sharing(
    P, slices, alpha
):
    tau, whole = N * BETA / P / slices, FORMS["ring"](P, alpha, N * BETA)
    hidden = (slices - 1) * tau >= alpha
    form = (
        FORMS["ring"](P, 0.0, N * BETA) + alpha
        if hidden
        else 2 * (P - 1) * (alpha + tau) + (slices - 1) * tau
    )
    assert form == pytest.approx(seconds_in_slices(P, slices, alpha, N * BETA), rel=1e-9)
    assert max(seconds(in_slices(slices), P, alpha=alpha, sharing="fifo")) == pytest.approx(
        form, rel=1e-9
    )
    assert max(seconds(in_slices(slices), P, alpha=alpha)) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("slices", [2, 3])
@pytest.mark.parametrize("P", [1, 2, 5, 8])
def test_a_ring_in_slices_gives_the_sum_of_the_ring_to_the_bit(P, slices):
    for params in (7, 64):
        given = Quadratic(dim=params, noise=1.0, condition=30.0), Stop(updates=3)
        cluster = Cluster(
            P, Exponential(1.0), network=Network(bandwidth=100.0, latency=0.1, sharing="fifo")
        )
        sliced, whole = Rounds(in_slices(slices)), Rounds("ring")
        for rounds in (sliced, whole):
            simulate(cluster, rounds, given[0], stop=given[1], ensemble=2)
        for version in range(3):
            for rank in range(P):
                one, other = sliced.sums[version][rank][1].value, whole.sums[version][rank][1].value
                assert torch.equal(one, other)
                assert torch.equal(one, sliced.sums[version][0][1].value)


@pytest.mark.parametrize("P", [4, 8])
@pytest.mark.parametrize("beyond", [0.9, 1.1])
def test_the_ring_of_chunks_beats_the_ring_of_gradients_iff_bytes_outweigh_latency(P, beyond):
    """LeNet-5 in single precision: quicker iff N beta (1 - 2 / P) > alpha."""
    n, beta = 246_824, 8e-9
    alpha = n * beta * (1 - 2 / P) * beyond
    ring, naive = (
        max(seconds(name, P, alpha=alpha, n=n, beta=beta)) for name in ("ring", "naive_ring")
    )
    assert (ring < naive) == (beyond < 1)


@every
@pytest.mark.parametrize("P", [4, 6, 8])
def test_a_message_is_charged_for_the_parameters_that_it_carries(name, P):
    """To one parameter for each of the P chunks at most: a model of 61 is not divisible by any of
    these P.
    """
    params, rounds = 61, Rounds(name)
    simulate(Cluster(P), rounds, Quadratic(dim=params), stop=Stop(gradients=2 * P))
    assert rounds.carried
    for size, content in rounds.carried:
        pieces = content if isinstance(content, list) else [content]
        carried = sum(piece.value.shape[1] for piece in pieces)
        assert abs(carried - size * params) <= max(1, size * P)


@every
@pytest.mark.parametrize("P", WORKERS)
def test_everybody_has_everybodys_sum_to_the_bit(name, P):
    """Also where nodes take their time, where P does not divide the parameters, and where these are
    fewer than P.
    """
    for params in (7, 64):
        task = Quadratic(dim=params, noise=1.0, condition=30.0)
        network = Network(bandwidth=100.0, latency=0.1)
        rounds = Rounds(name)
        simulate(
            Cluster(P, Exponential(1.0), network=network),
            rounds,
            task,
            stop=Stop(updates=5),
            ensemble=2,
        )
        for sums in list(rounds.sums.values())[:5]:
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
def test_some_of_the_nodes_sum_among_themselves(name):
    """Also where the rounds of all nodes are computed in lock step."""
    rounds = EveryOther(name)
    simulate(Cluster(6), rounds, Quadratic(dim=12, noise=1.0), stop=Stop(updates=2))
    for first in (0, 1):
        exact = sum(rounds.sums[0][rank][0].value.double() for rank in range(first, 6, 2))
        for rank in range(first, 6, 2):
            torch.testing.assert_close(
                rounds.sums[0][rank][1].value.double(), exact, rtol=1e-5, atol=1e-5
            )


@every
def test_no_collective_asks_for_a_value_and_the_first_who_does_has_all_evaluated_together(name):
    task, rounds, P = Counted(dim=9, noise=1.0), Rounds(name), 6
    simulate(Cluster(workers=P), rounds, task, stop=Stop(updates=1))
    assert not hasattr(task, "calls")
    for _, total in rounds.sums[0].values():
        assert total.value is not None
    assert task.calls == [P]


@every
def test_sums_are_shared_by_the_nodes_that_pass_them_on(name):
    """As many additions as the collective is said to make: what a message brings is not made
    again.
    """
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
    said = {
        "naive_ring": everywhere,
        "mesh": everywhere,
        "recursive_doubling": P * int(math.log2(P)) * params,
    }
    assert counted["numbers"] == said.get(name, once)


@every
@pytest.mark.parametrize("P", WORKERS)
def test_partners_are_those_to_whom_a_node_sends_and_bytes_are_those_of_the_closed_form(name, P):
    rounds = Rounds(name)
    outcome = simulate(Cluster(workers=P, compute=Exponential(1.0)), rounds, stop=Stop(updates=3))
    said = {(rank, peer) for rank in range(P) for peer in COLLECTIVES[name].partners(rank, P)}
    assert {(sender, receiver) for sender, receiver, _ in rounds.sent} == said
    sent, *ends = outcome.messages.values()
    assert sum(ends) == sent == len(rounds.sent)
    twice, all_to_all = dict.fromkeys(("tree", "ring", "server"), 2 * (P - 1)), P * (P - 1)
    whole = {"naive_ring": all_to_all, "mesh": all_to_all, **twice}
    two = P - extras(P)
    cube = {"recursive_doubling": two * math.log2(two), "halving_doubling": 2 * (two - 1)}
    models = whole.get(name, cube.get(name, 0) + 2 * extras(P))
    rounds = Rounds(name)
    simulate(Cluster(workers=P), rounds, stop=Stop(time=1.5))
    assert sum(size for *_, size in rounds.sent) == pytest.approx(models)


@pytest.mark.parametrize("P", [*range(1, 10), 16, 31, 32, 33])
def test_the_cube_has_a_place_for_a_power_of_two_nodes(P):
    places = [place_of(rank, P) for rank in range(P)]
    cube = [place for place in places if place is not None]
    assert sorted(cube) == list(range(2 ** len(distances(P))))
    assert all(place_of(rank_at(place, P), P) == place for place in cube)


@pytest.mark.parametrize("P", [*range(1, 10), 16, 31, 32, 33])
def test_a_tree_has_one_root_and_everybody_is_the_child_of_one(P):
    parents = [relatives(rank, P)[0] for rank in range(P)]
    assert parents[0] is None
    for rank in range(1, P):
        assert parents[rank] < rank
        assert rank in relatives(parents[rank], P)[1]
    assert sum(len(relatives(rank, P)[1]) for rank in range(P)) == P - 1
    if P & (P - 1) == 0:
        assert all(parents[rank] == rank & (rank - 1) for rank in range(1, P)), "the binomial tree"


def test_a_nodes_mailbox_does_not_grow_with_the_rounds():
    nodes = []

    class Seen(Rounds):
        def worker(self, node: Node):
            nodes.append(node)
            return super().worker(node)

    kept = []
    for rounds in (5, 50):
        nodes.clear()
        simulate(Cluster(workers=4), Seen("ring"), stop=Stop(updates=rounds))
        kept.append(sum(len(node.mailbox.mail) + len(node.mailbox._receives) for node in nodes))
    assert kept[0] == kept[1]
