"""Models step by step, messages, and random graphs for the tests of gossip."""

import itertools
from dataclasses import dataclass

import networkx as nx
import torch
from hypothesis import strategies as st

from laggard.models import Quadratic
from laggard.simulator import simulate
from laggard.simulator.network.topology import Peers
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Uniform


class Observed:
    """A simulation that has run, with the messages and gradients in it.

    Attributes:
        nodes: by rank.
        models: for each rank, its model after each of its updates.
        sent: all messages, in order.
        applied: all gradients that were applied, in order.
    """

    def __init__(self, cluster, algorithm, task, stop):
        self.nodes, self.models, self.sent, self.applied = {}, {}, [], []
        self.outcome = simulate(cluster, algorithm, task, stop=stop, observe=self._begin)

    def _begin(self, simulation):
        for node in simulation.nodes.values():
            self.nodes[node.rank], self.models[node.rank] = node, []
            self._listen(node)

    def _listen(self, node):
        send, apply = node.send, node.apply

        def sends(*args, **more):
            self.sent.append(send(*args, **more))
            return self.sent[-1]

        def applies(weights, gradients, state=None):
            version = node.version
            apply(weights, gradients, state)
            if node.version > version:
                self.models[node.rank].append(node.weights)
                self.applied.extend(gradients)

        node.send, node.apply = sends, applies


@dataclass(frozen=True)
class Drawn(Peers):
    """The edges of a networkx graph, whose nodes are ranks."""

    graph: nx.Graph

    def ranks(self, rank, step, workers):
        return list(self.graph.neighbors(rank))

    def share(self, sender, receiver, workers):
        return self.graph.edges[sender, receiver]["weight"]


@st.composite
def graphs(draw, directed=False, most=7, extra=8):
    """A random tree (directed: a cycle) with up to `extra` random edges on top, and its workers, up
    to `most`.
    """
    workers = draw(st.integers(2, most))
    ranks = range(workers)
    if directed:
        edges = [(rank, (rank + 1) % workers) for rank in ranks]
    else:
        edges = [(rank, draw(st.integers(0, rank - 1))) for rank in ranks[1:]]
    pairs = st.sampled_from(list(itertools.permutations(ranks, 2)))
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(ranks)
    graph.add_edges_from(edges + draw(st.lists(pairs, max_size=extra)))
    return Drawn(graph), workers


LAWS = st.sampled_from([Constant(1.0), Exponential(1.0), Gamma(1.0, 0.3), Uniform(0.5, 1.5)])


def noisy(dim=3):
    """A quadratic on which nodes that start together lie apart after a step."""
    return Quadratic(curvature=1.0, dim=dim, condition=10.0, noise=1.0, dtype=torch.float64)
