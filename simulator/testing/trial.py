"""An algorithm, and what it is tried on."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, cast

import torch

from simulator.algorithm import Algorithm
from simulator.bounds import Invalid
from simulator.cluster import Cluster
from simulator.laws import Gamma
from simulator.milestones import Stop
from simulator.network import Network
from simulator.node import Node
from simulator.outcome import Outcome
from simulator.rules import SGD, Rule
from simulator.simulation import simulate
from simulator.task import Task, layers_of
from simulator.testing.bowl import Bowl
from simulator.testing.watching import watched

RULE = Rule(SGD(momentum=0.5), lr=0.02)
PATIENCE = 100
"""Gradients that a worker may compute, per update that it is waited for, before it is said that nothing gets on."""


@dataclass(frozen=True)
class Trial:
    """An algorithm, and what it is tried on.

    Attributes:
        make: the algorithm that learns by a given rule.
        rule: by which it learns, where a check does not say otherwise.
        updates: after which a run ends.
    """

    make: Callable[[Rule], Algorithm]
    rule: Rule
    cluster: Cluster
    task: Task
    updates: int
    seed: int

    def run(self, rule: Rule | None = None, see: Callable[[Node], None] | None = None, **given: Any) -> Outcome:
        """One run; `see` is shown every node before its roles start."""
        algorithm = self.make(self.rule if rule is None else rule)
        if see is not None:
            algorithm = watched(algorithm, see)
        stop = Stop(updates=self.updates, gradients=PATIENCE * self.cluster.workers * self.updates)
        return simulate(self.cluster, algorithm, self.task, stop=stop, **{"seed": self.seed, **given})

    @property
    def slices(self) -> int:
        """Into how many slices the algorithm cuts the model, on a node each: a gradient may have a row each."""
        params = self.task.start([self.seed]).shape[1]
        return max(1, len(self.make(self.rule).slices(self.cluster.workers, params, layers_of(self.task))))

    def with_rates(self, *rates: float) -> Rule:
        """The rule with its learning rate times each of `rates`, a member each."""
        lr = self.rule.lr if isinstance(self.rule.lr, float) else cast(float, RULE.lr)
        return replace(self.rule, lr=torch.tensor([[lr * rate] for rate in rates], dtype=torch.float64))


def trial_of(
    algorithm: Algorithm | Callable[[Rule], Algorithm],
    *,
    cluster: Cluster | None = None,
    task: Task | None = None,
    updates: int = 60,
    seed: int = 0,
) -> Trial:
    """What `check_algorithm` checks, for single identities; its arguments are the same."""
    rule, make = RULE, algorithm
    if isinstance(algorithm, Algorithm):
        learns = is_dataclass(algorithm) and "rule" in {field.name for field in fields(algorithm)}
        rule = algorithm.rule if learns else RULE  # type: ignore[attr-defined]
        make = partial(_with_rule, algorithm) if learns else lambda _: algorithm
    factory = cast(Callable[[Rule], Algorithm], make)
    return Trial(factory, rule, cluster or _cluster(factory(rule)), task or Bowl(), updates, seed)


def _with_rule(algorithm: Algorithm, rule: Rule) -> Algorithm:
    return replace(algorithm, rule=rule)  # type: ignore[type-var]


def _cluster(algorithm: Algorithm) -> Cluster:
    """Uneven workers on a slow network: as many as the algorithm agrees to."""
    refusals = []
    for workers in (4, 1, 2, 3, 6, 8):
        network = Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
        cluster = Cluster(workers, compute=Gamma(1.0, 0.6), network=network, apply_seconds=0.01)
        try:
            algorithm.check(cluster)
        except Invalid as refusal:
            refusals.append(refusal)
        else:
            return cluster
    raise refusals[0]
