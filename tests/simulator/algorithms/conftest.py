"""What tests of algorithms look at from the inside: models step by step, messages under way, a
role's own variables.
"""

from dataclasses import dataclass

import networkx as nx
import pytest
import torch
from hypothesis import strategies as st

from laggard.models import Quadratic
from laggard.simulator import Evaluate
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.network.topology import Peers
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Uniform
from laggard.simulator.timing.streams import Seeds


class Observed:
    """A simulation that has run, and what was said and applied in it.

    Attributes:
        models: for each rank, its model after each of its updates.
        sent: all messages, in order.
        applied: all gradients that were applied, in order.
    """

    def __init__(self, cluster, algorithm, task, stop, seed=0, evaluate=None):
        self.simulation = Simulation(
            cluster, algorithm, task, stop, evaluate or Evaluate(), Seeds(seed, [seed])
        )
        self.nodes = self.simulation.nodes
        self.models = {rank: [] for rank in self.nodes}
        self.sent, self.applied, self._receives = [], [], []
        for node in self.nodes.values():
            self._listen(node)
        self.outcome = self.simulation.run()

    def _listen(self, node):
        send, receive, apply = node.send, node.receive, node.apply

        def sends(*args, **given):
            self.sent.append(send(*args, **given))
            return self.sent[-1]

        def receives(*args, **given):
            self._receives.append(receive(*args, **given))
            return self._receives[-1]

        def applies(weights, gradients):
            version = node.version
            apply(weights, gradients)
            if node.version > version:
                self.models[node.rank].append(node.weights)
                self.applied.extend(gradients)

        node.send, node.receive, node.apply = sends, receives, applies

    def untaken(self):
        """The messages that no role has taken: under way, or in a mailbox."""
        taken = {id(receive.message) for receive in self._receives if receive.fired}
        return [message for message in self.sent if id(message) not in taken]

    def local(self, rank, name):
        """A variable of the first role of a node, as it is at the end."""
        return self.simulation.faults.roles[rank]._processes[0]._generator.gi_frame.f_locals[name]

    def total(self, name="weights"):
        """The sum of an attribute over the nodes."""
        return sum(getattr(node, name) for node in self.nodes.values())


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
    """A random tree (directed: a cycle) with up to `extra` random edges on top, and its workers, at
    `most` so many.
    """
    workers = draw(st.integers(2, most))
    graph = (nx.DiGraph if directed else nx.Graph)()
    graph.add_nodes_from(range(workers))
    if directed:
        graph.add_edges_from((rank, (rank + 1) % workers) for rank in range(workers))
    else:
        graph.add_edges_from((rank, draw(st.integers(0, rank - 1))) for rank in range(1, workers))
    pairs = st.tuples(st.integers(0, workers - 1), st.integers(0, workers - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )
    graph.add_edges_from(draw(st.lists(pairs, max_size=extra)))
    return Drawn(graph), workers


LAWS = st.sampled_from([Constant(1.0), Exponential(1.0), Gamma(1.0, 0.3), Uniform(0.5, 1.5)])


class Gossip:
    """What tests of gossip share; a class, since tests import no other tests."""

    observe, graphs, laws, drawn = Observed, staticmethod(graphs), LAWS, Drawn

    @staticmethod
    def task(dim=3):
        """Gradients of one's own: nodes that start together lie apart after a step."""
        return Quadratic(curvature=1.0, dim=dim, condition=10.0, noise=1.0, dtype=torch.float64)

    @staticmethod
    def once(progress):
        """A schedule: all of the learning rate at the first step, nothing afterwards."""
        return 1.0 if progress.updates == 0 else 0.0


@pytest.fixture(scope="session")
def gossip():
    return Gossip
