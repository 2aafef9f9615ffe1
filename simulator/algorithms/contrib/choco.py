"""CHOCO-SGD: gossip that sends compressed differences between models and copies of them."""

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Literal

import numpy as np

from laggard.simulator.algorithms.averaging import Averaging, combine, neighbours_on, tell
from laggard.simulator.algorithms.base import Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import NonNegativeInt
from laggard.simulator.learning.compression import (
    PositiveShare,
    count_kept,
    keep_indices,
    size_of_kept,
    top_k,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CHOCO(Averaging):
    """CHOCO-SGD: nodes send compressed differences between their models and the others' copies.

        x_i <- x_i - lr g_i(x_i);    q_i = C(x_i - z_i);    z_i <- z_i + q_i;
        x_i <- x_i + gamma sum_j W_ij (z_j - z_i)

    where z_i, 0 at the start, is the copy of x_i that node i and its neighbours have. A node keeps
    z_i and sum_j W_ij z_j, so W must stay the same. C keeps k of d numbers, k = `keep` d rounded
    up, over the whole model. The sum of all models changes by gradients only. With all numbers
    kept and gamma = 1 it is `dpsgd` with adapt_then_combine. Its fixed points are those of that
    `dpsgd` with (1 - gamma) I + gamma W in place of W. Staleness 0.

    A message is 2 k / d models for top_k, whose indices have 32 bits, and k / d for random_k, whose
    indices all nodes draw alike; 1 at most, the size of the whole difference. On a ring of more
    than two nodes a step takes t_c + alpha + 2 s N beta, for messages of s models of N bytes,
    latency alpha, beta seconds a byte, one card per node with either `sharing`, and gradients of
    t_c seconds; compression takes no time.

    Source: Koloskova, Stich & Jaggi (2019), arXiv 1902.00340, algorithm 2, in its form with
    three vectors a node.

    Attributes:
        compressor: C; top_k keeps the greatest numbers, random_k keeps numbers at random indices.
        keep: k / d.
        consensus: gamma. The fewer numbers are kept, the smaller it must be.
        coin: the seed of random_k's indices, independent of all other seeds.
    """

    compressor: Literal["top_k", "random_k"] = "top_k"
    keep: PositiveShare = 0.1
    consensus: PositiveShare = 0.2
    coin: NonNegativeInt = 0

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        neighbours_on(self.graph(cluster), cluster.workers)  # refuses a graph that changes

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights, replicas=node.workers)
        public = average = 0 * node.weights
        size = self.size(node.weights.shape[1])
        # Each node has a stream of its own from the same seed: they agree without a message.
        coin = np.random.default_rng(self.coin)
        for step in count():
            gradient = yield node.compute(node.weights)
            weights, state = self.rule.update(node.weights, [gradient], state)
            node.apply(weights, [gradient])
            mixing = node.mixing(self.mixing, step)
            sent = self.compress(weights - public, coin)
            tell(node, step, mixing, sent, size=size)
            (received,) = yield from combine(node, step, mixing, sent)
            public, average = public + sent, average + received
            node.weights = weights + self.consensus * (average - public)

    def compress(self, values: "Tensor", coin: np.random.Generator) -> "Tensor":
        """C(values) `(ensemble, params)`."""
        params = values.shape[1]
        kept = count_kept(self.keep, params)
        if kept >= params:
            return values
        if self.compressor == "top_k":
            return top_k(values, kept)
        return keep_indices(values, coin.choice(params, kept, replace=False).tolist())

    def size(self, params: int) -> float:
        """The size of a message in models; by `keep` where nothing is learnt."""
        return size_of_kept(self.keep, params, has_indices=self.compressor == "top_k")
