"""DANA: an asynchronous server with a momentum for each worker, and an estimate of the future."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.promises import known
from laggard.simulator.learning.rules import SGD, Rule
from laggard.simulator.learning.rules.scalars import Scalar, cast, is_zero
from laggard.simulator.network.topology import SERVER

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DANA(Compressing):
    """DANA-Zero: a momentum per worker; each reads a forecast of the model at its gradient's
    update.

        v_i <- m v_i + g;  w <- w - lr v_i;  worker i reads w - lr m sum_j v_j

    w, g and each v_i are `(ensemble, params)`. m is the momentum of the rule's optimiser, and lr in
    a read is the rate of the next step. What workers read is the model after one more update by
    each, if its gradient were 0. With one worker the gradients are those of Nesterov's momentum.
    With m = 0 it is `async_ps`, whose messages and staleness it has for every m. The server's w is
    evaluated. A worker that crashes keeps its v_i.

    Source: Hakimi et al. (2019), arXiv 1907.11612, DANA-Zero.
    """

    rule: Rule

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        optimizer = self.rule.optimizer
        if not isinstance(optimizer, SGD):
            raise InvalidSettingError("Rule", "optimizer", "sgd, whose momentum it uses", optimizer)

    @property
    def momentum(self) -> Scalar:
        """The momentum m, of every worker."""
        assert isinstance(self.rule.optimizer, SGD)
        return self.rule.optimizer.momentum

    def worker(self, node: Node) -> Role:
        encoder = self.encoder(node)
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, (ahead, read) = yield node.receive()
            gradient = yield node.compute(ahead, read)
            if encoder.seconds:
                yield node.work(encoder.seconds)
            node.send(SERVER, encoder.encode_gradient(gradient), size=encoder.size)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        velocities = dict.fromkeys(range(node.workers), 0 * node.weights)
        velocity_sum = 0 * node.weights
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                yield node.work(node.apply_seconds)
                state = state._replace(optimizer=velocities[worker])
                weights, state = self.rule.update(node.weights, [gradient], state)
                velocity_sum = velocity_sum + (state.optimizer - velocities[worker])
                velocities[worker] = state.optimizer
                node.apply(weights, [gradient])
            rate = self.rule.rate(state) * self.momentum
            ahead = node.weights - cast(rate, velocity_sum) * velocity_sum
            node.send(worker, (ahead, node.weights))  # one model: `ahead` alone travels


@dataclass(frozen=True)
class DANASlim(DANA):
    """DANA-Slim: the gradients of `dana` from a plain server, as workers keep their momentum.

        v_i <- m v_i + g;  u = m v_i + g at worker i;  w <- w - lr u at the server, which returns w

    At a constant rate, w is the model that a worker of `dana` reads; here it is also evaluated.
    With one worker it is SGD with Nesterov's momentum. Clips and compensations change u instead of
    g; weight decay is refused, since the server would add it after the momentum. A worker that
    crashes loses its v_i.

    Source: Hakimi et al. (2019), arXiv 1907.11612, DANA-Slim.
    """

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        decay = self.rule.weight_decay
        if not is_zero(decay):
            expected = "0: the server would add it after the momentum, unlike `dana`"
            raise InvalidSettingError("Rule", "weight_decay", expected, decay)

    def worker(self, node: Node) -> Role:
        velocity = known(0 * node.weights)
        encoder = self.encoder(node)
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            velocity = gradient.map(self.accelerate, velocity)
            if encoder.seconds:
                yield node.work(encoder.seconds)
            direction = gradient.map(self.accelerate, velocity)
            node.send(SERVER, encoder.encode_gradient(direction), size=encoder.size)

    def accelerate(self, gradient: "Tensor", velocity: "Tensor") -> "Tensor":
        """m v + g, of `(ensemble, params)`."""
        return cast(self.momentum, velocity) * velocity + gradient

    def server(self, node: Node) -> Role:
        rule = replace(self.rule, optimizer=SGD())
        state = rule.init(node.weights)
        while True:
            worker, direction = yield node.receive()
            if direction is not None:
                yield node.work(node.apply_seconds)
                weights, state = rule.update(node.weights, [direction], state)
                node.apply(weights, [direction])
            node.send(worker, node.weights)
