"""One process whose gradients are delayed by a queue: staleness without a cluster."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Literal

from numpy.random import Generator

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Counted, InvalidSettingError, NonNegativeInt
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.learning.rules import Rule

LAWS: dict[str, Callable[[Generator, int], int]] = {
    "constant": lambda rng, mean: mean,
    "uniform": lambda rng, mean: int(rng.integers(0, 2 * mean, endpoint=True)),
    "geometric": lambda rng, mean: int(rng.geometric(1 / (1 + mean))) - 1,
    "poisson": lambda rng, mean: int(rng.poisson(mean)),
}
"""How a delay is drawn from its mean."""


@dataclass(frozen=True)
class Delayed(Algorithm):
    """SGD with a delay: the gradient at w_t is applied `delay` updates later.

    w_{t+1} = w_t - lr g(w_{t-delay}). The first `delay` steps fill the queue and make no update;
    gradients queued at the end stay in flight. With delay 0 it is plain SGD; delay D is equivalent
    to D + 1 equal asynchronous workers.

    Where delays differ, the gradient of step t with a delay of d is due after step t + d has
    computed its own. All that are due are then applied, the oldest first, an update each; there may
    be none. On average a step makes one update, and the mean staleness is the mean delay, for every
    distribution.

    Attributes:
        delay: D, in updates; the mean where it is drawn, and the start of a ramp.
        law: `constant`; or a distribution of each gradient's delay: `uniform` on 0 to 2 D,
            `poisson`, or `geometric`, Pr(d) = (1 / (D + 1)) (D / (D + 1))^d, like the staleness of
            D + 1 workers with exponential times.
        ramp_to: D goes from `delay` to `ramp_to` linearly, rounded, and stays there.
        over: updates that the ramp takes; 1 is a jump.
        after: updates before the ramp begins.

    Source: Srinivasan, Jain, Barekatain (2018), ICLR workshop.
    """

    rule: Rule
    delay: NonNegativeInt = 0
    law: Literal["constant", "uniform", "geometric", "poisson"] = "constant"
    ramp_to: NonNegativeInt | None = None
    over: Counted | None = None
    after: NonNegativeInt = 0

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise InvalidSettingError(type(self).__name__, "law", ", ".join(LAWS), self.law)
        super().__post_init__()
        if (self.ramp_to is None) != (self.over is None):
            raise InvalidSettingError(
                type(self).__name__, "over", "updates beside ramp_to, or neither", self.over
            )
        if self.after and self.ramp_to is None:
            raise InvalidSettingError(type(self).__name__, "after", "0 without ramp_to", self.after)

    def check(self, cluster: Cluster) -> None:
        workers = cluster.workers
        if workers != 1:
            expected = (
                f"1, since one process makes its own delay; delay = {workers - 1} stands for "
                f"{workers} workers"
            )
            raise InvalidSettingError("Cluster", "workers", expected, workers)

    def mean(self, updates: int) -> int:
        """The delay, or its mean, of a gradient computed after `updates` updates."""
        if self.ramp_to is None or self.over is None:
            return self.delay
        share = min(1.0, max(0, updates - self.after) / self.over)
        return round(self.delay + (self.ramp_to - self.delay) * share)

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        due: defaultdict[int, list[Gradient]] = defaultdict(list)
        for step in count():
            delay = LAWS[self.law](node.rng, self.mean(node.version))
            due[step + delay].append((yield node.compute(node.weights)))
            for gradient in due.pop(step, []):
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
