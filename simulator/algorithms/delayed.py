"""One process whose gradients are delayed by a queue: staleness without a cluster."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from numpy.random import Generator

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.algorithms.staging import Stage, stage_ends, stage_layers
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import (
    MOST_COUNT,
    Counted,
    InvalidSettingError,
    NonNegativeInt,
)
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Layer
from laggard.simulator.learning.weights import join_slices
from laggard.simulator.network.topology import SERVER

LAWS: dict[str, Callable[[Generator, int], int]] = {
    "constant": lambda rng, mean: mean,
    "uniform": lambda rng, mean: int(rng.integers(0, 2 * mean, endpoint=True)),
    "geometric": lambda rng, mean: int(rng.geometric(1 / (1 + mean))) - 1,
    "poisson": lambda rng, mean: int(rng.poisson(mean)),
}
"""The distribution of a delay around its mean."""


@dataclass(frozen=True)
class Delayed(Algorithm):
    """SGD with a delay: the gradient at w_t is applied `delay` updates later.

        w_{t+1} = w_t - lr g(w_{t-delay})

    The first `delay` steps fill the queue and make no update; gradients queued at the end stay in
    flight. With delay 0 it is plain SGD; delay D is equivalent to D + 1 equal asynchronous workers.

    Where delays differ, the gradient of step t with delay d is due once the gradient of step t + d
    is computed. All gradients that are due are then applied, the oldest first, one update each;
    there may be none. On average a step makes one update, and the mean staleness is the mean delay,
    for every distribution.

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
                type(self).__name__, "over", "updates with ramp_to, else null", self.over
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
        if cluster.members.change:
            expected = "none, since the one process always has gradients that wait"
            raise InvalidSettingError("Cluster", "members", expected, cluster.members)

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


@dataclass(frozen=True)
class DelayedStages(Algorithm):
    """SGD with a delay for each stage: that of a pipeline without a flush, by one process.

        w_s <- w_s - lr g_s(w(t - D_s)),    s = 1 .. S

    where w(t) is the whole model at step t. A stage makes no update in its first D_s steps, so that
    at step t it has made t - D_s. Equal D_s are `delayed`, on a free network. With D_s = S - s it
    is `pipedream` by one process: the gradient of mini-batch t is taken at weights of t - S + s
    updates of each stage s.

    One worker computes all gradients. A server for each stage has the stage's parameters. It
    applies the stage's part of a gradient and answers with the new parameters; both messages have
    the stage's size. Each part has its own staleness. A step of SGD at curvature h is stable on
    stage s for lr h < 2 sin(pi / (2 (2 D_s + 1))).

    Attributes:
        delays: D_s of each stage, from the first layers on, in steps.
        cut: the first layer of each further stage; by default the work is divided as evenly as
            layers allow.

    Source: Narayanan et al. (2019), arXiv 1806.03377, section 3.3, for D_s = S - s.
    """

    rule: Rule
    delays: Sequence[int] = (1, 0)
    cut: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.delays or not all(0 <= delay <= MOST_COUNT for delay in self.delays):
            expected = f"a number from 0 to {MOST_COUNT} for each stage"
            raise InvalidSettingError(type(self).__name__, "delays", expected, list(self.delays))

    def check(self, cluster: Cluster) -> None:
        if cluster.workers != 1:
            expected = "1, since one process delays its own gradients"
            raise InvalidSettingError("Cluster", "workers", expected, cluster.workers)

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        roles = dict(super().roles(workers))
        servers = {SERVER - stage: roles[SERVER] for stage in range(len(self.delays))}
        return servers | roles

    def stages(self, layers: Sequence[Layer]) -> list[Stage]:
        """The stages of a model, one for each delay.

        Raises:
            InvalidSettingError: more delays than layers, or as in `stage_layers`.
        """
        most = len(stage_ends(layers))
        if not self.cut and len(self.delays) > most:
            expected = f"at most {most}, a stage for each layer of the model"
            raise InvalidSettingError(type(self).__name__, "delays", expected, list(self.delays))
        return stage_layers(layers, len(self.delays), self.cut)

    def slices(
        self, workers: int, params: int, layers: Sequence[Layer] = ()
    ) -> Mapping[int, slice]:
        stages = self.stages(layers)
        return {SERVER - number: stage.params for number, stage in enumerate(stages)}

    def updates_in_parts(self, workers: int) -> bool:
        return len(self.delays) > 1

    def sizes(self, node: Node) -> dict[int, float]:
        """The size in models of the stage of each server."""
        stages = self.stages(node.layers)
        return {SERVER - number: stage.size for number, stage in enumerate(stages)}

    def worker(self, node: Node) -> Role:
        sizes = self.sizes(node)
        for server in sizes:
            node.send(server, None, size=0)  # announces the worker
        asked = list(sizes)
        parts = {}
        gradients = deque[Gradient](maxlen=max(self.delays) + 1)
        while True:
            for _ in asked:
                server, parts[server] = yield node.receive()
            whole = join_slices([parts[server] for server in sizes])
            gradients.append((yield node.compute(whole)))
            asked = []
            for server, delay in zip(sizes, self.delays, strict=True):
                if delay < len(gradients):
                    piece = gradients[-1 - delay].piece(server)
                    node.send(server, piece, size=sizes[server])
                    asked.append(server)

    def server(self, node: Node) -> Role:
        size = self.sizes(node)[node.rank]
        state = self.rule.init(node.weights)
        while True:
            worker, piece = yield node.receive()
            if piece is not None:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, [piece], state)
                node.apply(weights, [piece])
            node.send(worker, node.weights, size=size)
