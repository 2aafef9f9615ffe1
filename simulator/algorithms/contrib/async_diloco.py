"""Asynchronous DiLoCo: the local steps of each worker make an outer step on arrival."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.algorithms.local_steps import take_local_steps
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import (
    InvalidSettingError,
    NonNegative,
    Positive,
    PositiveInt,
    Range,
)
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.rules.contrib.cgad import CGAD
from laggard.simulator.learning.rules.contrib.heloco import HeLoCo
from laggard.simulator.learning.rules.optimizers import zeros
from laggard.simulator.network.topology import SERVER

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AsyncDiLoCo(Compressing):
    """Asynchronous DiLoCo with a delayed momentum: workers never wait for one another.

    A worker reads w_read, makes H local steps to x, and sends the change d = w_read - x. At each
    arrival the server adds d to a sum D and makes a step. At every N-th arrival it is

        m <- beta m + D / N;    w <- w - outer_lr ((1 - c N + c) beta m + d / N);    D <- 0

    and at all other arrivals

        w <- w - outer_lr (c beta m + d / N)

    where m is the outer momentum, 0 at the start. Then the server answers the worker with w.

    With c = 0, N arrivals are together one step of Nesterov's method along the mean of their d.
    With one worker and N = 1 it is `diloco`. With H = 1, N = 1, plain SGD, outer_lr 1 and no
    momentum it is `async_ps`. Mean staleness P - 1, in arrivals.

    With `staleness_weight: inverse_root`, a change that is tau arrivals late counts as
    d / sqrt(1 + tau). With `dynamic_steps` (DyLU), a worker that makes v mini-batches a second gets
    max(least_steps, floor(H v / max v)) local steps, so that all answers take about equally long.
    The server measures the speeds v. With `heloco` or `cgad`, the step at every arrival is that
    outer rule's, at the rate `outer_lr`.

    Source: Liu et al. (2024), arXiv 2401.09135, algorithms 2 and 3; `staleness_weight`: their
    public notebook.

    Attributes:
        local_steps: H, mini-batches of the fastest worker, or of each, from read to answer.
        outer_lr, outer_momentum: the learning rate and the momentum (beta) of the server's step.
        momentum_every: N, arrivals from one step of the momentum to the next; P by default.
        spread: c, the part of the momentum's step that each of the other arrivals makes.
        staleness_weight: the factor by which staleness lowers a change.
        dynamic_steps: whether slow workers make fewer steps.
        least_steps: the fewest local steps that a slow worker makes.
        grace: seconds after an arrival in which others may arrive before any of them is answered.
        heloco: the outer step of HeLoCo in place of the delayed momentum's.
        cgad: the outer step of CGAD, an Adam in which late changes count less.
    """

    rule: Rule
    local_steps: PositiveInt = field(default=8, kw_only=True)
    outer_lr: Positive = field(default=0.7, kw_only=True)
    outer_momentum: Annotated[float, Range(least=0, below=1)] = field(default=0.9, kw_only=True)
    momentum_every: PositiveInt | None = field(default=None, kw_only=True)
    spread: Annotated[float, Range(least=0, most=1)] = field(default=0.0, kw_only=True)
    staleness_weight: Literal["constant", "inverse_root"] = field(default="constant", kw_only=True)
    dynamic_steps: bool = field(default=False, kw_only=True)
    least_steps: PositiveInt = field(default=1, kw_only=True)
    grace: NonNegative = field(default=0.0, kw_only=True)
    heloco: HeLoCo | None = field(default=None, kw_only=True)
    cgad: CGAD | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heloco is None and self.cgad is None:
            return
        others = {
            "cgad": None,
            "momentum_every": None,
            "spread": 0.0,
            "staleness_weight": "constant",
        }
        if self.heloco is None:
            del others["cgad"]
        for key, unset in others.items():
            value = getattr(self, key)
            if value != unset:
                expected = "no other outer step than that of heloco or cgad"
                raise InvalidSettingError(type(self).__name__, key, expected, value)

    def updates_in_parts(self, workers: int) -> bool:
        return False  # the rule is the workers' own, who have whole models

    def worker(self, node: Node) -> Role:
        encoder = self.encoder(node)
        node.send(SERVER, None, size=0)  # announces the worker
        state = self.rule.init(node.weights, replicas=node.workers)
        while True:
            _, (read, steps) = yield node.receive()
            began = node.now
            model, state, gradients = yield from take_local_steps(
                node, self.rule, read, state, steps
            )
            speed = steps / max(node.now - began, 1e-12)
            yield node.work(encoder.seconds)
            change = encoder.encode_change(read - model, gradients[-1])
            node.send(SERVER, (change, gradients, speed), size=encoder.size)

    def server(self, node: Node) -> Role:
        momentum = total = zeros(node.weights)
        state = self.init_rule(node.weights)
        speeds = dict[int, float]()  # mini-batches a second, by worker
        every = self.momentum_every or node.workers
        while True:
            arrivals = [(yield node.receive())]
            if self.grace:
                yield node.after(self.grace)
            while self.grace and node.arrived():
                arrivals.append((yield node.receive()))
            for worker, content in arrivals:
                if content is None:  # the worker announces itself
                    continue
                change, gradients, speeds[worker] = content
                yield node.work(node.apply_seconds)
                if state is not None:
                    step, state = self.rule_step(node, change, state, gradients[0].staleness)
                    node.apply(node.weights + step, gradients)
                    continue
                if self.staleness_weight == "inverse_root":
                    change = change * (1 + gradients[0].staleness) ** -0.5
                total = total + change
                last = (node.version + 1) % every == 0
                if last:
                    momentum = self.outer_momentum * momentum + total / every
                    total = zeros(total)
                weights = node.weights + self.step(change, momentum, every, last)
                node.apply(weights, gradients)
            # one answer, also to a worker that has sent its change, crashed and come back since
            for worker in dict.fromkeys(worker for worker, _ in arrivals):
                node.send(worker, (node.weights, self.steps(worker, speeds)))

    def step(self, change: "Tensor", momentum: "Tensor", every: int, last: bool) -> "Tensor":
        """The server's step `(ensemble, params)` at one arrival."""
        part = self.spread
        if last:
            part = 1 - self.spread * every + self.spread
        return (change / every + part * self.outer_momentum * momentum) * -self.outer_lr

    def init_rule(self, weights: "Tensor") -> Any:
        """The state of the outer rule; None without one."""
        if self.heloco is not None:
            return zeros(weights)
        if self.cgad is not None:
            return self.cgad.adam().init(weights)
        return None

    def rule_step(
        self, node: Node, change: "Tensor", state: Any, staleness: int
    ) -> "tuple[Tensor, Any]":
        """The outer rule's step `(ensemble, params)` at one arrival, and its next state."""
        if node.weights.shape[1] == 0:  # timing only
            return change, state
        if self.cgad is not None:
            return self.cgad.step(change, state, node.weights, self.outer_lr, staleness)
        assert self.heloco is not None
        return self.heloco.step(change, state, self.outer_momentum, self.outer_lr, node.shapes)

    def steps(self, worker: int, speeds: dict[int, float]) -> int:
        """The number of local steps that `worker` makes next."""
        if not self.dynamic_steps or worker not in speeds:
            return self.local_steps
        share = speeds[worker] / max(speeds.values())
        steps = int(self.local_steps * share + 1e-9)  # 0.3 / 0.1 is rounded down
        return max(self.least_steps, steps)
