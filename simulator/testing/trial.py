"""Trials of an algorithm: cluster, task, and nodes that record the tensors that they pass on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine import simulate
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.machine import Machine
from laggard.simulator.engine.simulation import Simulation
from laggard.simulator.engine.stopping import Stop
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.learning.rules import SGD, Rule
from laggard.simulator.learning.task import EqualLayer, Task, layers_of
from laggard.simulator.network.config import Network
from laggard.simulator.recording.outcome import Outcome
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.events import Message, Work


class Handed(NamedTuple):
    """A tensor that a node passed on, with torch's count of its changes in place and a copy."""

    what: str
    tensor: Tensor
    changes: int
    copy: Tensor

    def unchanged(self) -> bool:
        """Whether neither the values nor torch's count of changes differ."""
        same = torch.allclose(self.tensor, self.copy, rtol=0, atol=0, equal_nan=True)
        return same and self.tensor._version == self.changes


def watch_nodes(handed: list[Handed], gradients: list[Gradient], simulation: Simulation) -> None:
    """Record, with copies, the tensors that the nodes of a simulation pass on."""
    simulation.pool.releases = False
    for kind in {type(node) for node in simulation.nodes.values()}:
        watched = _watched(kind, handed, gradients)
        for node in simulation.nodes.values():
            if type(node) is kind:
                node.__class__ = watched


def _watched(kind: type[Machine], handed: list[Handed], gradients: list[Gradient]) -> type[Machine]:
    """Nodes of this kind that record what they pass on."""

    class Watched(kind):  # type: ignore[misc, valid-type]
        @property
        def weights(self) -> Tensor:
            return cast(Tensor, super().weights)

        @weights.setter
        def weights(self, weights: Tensor) -> None:
            Machine._set_weights(self, weights)
            what = f"the model of node {self.rank} after {self.version} updates"
            self.hand(what, super().weights)

        def compute(self, weights: Tensor, *args: Any, **options: Any) -> Work:
            self.hand(f"what node {self.rank} computed at", weights)
            work: Work = super().compute(weights, *args, **options)
            if work.value is not None:  # endless work, of a node that waits for others or leaves
                gradients.append(work.value)
            return work

        def promise(self, weights: Tensor, batch: Any, started: float) -> Gradient:
            self.hand(f"what node {self.rank} took a gradient at", weights)
            gradients.append(super().promise(weights, batch, started))
            return gradients[-1]

        def send(self, receiver: int, content: Any, *args: Any, **options: Any) -> Message:
            self.hand(f"what node {self.rank} sent to node {receiver}", content)
            return cast(Message, super().send(receiver, content, *args, **options))

        def hand(self, what: str, content: Any) -> None:
            for tensor in _tensors(content):
                handed.append(Handed(what, tensor, tensor._version, tensor.detach().clone()))

    return Watched


def _tensors(content: Any) -> Iterator[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, Mapping):
        yield from _tensors(list(content.values()))
    elif isinstance(content, list | tuple):
        for item in content:
            yield from _tensors(item)


@dataclass
class Bowl:
    """A noisy quadratic in double precision, with elementwise operations only.

    f(w) = 1/2 sum_i h_i w_i^2, gradient h w + noise xi; a mini-batch is its xi `(params,)`, or
    `(ensemble, params)`.
    """

    dim: int = 6
    noise: float = 0.3
    batch: int = 1
    epoch: int = 20
    lanes: int = 1 << 20

    @cached_property
    def curvature(self) -> Tensor:
        """The eigenvalues h `(params,)`, over two orders of magnitude."""
        return torch.logspace(0, -2, self.dim, dtype=torch.float64)

    def layers(self) -> list[EqualLayer]:
        """The layers: one per coordinate, for pipelines to cut."""
        return [EqualLayer(f"w{number}", 1, 1.0, 1.0) for number in range(1, self.dim + 1)]

    def start(self, seeds: Sequence[int]) -> Tensor:
        rows = [np.random.default_rng(seed).standard_normal(self.dim) for seed in seeds]
        return torch.from_numpy(np.stack(rows))

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        while True:
            draws = [rng.standard_normal(self.dim) for rng in rngs]
            if len(draws) == 1:
                yield torch.from_numpy(draws[0])
            else:
                yield torch.from_numpy(np.stack(draws))

    def gradients(self, weights: Tensor, batches: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        noise = torch.stack([batch.expand(weights.shape[1:]) for batch in batches])
        return self.curvature * weights + self.noise * noise, self._loss(weights)

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        return {"test_loss": self._loss(weights)}

    def _loss(self, weights: Tensor) -> Tensor:
        return (self.curvature * weights.square()).sum(-1) / 2


TRIAL_RATE = 0.02
MEMBER_RATES = (1.0, 3.0, 0.3)
"""Learning rates of the members of an ensemble, relative to that of the rule."""
RULES = (Rule(SGD(momentum=0.5), lr=TRIAL_RATE), Rule(lr=TRIAL_RATE))
"""Rules of the trial: the first that the algorithm does not refuse."""
PATIENCE = 100
"""Gradients that a worker may compute, per update, before a run without progress is stopped."""


@dataclass(frozen=True)
class Trial:
    """An algorithm, with the cluster, the task and the rule of its test.

    Attributes:
        make: makes the algorithm from a rule.
        rule: the rule, unless a check uses another.
        updates: the number of updates of a run.
    """

    make: Callable[[Rule], Algorithm]
    rule: Rule
    cluster: Cluster
    task: Task
    updates: int
    seed: int

    def run(self, rule: Rule | None = None, **options: Any) -> Outcome:
        """One run, with further arguments of `simulate`."""
        if rule is None:
            rule = self.rule
        algorithm = self.make(rule)
        # A method that drops every gradient would run for ever by its updates alone.
        limit = PATIENCE * self.cluster.workers * self.updates
        stop = Stop(updates=self.updates, gradients=limit)
        options = {"seed": self.seed, **options}
        return simulate(self.cluster, algorithm, self.task, stop=stop, **options)

    @cached_property
    def outcome(self) -> Outcome:
        """One run; several identities use it."""
        return self.run()

    @property
    def learning_seeds(self) -> list[int]:
        """A seed for each member of `ensemble`."""
        return [self.seed + member for member in range(len(MEMBER_RATES))]

    @cached_property
    def ensemble(self) -> Outcome:
        """One run with a member for each rate in `MEMBER_RATES`; several identities use it."""
        return self.run(self.with_rates(*MEMBER_RATES), learning_seeds=self.learning_seeds)

    @property
    def slices(self) -> int:
        """The number of nodes with a slice of the model; a gradient may have a row for each."""
        params = self.task.start([self.seed]).shape[1]
        algorithm = self.make(self.rule)
        slices = algorithm.slices(self.cluster.workers, params, layers_of(self.task))
        return max(1, len(slices))

    def with_rates(self, *rates: float) -> Rule:
        """The rule with one member per rate: its learning rate times each of `rates`."""
        lr = self.rule.lr
        if not isinstance(lr, float):
            lr = TRIAL_RATE
        members = torch.tensor([[lr * rate] for rate in rates], dtype=torch.float64)
        return replace(self.rule, lr=members)


def trial_of(
    algorithm: Algorithm | Callable[[Rule], Algorithm],
    *,
    cluster: Cluster | None = None,
    task: Task | None = None,
    updates: int = 60,
    seed: int = 0,
) -> Trial:
    """The trial of `check_algorithm`, with the same arguments, for single identities."""
    rule = RULES[0]
    if not isinstance(algorithm, Algorithm):
        factory = algorithm
        rule = fitting(factory, RULES)
    elif is_dataclass(algorithm) and "rule" in {field.name for field in fields(algorithm)}:
        rule = algorithm.rule
        factory = partial(_with_rule, algorithm)
    else:
        factory = partial(_without_rule, algorithm)
    return Trial(factory, rule, cluster or _cluster(factory(rule)), task or Bowl(), updates, seed)


def fitting(
    make: Callable[[Rule], Algorithm], rules: Sequence[Rule], cluster: Cluster | None = None
) -> Rule:
    """The first of `rules` with which an algorithm runs on the cluster, by default of four workers.

    The last where it refuses all.
    """
    *others, last = rules
    for rule in others:
        with suppress(InvalidSettingError):
            make(rule).check_cluster(cluster or Cluster(4))
            return rule
    return last


def _with_rule(algorithm: Algorithm, rule: Rule) -> Algorithm:
    return replace(algorithm, rule=rule)  # type: ignore[type-var]


def _without_rule(algorithm: Algorithm, rule: Rule) -> Algorithm:
    return algorithm


def _cluster(algorithm: Algorithm) -> Cluster:
    """Uneven workers on a slow network: four, or another number that the algorithm accepts."""
    refusals = []
    for workers in (4, 1, 2, 3, 6, 8):
        network = Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
        cluster = Cluster(workers, compute=Gamma(1.0, 0.6), network=network, apply_seconds=0.01)
        try:
            algorithm.check_cluster(cluster)
        except InvalidSettingError as refusal:
            refusals.append(refusal)
        else:
            return cluster
    raise refusals[0]
