"""Clusters on a graph, whose nodes start apart from each other, and push-sum as a loop."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from laggard.models import Quadratic
from laggard.simulator import Cluster, Network, Node
from laggard.simulator.network.topology import Exponential, Topology
from laggard.simulator.timing.distributions import Constant
from tests.theory.trials import batches_of, first_weights, gradient_of, slope

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


def push_sum(
    task: Quadratic,
    W: Sequence[Any],
    steps: int,
    *,
    lr: float,
    late: int,
    H: int = 1,
    biased: bool = False,
) -> tuple[list[Tensor], Tensor]:
    """x <- diag(W) (x - lr G(x / w)) + (W - diag W) x', x' as it was `late` steps ago, and so w;
    pushes every H steps, by the matrices `W` in turn.

    Returns:
        All models x / w, or x if `biased`, after each node's step, before the exchange; and at the
        end.
    """
    P = len(W[0])
    x, w = torch.cat([first_weights(task)] * P), torch.ones(P, 1, dtype=torch.float64)
    streams, sent = [batches_of(task, rank) for rank in range(P)], {}
    stepped = []
    for step in range(1, steps + 1):
        read = x if biased else x / w
        gradients = [gradient_of(task, read[i][None], next(own)) for i, own in enumerate(streams)]
        x = x - lr * torch.cat(gradients)
        stepped.append(x if biased else x / w)
        if late and step - late in sent:
            dx, dw = sent[step - late]
            x, w = x + dx, w + dw
        if step % H == 0:
            share = torch.as_tensor(W[(step // H - 1) % len(W)])
            kept = torch.diag(torch.diag(share))
            sent[step] = (share - kept) @ x, (share - kept) @ w
            x, w = kept @ x, kept @ w
            if not late:
                x, w = x + sent[step][0], w + sent[step][1]
    return stepped, x / w


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
