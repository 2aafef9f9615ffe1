"""Clusters on a graph, whose nodes start apart from each other."""

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from laggard.simulator import Cluster, Network, Node
from laggard.simulator.network.topology import Exponential, Topology
from laggard.simulator.timing.distributions import Constant
from tests.theory.trials import batches_of, slope

ASSRAN, LIAN, AD = "Assran et al. (2019)", "Lian et al. (2017)", "Lian et al. (2018)"
WANG, KOLOSKOVA = "Wang et al. (2019)", "Koloskova et al. (2019)"
ONE_PEER = Exponential(peers=1)
ORDERS = ("combine_then_adapt", "adapt_then_combine")
STARTS = torch.linspace(-1.0, 1.0, 16, dtype=torch.float64)[:, None].exp().expand(16, 5)


def on(graph: Topology, workers: int, compute: Any = None, **network: Any) -> Cluster:
    """Workers on a graph."""
    return Cluster(workers, compute or Constant(1.0), network=Network(topology=graph, **network))


def start_apart(node: Node) -> None:
    """Let each node start elsewhere."""
    node.weights = STARTS[node.rank][None]


def mean_of_starts(workers: int) -> list[Tensor]:
    """The mean of the nodes' starts, for each node."""
    return [STARTS[:workers].mean(0, keepdim=True)] * workers


def sum_by_gradients(nodes: dict[int, Node], lr: float) -> Tensor:
    """What the models of all nodes add up to if only their own steps down the slope have changed
    them.
    """
    batches = [
        batch
        for rank, node in nodes.items()
        for batch in islice(batches_of(slope(), rank), node.version)
    ]
    return STARTS[: len(nodes)].sum(0, keepdim=True) - lr * sum(
        batches, torch.zeros(5, dtype=torch.float64)
    )
