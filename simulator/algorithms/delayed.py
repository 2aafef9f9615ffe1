"""One process whose gradients wait in a queue: staleness without a cluster."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Literal

from numpy.random import Generator

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid, bounded
from simulator.cluster import Cluster
from simulator.gradients import Gradient
from simulator.node import Node
from simulator.rules import Rule

LAWS: dict[str, Callable[[Generator, int], int]] = {
    "constant": lambda rng, mean: mean,
    "uniform": lambda rng, mean: int(rng.integers(0, 2 * mean, endpoint=True)),
    "geometric": lambda rng, mean: int(rng.geometric(1 / (1 + mean))) - 1,
    "poisson": lambda rng, mean: int(rng.poisson(mean)),
}
"""How a delay is drawn, by its mean."""


@dataclass(frozen=True)
class Delayed(Algorithm):
    """SGD with a delay: the gradient at w_t is applied `delay` updates later.

    w_{t+1} = w_t - lr g(w_{t-delay}). The first `delay` steps fill the queue and make no update; what is queued at the
    end stays in flight. With delay 0 it is plain SGD; delay D stands for D + 1 equal asynchronous workers.

    Where delays differ, the gradient that step t takes with a delay of d is due d steps later, after step t + d has
    taken its own. Whatever is due is applied then, the oldest first, an update each; a step after which nothing is due
    makes no update. One gradient a step goes in and one comes out on average, so that a step is an update on average,
    and the mean staleness is the mean delay, whatever the law.

    Attributes:
        delay: D, in updates; the mean, if a `law` draws it, and where a ramp starts, if there is one.
        law: `constant`; or drawn for each gradient: `uniform` on 0 to 2 D, `poisson`, or `geometric`, Pr(d) =
            (1 / (D + 1)) (D / (D + 1))^d, as the staleness of D + 1 workers with exponential times is.
        ramp_to, over: D goes from `delay` to `ramp_to` linearly over so many updates, rounded, and stays there.

    Source: Srinivasan, Jain, Barekatain (2018), ICLR workshop.
    """

    rule: Rule
    delay: int = 0
    law: Literal["constant", "uniform", "geometric", "poisson"] = "constant"
    ramp_to: int | None = None
    over: int | None = None

    def __post_init__(self) -> None:
        bounded(self, "delay", least=0, whole=True)
        if self.law not in LAWS:
            raise Invalid(type(self).__name__, "law", ", ".join(LAWS), self.law)
        if (self.ramp_to is None) != (self.over is None):
            raise Invalid(type(self).__name__, "over", "updates beside ramp_to, or neither", self.over)
        if self.ramp_to is not None:
            bounded(self, "ramp_to", least=0, whole=True)
            bounded(self, "over", least=1, whole=True)

    def check(self, cluster: Cluster) -> None:
        workers = cluster.workers
        if workers != 1:
            expected = f"1, since one process makes its own delay; delay = {workers - 1} stands for {workers} workers"
            raise Invalid("Cluster", "workers", expected, workers)

    def mean(self, updates: int) -> int:
        """The delay, or its mean where a law draws it, of a gradient taken after so many updates."""
        if self.ramp_to is None or self.over is None:
            return self.delay
        return round(self.delay + (self.ramp_to - self.delay) * min(1.0, updates / self.over))

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        due: defaultdict[int, list[Gradient]] = defaultdict(list)
        for step in count():
            delay = LAWS[self.law](node.rng, self.mean(node.version))
            due[step + delay].append((yield node.compute(node.weights)))
            for gradient in due.pop(step, []):
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
