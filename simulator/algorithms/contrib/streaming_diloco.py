"""Streaming DiLoCo: one fragment of the model is averaged at a time, while local steps go on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.algorithms.local_steps import OuterOptimizer
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import (
    InvalidSettingError,
    NonNegativeInt,
    PositiveInt,
    Range,
)
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import known
from laggard.simulator.learning.weights import with_columns

DUE, MERGED = "due", "merged"
"""Tags inside a node: a fragment that is to be averaged, and one that has been."""


@dataclass(frozen=True)
class StreamingDiLoCo(OuterOptimizer, Compressing, Reducing):
    """Streaming DiLoCo: every H / F steps one of F fragments is averaged, while nodes compute on.

        d = X^p - (1/P) sum_i x_i^p;    b <- momentum b + d;
        X^p <- X^p - outer_lr (d + momentum b);
        x_i^p <- keep x_i^p + (1 - keep) X^p

    x_i is the model of node i, X the global model, b the outer momentum, and p the fragment. After
    every H / F local steps the nodes average the next fragment by a collective, and make DiLoCo's
    outer step on it, Nesterov's here. `overlap` local steps later each node merges it (the last
    line). If the collective has not ended, the node waits.

    With one fragment, no overlap and keep 0 it is `diloco_all_reduce` with equal weights.

    An update is the average of one fragment, and applies the gradients since the average before it.
    In H steps a node sends as much as for one average of the whole model of N bytes, N / F bytes at
    a time. Let equal nodes need t_c seconds for a mini-batch and T_f for the collective of a
    fragment. Then H steps take H t_c + F max(0, T_f - overlap t_c) seconds, as long as each
    fragment is merged before the next one is due.

    The fragments are equal parts of the parameters, side by side. With `compress` a node sends
    C(x_i^p - X^p), with a memory for each fragment, and codes it while it computes on.

    Source: Douillard et al. (2025), arXiv 2501.18512, algorithm 2.

    Attributes:
        local_steps: H, mini-batches from one average of a fragment to the next; a multiple of F.
        fragments: F, parts into which the model is cut.
        overlap: mini-batches of a node between the sum of a fragment and its merge.
        keep: the share of its own fragment that a node keeps.
        outer_lr, outer_momentum: the learning rate and the momentum of the outer optimiser.
        outer_optimizer: Nesterov, or SGD with heavy-ball momentum.
    """

    local_steps: PositiveInt = field(default=32, kw_only=True)
    fragments: PositiveInt = field(default=4, kw_only=True)
    overlap: NonNegativeInt = field(default=0, kw_only=True)
    keep: Annotated[float, Range(least=0, below=1)] = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps % self.fragments:
            expected = f"a multiple of fragments = {self.fragments}"
            raise InvalidSettingError("StreamingDiLoCo", "local_steps", expected, self.local_steps)
        if self.overlap > self.period:
            expected = f"at most local_steps / fragments = {self.period}: one fragment at a time"
            raise InvalidSettingError("StreamingDiLoCo", "overlap", expected, self.overlap)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.on_crash != "stall":
            expected = "stall: fragments of different ages cannot restart together"
            raise InvalidSettingError("StreamingDiLoCo", "on_crash", expected, self.on_crash)
        if self.keep and self.compress is not None and self.compress.feedback == "ef":
            expected = "0 with compress by ef: the memory would contain again what a node keeps"
            raise InvalidSettingError("StreamingDiLoCo", "keep", expected, self.keep)

    @property
    def period(self) -> int:
        """The mini-batches from one fragment to the next."""
        return self.local_steps // self.fragments

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        return {rank: [self.worker, self.exchange] for rank in range(workers)}

    def updates_in_parts(self, workers: int) -> bool:
        return False  # the rule is the nodes' own, who have whole models

    def columns(self, node: Node, fragment: int) -> slice:
        """The parameters of a fragment."""
        params = node.weights.shape[1]
        return slice(params * fragment // self.fragments, params * (fragment + 1) // self.fragments)

    def worker(self, node: Node) -> Role:
        """Make local steps, hand over a fragment when it is due, and merge it later."""
        state = self.rule.init(node.weights, replicas=node.workers)
        model = read = node.weights
        gradients = list[GradientPromise]()
        for step in count(1):
            gradient = yield node.compute(model, read)
            model, state = self.rule.update(model, [gradient], state)
            gradient.release()
            gradients.append(gradient)
            turn, since = divmod(step, self.period)
            if since == 0:
                node.put((turn - 1, model, gradients), tag=DUE)
                gradients = []
            first_merge = self.period + self.overlap
            if step >= first_merge and (step - first_merge) % self.period == 0:
                _, (fragment, average) = yield node.receive(tag=MERGED)
                own = model[:, self.columns(node, fragment)]
                merged = self.keep * own + (1 - self.keep) * average
                model = with_columns(model, self.columns(node, fragment), merged)
                read = node.weights

    def exchange(self, node: Node) -> Role:
        """Average fragments in turn, and make the outer steps."""
        whole = self.collective_of(node.group_size)
        parts = [node.weights[:, self.columns(node, number)] for number in range(self.fragments)]
        states = [self.outer().init(part) for part in parts]
        encoders = self.encoders(node, [part.shape[1] for part in parts])
        while True:
            _, (turn, model, gradients) = yield node.receive(tag=DUE)
            fragment = turn % self.fragments
            columns = self.columns(node, fragment)
            encoder = encoders[fragment]
            collective = whole.of_bucket(columns, encoder.size / self.fragments)
            anchor, own = node.weights[:, columns], model[:, columns]
            if self.compress is not None:
                yield node.after(encoder.seconds)  # the node computes meanwhile
                own = anchor + encoder.encode_change(own - anchor, gradients[-1])
            share = known(own / len(node.members))
            total = yield from collective.reduce(node, share, model.shape[1], turn)
            new, states[fragment] = self.next_weights(anchor, total.value, states[fragment])
            node.apply(with_columns(node.weights, columns, new), gradients)
            node.put((fragment, new), tag=MERGED)
